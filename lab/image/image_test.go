package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// makeFiles makes a folder with a program, another file, and a folder.
func makeFiles(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{"agnhost": 0o755, "readme": 0o644} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestRead(t *testing.T) {
	folder := makeFiles(t)
	images, err := Read(strings.NewReader(`
images:
- name: agnhost
  program: agnhost
  mountPath: /agnhost
- name: registry.example.org/web/*
  entryPoint: [busybox, httpd]
  env: {MODE: plain, A: b}
  root: root
  mounts: {/etc/readme: readme, /tools: /bin}
- name: "*"
  program: agnhost
`), folder)
	if err != nil {
		t.Fatal(err)
	}
	agnhost, web, other := images[0], images[1], images[2]
	if agnhost.Program != folder+"/agnhost" || !slices.Equal(agnhost.EntryPoint, []string{"/agnhost"}) || !slices.Equal(other.EntryPoint, []string{"/.image/agnhost"}) {
		t.Errorf("images with a program are %+v, %+v", agnhost, other)
	}
	if web.Root != folder+"/root" || !slices.Equal(web.Variables(), []string{"A=b", "MODE=plain"}) || web.Mounts["/etc/readme"] != folder+"/readme" || web.Mounts["/tools"] != "/bin" {
		t.Errorf("the image with a root is %+v", web)
	}
	for name, want := range map[string]string{
		"registry.k8s.io/e2e/agnhost:2.4":    "agnhost",
		"reg:5000/agnhost@sha256:0":          "agnhost",
		"registry.example.org/web/shop:1":    "registry.example.org/web/*",
		"registry.example.org/web/a/b:1":     "*",
		"registry.example.org:80/web/shop:1": "*",
	} {
		if got, ok := images.Find(name); !ok || got.Name != want {
			t.Errorf("Find(%q) = %q, want %q", name, got.Name, want)
		}
	}
	for text, want := range map[string]string{
		"image: []":                          "reading images: ",
		"":                                   "images is missing: write a list of images",
		"images: [{args: [a]}]":              "images[0].name is missing: write an image's name",
		"images: [{name: 'a:1', args: [a]}]": `images[0].name "a:1": write an image's name without tag`,
		"images: [{name: a}]":                `images[0] "a": it has no command; write program, entryPoint or args`,
		"images: [{name: a, program: b}]":    `images[0].program "` + folder + `/b": no such file or directory; write the path of a program`,
		"images: [{name: a, args: [b], mounts: {c: readme}}]":  `images[0].mounts: path "c": write an absolute path`,
		"images: [{name: a, args: [b]}, {name: a, args: [c]}]": `images[1].name "a": an earlier image has this name`,
	} {
		if _, err := Read(strings.NewReader(text), folder); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}
