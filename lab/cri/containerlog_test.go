package cri

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/state"
)

func TestContainerLogIsOfTheNodeAndTheImage(t *testing.T) {
	d, err := state.Create(t.TempDir(), "logs")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Add(-time.Hour)
	write := func(pod, number, image, node, log string, age time.Duration) {
		t.Helper()
		folder := filepath.Join(d.Pod(pod), containersFolder, number)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		spec := containerSpec{Image: image, Env: []string{"A=b", NodeVariable(node)}, Log: folder + ".log"}
		if err := writeJSON(filepath.Join(folder, specFile), spec); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(spec.Log, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if at := begun.Add(age); os.Chtimes(spec.Log, at, at) != nil {
			t.Fatal("the time of a log cannot be set")
		}
	}
	if _, err := ContainerLog(d, "vicinity-proxy", "one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without any the error is %v", err)
	}
	write("a", "1", "example.com/vicinity-proxy:v1", "one", "T stdout F second of one\nT stderr P a part,\nT stderr F  and the rest\n", time.Minute)
	write("a", "0", "vicinity-proxy", "one", "T stdout F first of one\n", 0)
	write("b", "0", "vicinity-proxy", "one-2", "T stdout F of another node\n", time.Second)
	write("c", "0", "vicinity-controller", "one", "T stdout F of another image\n", time.Second)
	got, err := ContainerLog(d, "vicinity-proxy", "one")
	if want := "first of one\nsecond of one\na part, and the rest\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
