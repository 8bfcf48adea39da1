package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files makes a folder with a program, a file that is none, and a folder.
func files(t *testing.T) string {
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

const example = `
images:
- name: agnhost
  program: agnhost
  mountPath: /agnhost
  args: [pause]
- name: registry.example.org/web/*
  entryPoint: [busybox, httpd]
  args: [-f]
  env: {MODE: plain, A: b}
  root: root
  mounts: {/etc/readme: readme, /tools: /bin}
- name: "*"
  program: agnhost
`

func read(t *testing.T, text string) (Map, string) {
	t.Helper()
	folder := files(t)
	images, err := Read(strings.NewReader(text), folder)
	if err != nil {
		t.Fatal(err)
	}
	return images, folder
}

func TestRead(t *testing.T) {
	images, folder := read(t, example)
	agnhost, web, other := images[0], images[1], images[2]
	if agnhost.Program != folder+"/agnhost" || agnhost.MountPath != "/agnhost" || !slices.Equal(agnhost.EntryPoint, []string{"/agnhost"}) {
		t.Errorf("a program with a path is %+v", agnhost)
	}
	if web.Root != folder+"/root" || web.MountPath != "" || !slices.Equal(web.Variables(), []string{"A=b", "MODE=plain"}) {
		t.Errorf("an image with a root is %+v, %q", web, web.Variables())
	}
	if web.Mounts["/etc/readme"] != folder+"/readme" || web.Mounts["/tools"] != "/bin" {
		t.Errorf("mounts are %v", web.Mounts)
	}
	if !slices.Equal(other.EntryPoint, []string{"/.image/agnhost"}) {
		t.Errorf("a program without a path is %+v", other)
	}
}

func TestFind(t *testing.T) {
	images, _ := read(t, example)
	for name, want := range map[string]string{
		"agnhost":                             "agnhost",
		"registry.k8s.io/e2e/agnhost:2.4":     "agnhost",
		"reg:5000/agnhost@sha256:0":           "agnhost",
		"registry.example.org/web/shop:1":     "registry.example.org/web/*",
		"registry.example.org/web/a/b:1":      "*",
		"registry.example.org:80/web/shop:1":  "*",
		"other.example.org/web/shop":          "*",
		"docker.io/library/agnhost-something": "*",
	} {
		if got, ok := images.Find(name); !ok || got.Name != want {
			t.Errorf("%s is %q, want %q", name, got.Name, want)
		}
	}
	if got, ok := images[:2].Find("nginx:1"); ok {
		t.Errorf("nginx is %q", got.Name)
	}
}

func TestReadNamesWhatIsWrong(t *testing.T) {
	folder := files(t)
	for text, want := range map[string]string{
		"image: []":                                     `field "image" is unknown: write one of images`,
		"":                                              "images is missing: write a list of images",
		"images: []":                                    "images is missing: write a list of images",
		"[{name: a}]":                                   "it is of type array: write fields: images",
		"images: {}":                                    `field "images": it is of type object: write a list of images`,
		"images: [{name: a, run: b}]":                   `images[0]: field "run" is unknown: write one of name, program,`,
		"images: [{name: a, args: b}]":                  `images[0]: field "args": it is of type string: write a list of texts`,
		"images: [a]":                                   `images[0]: it is of type string: write fields: name,`,
		"images: [{args: [a]}]":                         "images[0].name is missing: write an image's name",
		"images: [{name: 'a:1', args: [a]}]":            `images[0].name "a:1": write an image's name without tag`,
		"images: [{name: 'a@b', args: [a]}]":            `images[0].name "a@b": write an image's name without tag`,
		"images: [{name: '[', args: [a]}]":              `images[0].name "[": write an image's name`,
		"images: [{name: a}]":                           `images[0] "a": nothing says what it runs; write program, entryPoint or args`,
		"images: [{name: a, program: b}]":               `images[0].program "` + folder + `/b": no such file or directory; write the path of a program`,
		"images: [{name: a, program: readme}]":          `images[0].program "` + folder + `/readme": it is no program; write`,
		"images: [{name: a, program: root}]":            `images[0].program "` + folder + `/root": it is no program; write`,
		"images: [{name: a, args: [b], mountPath: /c}]": `images[0].mountPath "/c": there is no program to mount`,
		"images: [{name: a, program: agnhost, mountPath: c}]":                        `images[0].mountPath "c": write an absolute path`,
		"images: [{name: a, program: agnhost, mountPath: /a/../b}]":                  `images[0].mountPath "/a/../b": write an absolute path`,
		"images: [{name: a, args: [b], env: {'C=D': e}}]":                            `images[0].env: name "C=D": write a name without =`,
		"images: [{name: a, args: [b], mounts: {c: readme}}]":                        `images[0].mounts: path "c": write an absolute path`,
		"images: [{name: a, args: [b], mounts: {/c: nothing}}]":                      `images[0].mounts: "` + folder + `/nothing" for /c: no such file or directory; write`,
		"images: [{name: a, program: agnhost, mountPath: /c, mounts: {/c: readme}}]": `images[0].mounts: path "/c": write an absolute path that nothing else`,
		"images: [{name: a, args: [b], mounts: [/c]}]":                               `images[0]: field "mounts": it is of type array: write texts by names`,
		"images: [{name: a, args: [b], root: readme}]":                               `images[0].root "` + folder + `/readme": it is no folder; write`,
		"images: [{name: a, args: [b]}, {name: a, args: [c]}]":                       `images[1].name "a": an image before has this name`,
	} {
		_, err := Read(strings.NewReader(text), folder)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
}
