package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/shape"
)

// Images maps the names of container images to programs of this machine.
type Images struct {
	// Program is the vicinity-lab program, which runs the images lab/NAME.
	Program string
	// Folder holds the programs of the images vicinity and vicinity-NAME.
	Folder string
}

// DefaultImages are this program and those in its folder.
func DefaultImages() (Images, error) {
	program, err := os.Executable()
	if err != nil {
		return Images{}, fmt.Errorf("finding this program: %w", err)
	}
	return Images{Program: program, Folder: filepath.Dir(program)}, nil
}

// Resolve returns the program of an image and its first arguments.
func (i Images) Resolve(image string) ([]string, error) {
	name := shape.Image(image)
	switch program, own := strings.CutPrefix(name, "lab/"); {
	case own && (program == "echo" || program == "client" || program == "sleep"):
		return []string{i.Program, "program", program}, nil
	case !own && (name == "vicinity" || strings.HasPrefix(name, "vicinity-")):
		program := filepath.Join(i.Folder, name)
		if err := executable(program); err != nil {
			return nil, fmt.Errorf("image %q stands for the program %s: %w", image, program, err)
		}
		return []string{program}, nil
	}
	return nil, fmt.Errorf("image %q maps to no program; the lab has lab/echo, lab/client, lab/sleep and the programs called vicinity-NAME in %s", image, i.Folder)
}

// imageID is the identity of an image: its name, since a program has no digest.
func imageID(image string) string { return "vicinity://" + shape.Image(image) }

// ImageStatus returns an image, or nothing if it maps to no program.
func (n *node) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	name := r.GetImage().GetImage()
	if _, err := n.runtime.Images.Resolve(name); err != nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: imageID(name), RepoTags: []string{name}, Size: 1, Spec: &runtimeapi.ImageSpec{Image: name}}}, nil
}

// PullImage fetches nothing. It says why an image maps to no program.
func (n *node) PullImage(_ context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	name := r.GetImage().GetImage()
	if _, err := n.runtime.Images.Resolve(name); err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: imageID(name)}, nil
}

// ListImages lists none: the kubelet would remove those that it does not need.
func (n *node) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

// RemoveImage removes nothing.
func (n *node) RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo says that images take no space.
func (n *node) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	none := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: none, ContainerFilesystems: none}, nil
}

const imageFolder = "/.image"

// mountProgram makes a program executable for every user of a container: its folder on the
// machine may be closed to all but root. It returns the new command line and the mount.
func mountProgram(program []string) ([]string, mount) {
	m := mount{Source: program[0], Target: filepath.Join(imageFolder, filepath.Base(program[0])), ReadOnly: true}
	return append([]string{m.Target}, program[1:]...), m
}
