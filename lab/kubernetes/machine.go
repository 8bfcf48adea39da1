package main

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
)

// describeMachine gives a kubelet the kernel's release and disk usage. It measures neither CPU nor
// memory. The folder is the node's.
func describeMachine(node, folder string) (cadvisor.Interface, error) {
	base := &cadvisortest.Fake{NodeName: node}
	version, err := base.VersionInfo()
	if err != nil {
		return nil, err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("reading the kernel's release: %w", err)
	}
	version.KernelVersion = unix.ByteSliceToString(name.Release[:])
	version.ContainerOsVersion = "Vicinity lab"
	var described any = newMachine(base, folder, version, base.ContainerInfoV2, base.GetDirFsInfo)
	result, ok := described.(cadvisor.Interface)
	if !ok {
		return nil, fmt.Errorf("%T does not implement cadvisor.Interface", described)
	}
	return result, nil
}

// machine is generic because the package of its types differs between releases of Kubernetes. The
// JSON names of their fields are the same in all releases.
type machine[Version, Options, Info, Disk any] struct {
	cadvisor.Interface
	folder  string
	version *Version
}

// newMachine needs the functions of the base only for their types.
func newMachine[Version, Options, Info, Disk any](base cadvisor.Interface, folder string, version *Version,
	_ func(string, Options) (map[string]Info, error), _ func(string) (Disk, error),
) machine[Version, Options, Info, Disk] {
	return machine[Version, Options, Info, Disk]{Interface: base, folder: folder, version: version}
}

// VersionInfo returns the versions that the node reports.
func (m machine[Version, _, _, _]) VersionInfo() (*Version, error) { return m.version, nil }

// ContainerInfoV2 describes a control group by the time alone: without it, a kubelet does not measure
// the storage of pods.
func (m machine[_, Options, Info, _]) ContainerInfoV2(name string, _ Options) (map[string]Info, error) {
	info, err := as[Info](map[string]any{"stats": []any{map[string]any{"timestamp": time.Now()}}})
	return map[string]Info{name: info}, err
}

// RootFsInfo measures the disk that has the node's folder.
func (m machine[_, _, _, Disk]) RootFsInfo() (Disk, error) { return m.GetDirFsInfo(m.folder) }

// GetDirFsInfo measures the disk that has a folder. All disks have the same empty name: a kubelet
// would treat another disk of images differently.
func (m machine[_, _, _, Disk]) GetDirFsInfo(folder string) (Disk, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		var none Disk
		return none, fmt.Errorf("reading the use of the disk of %s: %w", folder, err)
	}
	block := uint64(stat.Bsize)
	return as[Disk](map[string]any{
		"timestamp": time.Now(), "inodes": stat.Files, "inodes_free": stat.Ffree,
		"capacity": stat.Blocks * block, "available": stat.Bavail * block, "usage": (stat.Blocks - stat.Bfree) * block,
	})
}

// as makes a value from JSON fields.
func as[T any](fields map[string]any) (T, error) {
	var value T
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	return value, err
}
