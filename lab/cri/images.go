package cri

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
)

// Images maps the names of container images to programs of this machine.
type Images struct {
	// Program is the vicinity-lab program, which runs the images lab/NAME.
	Program string
	// Folder holds the programs of the images vicinity and vicinity-NAME.
	Folder string
	// Others are images that the lab was brought up with.
	Others image.Map
	// Store has the images that were loaded into the lab, by digest.
	Store image.Store
}

// Resolve returns the program of an image. A name with a digest never maps to a program of this
// machine. The lab's own images come first.
func (i Images) Resolve(name string) (image.Image, error) {
	if image.Digest(name) != "" && i.Store.Folder != "" {
		found, err := i.Store.Find(name)
		if _, other := i.Others.Find(name); err == nil || !other {
			return found, err
		}
	}
	short := shape.Image(name)
	switch program, own := strings.CutPrefix(short, "lab/"); {
	case own && (program == "echo" || program == "client" || program == "sleep"):
		return ownImage(i.Program, "program", program), nil
	case !own && (short == "vicinity" || strings.HasPrefix(short, "vicinity-")):
		return checked(name, ownImage(filepath.Join(i.Folder, short)))
	}
	if found, ok := i.Others.Find(name); ok {
		return checked(name, found)
	}
	var others string
	if len(i.Others) > 0 {
		others = fmt.Sprintf(", and those of --images, which are %s", i.Others)
	}
	return image.Image{}, fmt.Errorf("image %q maps to no program; the lab has lab/echo, lab/client, lab/sleep and the programs called vicinity-NAME in %s%s", name, i.Folder, others)
}

func ownImage(program string, args ...string) image.Image {
	at := image.MountPath(program)
	return image.Image{Program: program, MountPath: at, EntryPoint: append([]string{at}, args...)}
}

// checked fails if the image's program is missing.
func checked(name string, found image.Image) (image.Image, error) {
	if found.Program == "" {
		return found, nil
	}
	if err := executable(found.Program); err != nil {
		return image.Image{}, fmt.Errorf("image %q stands for the program %s: %w", name, found.Program, err)
	}
	return found, nil
}

// imageID is the image's name, with its digest if it was loaded. A program has no digest.
func imageID(name string) string {
	id := "vicinity://" + shape.Image(name)
	if digest := image.Digest(name); digest != "" {
		id += "@" + digest
	}
	return id
}

// ImageStatus returns an image, or nothing if it maps to no program.
func (n *node) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	name := r.GetImage().GetImage()
	found, err := n.runtime.Images.Resolve(name)
	if err != nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	status := &runtimeapi.Image{Id: imageID(name), RepoTags: []string{name}, Size: 1, Spec: &runtimeapi.ImageSpec{Image: name}}
	if found.User != nil {
		status.Uid = &runtimeapi.Int64Value{Value: int64(*found.User)}
	}
	return &runtimeapi.ImageStatusResponse{Image: status}, nil
}

// PullImage fetches nothing. It says why a name maps to no program.
func (n *node) PullImage(_ context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	name := r.GetImage().GetImage()
	if _, err := n.runtime.Images.Resolve(name); err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: imageID(name)}, nil
}

// ListImages returns nothing: the kubelet would remove unused images.
func (n *node) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

// ImageFsInfo reports that images take no space.
func (n *node) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	none := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: none, ContainerFilesystems: none}, nil
}
