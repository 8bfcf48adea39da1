package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vicinity.dev/vicinity/internal/built"
	"vicinity.dev/vicinity/lab/shape"
)

// Test is what Start needs of a *testing.T. Importing testing would add its flags to the
// program.
type Test interface {
	// Helper is called by Start.
	Helper()
	// TempDir holds the lab's folder.
	TempDir() string
	// Context limits bringing the lab up.
	Context() context.Context
	// Cleanup takes the lab down.
	Cleanup(func())
	// Failed tests get the lab's logs.
	Failed() bool
	// Logf prints the logs.
	Logf(format string, args ...any)
	// Fatalf ends the test if there is no lab.
	Fatalf(format string, args ...any)
}

// Start brings a lab up for a test and takes it down when the test ends. The process ID is
// appended to its name, so that it is none of the user's. If the test fails, the end of the
// components' logs is printed.
//
// The lab runs bin/vicinity-lab of the test's repository, or the program that VICINITY_LAB names.
func Start(t Test, s shape.Shape) *Cluster {
	t.Helper()
	program, err := TestProgram()
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

// TestProgram is the vicinity-lab program of tests: the one that VICINITY_LAB names, or bin/vicinity-lab.
func TestProgram() (string, error) {
	if program := os.Getenv("VICINITY_LAB"); program != "" {
		return filepath.Abs(program)
	}
	return built.Program("vicinity-lab")
}
