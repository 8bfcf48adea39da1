package state_test

import (
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
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Shape: shape.Default(), Port: 1234, Up: true, NextIndex: 7,
	}
}

func TestLabsAreCreatedAndRemoved(t *testing.T) {
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
	for range 2 {
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder exists after Remove: %v", err)
	}
}

// Remove leaves a folder that is not a lab's.
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

// A lock that waits while the lab is removed locks the next lab.
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
				t.Error("two goroutines hold the lock")
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
		t.Errorf("Lock() of a removed lab: %v, want ErrNotFound", err)
	}
	if content, err := os.ReadDir(filepath.Dir(d.Path())); err != nil || len(content) > 0 {
		t.Errorf("the root still has %v, %v", content, err)
	}
}
