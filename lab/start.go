package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vicinity.dev/vicinity/lab/shape"
)

// Test is what Start needs of a *testing.T.
type Test interface {
	// Helper keeps Start out of the places that messages name.
	Helper()
	// TempDir is where the lab's folder goes.
	TempDir() string
	// Context bounds bringing the lab up.
	Context() context.Context
	// Cleanup is told to take the lab down.
	Cleanup(func())
	// Failed decides whether the lab's logs are of interest.
	Failed() bool
	// Logf prints them.
	Logf(format string, args ...any)
	// Fatalf ends the test when there is no lab.
	Fatalf(format string, args ...any)
}

// Start brings a lab up for a test and takes it down when the test ends. Its name is
// followed by the number of this process, so that it is none of the user's. When the
// test fails, the last words of the lab's components are in its log.
//
// The lab runs the program bin/vicinity of the repository that the test is in, or the
// one that VICINITY names, since a test's own program has no commands.
func Start(t Test, s shape.Shape) *Cluster {
	t.Helper()
	program, err := testProgram()
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.Name = fmt.Sprintf("%s-%d", s.Name, os.Getpid())
	var log bytes.Buffer
	cluster, err := Up(t.Context(), s, Options{Root: t.TempDir(), Program: program, Log: &log})
	if err != nil {
		t.Fatalf("bringing a lab up: %v\n%s", err, &log)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log.Reset()
			if err := cluster.ComponentLogs(&log, nil); err != nil {
				t.Logf("reading the lab's logs: %v", err)
			}
			t.Logf("the lab's logs end with\n%s", &log)
		}
		// The test's context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.Down(ctx); err != nil {
			t.Fatalf("taking the lab down: %v", err)
		}
	})
	return cluster
}

// Built is the error that Start would fail by for want of a program.
func Built() error {
	program, err := testProgram()
	if err != nil {
		return err
	}
	_, err = Options{Program: program}.kubernetes()
	return err
}

// testProgram finds the vicinity program for a test.
func testProgram() (string, error) {
	if program := os.Getenv("VICINITY"); program != "" {
		return filepath.Abs(program)
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("this test is in no Go module; say by VICINITY where the vicinity program is")
		}
		folder = filepath.Dir(folder)
	}
	program := filepath.Join(folder, "bin", "vicinity")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("a lab needs the vicinity program: %w; build it by make build kubernetes, or say by VICINITY where it is", err)
	}
	return program, nil
}
