package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// What is to be set of the kernel is set as flags say, and what cannot be ends nothing.
func TestSettingsOfTheKernel(t *testing.T) {
	// What is tried of the kernel is tried in a network of this thread's own, which ends with the
	// test. Without the right to that nothing is tried.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	const bytes, established, udp = "nf_conntrack_acct", "nf_conntrack_tcp_timeout_established", "nf_conntrack_udp_timeout"
	for _, test := range []struct {
		flags []string
		want  map[string]string
	}{
		{nil, map[string]string{bytes: "0", established: "432000", udp: "30"}},
		{[]string{"--conntrack-accounting"}, map[string]string{bytes: "1", established: "432000", udp: "30"}},
		{[]string{"--all-services"}, map[string]string{bytes: "0", established: "86400", udp: "30"}},
		{[]string{"--conntrack-udp-timeout=2m", "--conntrack-tcp-timeout-established=1h"}, map[string]string{bytes: "0", established: "3600", udp: "120"}},
	} {
		folder := t.TempDir()
		if err := os.Mkdir(filepath.Join(folder, "netfilter"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{bytes: "0", established: "432000", udp: "30"} {
			if err := os.WriteFile(filepath.Join(folder, "netfilter", name), []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := execute(t, append(test.flags, "--init-only", "--log-level=error", "--sysctl-folder="+folder)...); err != nil {
			t.Errorf("%q: %v", test.flags, err)
		}
		for name, want := range test.want {
			if got, err := os.ReadFile(filepath.Join(folder, "netfilter", name)); err != nil || string(got) != want {
				t.Errorf("%q: %s is %q, want %q: %v", test.flags, name, got, want, err)
			}
		}
	}
	missing := &command{switches: t.TempDir()}
	missing.conntrackAccounting, missing.conntrack.UDP = true, 1e9
	missing.prepare(t.Context(), logr.Discard())
}
