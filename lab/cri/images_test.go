package cri

import (
	"testing"
)

func TestImages(t *testing.T) {
	images := Images{Program: "/bin/vicinity", Folder: "/bin"}
	for _, image := range []string{"lab/echo", "lab/echo:1", "registry.example:5000/lab/echo:1@sha256:0", "docker.io/lab/echo"} {
		if got, err := images.Resolve(image); err != nil || got[len(got)-1] != "echo" {
			t.Errorf("%s: %v %v", image, got, err)
		}
	}
	for _, image := range []string{"nginx", "lab/other", "lab/", "vicinity-nothing", "slab/echo"} {
		if got, err := images.Resolve(image); err == nil {
			t.Errorf("%s is %v", image, got)
		}
	}
}
