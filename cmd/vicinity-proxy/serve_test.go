package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// fakeKernel lacks a feature if it has an error.
type fakeKernel struct{ err error }

func (k fakeKernel) CheckSupport(context.Context, ruleset.Family) error { return k.err }

// The proxy runs without IPv6 only if the kernel has none. A kernel with IPv6 that lacks a module is an error.
func TestLackOfIPv6(t *testing.T) {
	missing := errors.New("its module nft_fib_ipv6 may be missing")
	for _, test := range []struct {
		name            string
		has             bool
		hasErr, support error
		lacks           bool
		want            string
	}{
		{name: "it has all", has: true},
		{name: "it has no IPv6", lacks: true, support: missing},
		{name: "a module is missing", has: true, support: missing, want: missing.Error() + "; to do without IPv6, start the kernel with ipv6.disable=1"},
		{name: "it is not known", hasErr: errors.New("too many open files"), want: "too many open files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lacks, err := lacksIPv6(t.Context(), func() (bool, error) { return test.has, test.hasErr }, fakeKernel{test.support})
			if lacks != test.lacks || (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%t, %v; want %t, %q", lacks, err, test.lacks, test.want)
			}
		})
	}
}

// The kernel's settings follow the flags. A failure does not end the program.
func TestSettingsOfTheKernel(t *testing.T) {
	// The test changes settings in a network namespace of its own thread, which ends with the test.
	// Without the right to create one, it changes nothing.
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
