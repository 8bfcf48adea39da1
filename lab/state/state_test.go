package state_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

func create(t *testing.T, root, name string) state.Dir {
	t.Helper()
	d, err := state.Create(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func lab() state.Lab {
	return state.Lab{
		Version: "v1", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Shape: shape.Default(), Port: 1234, Up: true, NextIndex: 7,
	}
}

func TestDefaultRoot(t *testing.T) {
	for _, test := range []struct{ own, base, home, want string }{
		{"/own", "/base", "/a-home", "/own"},
		{"", "/base", "/a-home", "/base/vicinity/lab"},
		{"", "", "/a-home", "/a-home/.local/state/vicinity/lab"},
		{"", "relative", "/a-home", "/a-home/.local/state/vicinity/lab"},
	} {
		t.Setenv("VICINITY_LAB_DIR", test.own)
		t.Setenv("XDG_STATE_HOME", test.base)
		t.Setenv("HOME", test.home)
		if got, err := state.DefaultRoot(); err != nil || got != test.want {
			t.Errorf("DefaultRoot() with %+v = %q, %v", test, got, err)
		}
	}
	t.Setenv("HOME", "")
	if _, err := state.DefaultRoot(); err == nil || !strings.Contains(err.Error(), "set VICINITY_LAB_DIR") {
		t.Errorf("DefaultRoot() without any: %v", err)
	}
}

func TestLabsComeAndGo(t *testing.T) {
	root := filepath.Join(t.TempDir(), "labs")
	if labs, err := state.List(root); err != nil || len(labs) > 0 {
		t.Errorf("List() = %v, %v", labs, err)
	}
	if _, err := state.Open(root, "a"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Open(): %v, want ErrNotFound", err)
	}
	if _, err := state.Create(root, "../a"); err == nil || !strings.Contains(err.Error(), `"../a"`) {
		t.Errorf("Create() with a bad name: %v", err)
	}

	d := create(t, root, "a")
	create(t, root, "b")
	if err := os.Mkdir(filepath.Join(root, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if labs, err := state.List(root); err != nil || len(labs) != 2 || labs[0] != d || labs[0].Name() != "a" {
		t.Errorf("List() = %v, %v, want a and b", labs, err)
	}
	if _, err := d.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load() before Save: %v, want ErrNotExist", err)
	}
	if err := d.Save(lab()); err != nil {
		t.Fatal(err)
	}
	opened, err := state.Open(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := opened.Load(); err != nil || !reflect.DeepEqual(got, lab()) {
		t.Errorf("Load() = %+v, %v, want %+v", got, err, lab())
	}
	for _, path := range []string{d.PKI("ca.crt"), d.Conf("x"), d.ComponentKubeconfig("x"), d.Log("x"), d.Record("x"), d.Kubeconfig(), d.Pod("x")} {
		if !strings.HasPrefix(path, d.Path()+"/") {
			t.Errorf("%s is not in %s", path, d.Path())
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there after Remove: %v", err)
	}
}

// A folder that is no lab's is not removed.
func TestRemoveLeavesOtherFolders(t *testing.T) {
	folder := t.TempDir()
	letter := filepath.Join(folder, "letter")
	if err := os.WriteFile(letter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := state.At(folder).Remove(); err == nil || !strings.Contains(err.Error(), "not the folder of a lab") {
		t.Errorf("Remove(): %v", err)
	}
	if _, err := os.Stat(letter); err != nil {
		t.Error(err)
	}
}

// A reader sees either the old or the new lab.
func TestSaveIsAtomic(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	small, large := lab(), lab()
	for range 200 {
		var err error
		if large.Shape, _, err = large.Shape.With(shape.Node{Zone: "zone-a"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Save(small); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		defer close(done)
		for range 20 {
			for _, l := range []state.Lab{large, small} {
				if err := d.Save(l); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		got, err := d.Load()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Shape.Nodes()); n != 6 && n != 206 {
			t.Fatalf("a lab of %d nodes was read", n)
		}
	}
	writing.Wait()
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s is left", entry.Name())
		}
	}
}

func TestWriteFileThatFailsChangesNothing(t *testing.T) {
	folder := t.TempDir()
	// What is there cannot be replaced by a file.
	target := filepath.Join(folder, "target")
	if err := os.MkdirAll(filepath.Join(target, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, write := range []func(string, []byte, os.FileMode) error{state.WriteFile, state.ReplaceFile} {
		if err := write(target, []byte("x"), 0o600); err == nil {
			t.Error("a folder was replaced by a file")
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1+i {
			t.Errorf("the folder holds %v, %v", entries, err)
		}
		path := filepath.Join(folder, "new-"+strconv.Itoa(i))
		if err := write(path, []byte("x"), 0o640); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("the file is %v, %v, want mode 0640", info, err)
		}
	}
}

func TestLoadOfBrokenFile(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	if err := os.WriteFile(filepath.Join(d.Path(), "lab.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(); err == nil || !strings.Contains(err.Error(), "lab.json") {
		t.Errorf("Load(): %v", err)
	}
	if err := d.Remove(); err != nil {
		t.Errorf("Remove(): %v", err)
	}
}

func TestLock(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	unlock, err := d.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Lock(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a second Lock: %v, want the process that holds the first", err)
	}
	unlock()
	unlock, err = d.Lock(ended)
	if err != nil {
		t.Fatalf("Lock() after unlock: %v", err)
	}
	unlock()
}

// A lock that waits while the lab is removed is one of the next lab, not of the removed
// one.
func TestLockOutlivesRemoval(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	unlock, err := d.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const waiters = 4
	var mutex sync.Mutex
	var waiting sync.WaitGroup
	for range waiters {
		waiting.Go(func() {
			unlock, err := d.Claim(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			if !mutex.TryLock() {
				t.Error("two hold the lock")
				return
			}
			defer mutex.Unlock()
			if err := d.Save(lab()); err != nil {
				t.Error(err)
			}
			if err := d.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	unlock()
	waiting.Wait()
	if _, err := d.Lock(t.Context()); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a lock on a lab that was removed: %v, want ErrNotFound", err)
	}
	if content, err := os.ReadDir(filepath.Dir(d.Path())); err != nil || len(content) > 0 {
		t.Errorf("%v is left, %v", content, err)
	}
}

// A lock that waits while the lab is removed returns ErrNotFound and does not make the lab
// again.
func TestLockOfALabThatGoes(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	unlock, err := d.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := d.Lock(t.Context())
		failed <- err
	}()
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-failed; !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Lock(): %v, want ErrNotFound", err)
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}

func TestSavedLabIsForPeopleToo(t *testing.T) {
	d := create(t, t.TempDir(), "a")
	if err := d.Save(lab()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.Path(), "lab.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"leaseDuration": "10s"`, `"name": "zone-a-1"`, `"port": 1234`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}
