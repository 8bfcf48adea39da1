package kernel_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestCheckSupportLeavesNothing(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	for _, family := range families {
		if err := c.CheckSupport(t.Context(), family); err != nil {
			t.Error(err)
		}
	}
	if list := n.nft(t, "list", "ruleset"); list != "" {
		t.Errorf("CheckSupport left\n%s", list)
	}
	if got := interference(t, c); got != ruleset.NoInterference {
		t.Errorf("CheckSupport is taken for a foreign change: %d", got)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	for _, test := range []struct {
		release string
		older   bool
	}{
		{"4.19.0-26-amd64", true},
		{"5.12.99", true},
		{"5.4.0-200-generic", true},
		{"2.6", true},
		{"5.13.0", false},
		{"5.13", false},
		{"5.100.1", false},
		{"6.1.0", false},
		{"10.0.0", false},
		{"a kernel of our own", false},
	} {
		if older := kernel.Older(test.release, kernel.MinimumKernel); older != test.older {
			t.Errorf("%s is older than %s: %t, want %t", test.release, kernel.MinimumKernel, older, test.older)
		}
	}
}

// What a kernel answers that lacks something says little by itself.
func TestMissing(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EPROTONOSUPPORT: "the kernel does not have netfilter's netlink, its module nfnetlink may be missing: opening: protocol not supported",
		unix.EINVAL:          "the kernel does not have nftables, its module nf_tables may be missing: opening: invalid argument",
		unix.EPERM:           "opening: operation not permitted",
	} {
		err := kernel.Missing(fmt.Errorf("opening: %w", errno))
		if err.Error() != want || !errors.Is(err, errno) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if err := kernel.Missing(nil); err != nil {
		t.Error(err)
	}
}

// What a kernel refuses of a trial is named with the module that it may lack, which differs
// by family, and with what to do.
func TestRefusedTrialsNameTheModule(t *testing.T) {
	modules := map[ruleset.Family][]string{
		ruleset.IPv4: {"nf_tables", "nft_fib_ipv4", "nft_ct", "nft_numgen or nft_chain_nat", "nft_nat or nft_chain_nat", "nft_masq or nft_chain_nat", "nft_reject_ipv4", "nft_dynset"},
		ruleset.IPv6: {"nf_tables", "nft_fib_ipv6", "nft_ct", "nft_numgen or nft_chain_nat", "nft_nat or nft_chain_nat", "nft_masq or nft_chain_nat", "nft_reject_ipv6", "nft_dynset"},
	}
	for family, want := range modules {
		trial := kernel.Trial(family)
		for i := range trial.Changes {
			if trial.Changes[i].Kind != ruleset.AddChain {
				continue
			}
			err := kernel.Unsupported(trial, fmt.Errorf("trying: %w", &kernel.Refusal{Change: i, Errno: unix.ENOENT}))
			if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "its module "+want[0]+" may be missing") || !strings.Contains(err.Error(), "load it on the node by modprobe") {
				t.Errorf("%d: %v, want the module %s and what to do", i, err, want[0])
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Errorf("nothing is tried of %q", want)
		}
		for _, test := range []struct {
			err  error
			want string
		}{
			{&kernel.Refusal{Change: 1, Errno: unix.EAFNOSUPPORT}, "the kernel's nftables is not as it must be"},
			{&kernel.Refusal{Change: -1, Errno: unix.ENOMEM}, "the kernel's nftables is not as it must be"},
			{&kernel.Refusal{Change: 2, Errno: unix.EPERM}, "the capability NET_ADMIN is missing"},
			{errors.New("no answer"), "no answer"},
		} {
			if err := kernel.Unsupported(trial, test.err); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v: %v, want %q", test.err, err, test.want)
			}
		}
		if err := kernel.Unsupported(trial, nil); err != nil {
			t.Error(err)
		}
	}
}

// A kernel has IPv6 unless it knows no such sockets. Whatever else keeps from opening one says
// nothing of it.
func TestIPv6IsToldBySockets(t *testing.T) {
	for errno, want := range map[unix.Errno]struct{ has, fails bool }{
		0: {has: true}, unix.EAFNOSUPPORT: {}, unix.EPERM: {fails: true}, unix.EMFILE: {fails: true}, unix.ENOENT: {fails: true},
	} {
		has, err := kernel.SocketTellsIPv6(func(_, kind, protocol int) (int, error) {
			if errno != 0 {
				return -1, errno
			}
			return unix.Socket(unix.AF_INET, kind, protocol)
		})
		if has != want.has || (err != nil) != want.fails {
			t.Errorf("%v: %t, %v", errno, has, err)
		}
	}
	_, err := os.Stat("/proc/net/if_inet6")
	if has, failed := kernel.HasIPv6(); failed != nil || has != (err == nil) {
		t.Errorf("this kernel has IPv6: %t, %v; its interfaces of IPv6: %v", has, failed, err)
	}
}

func TestFindings(t *testing.T) {
	settings := func(ipv4, ipv6, bridge string) fs.FS {
		return fstest.MapFS{
			"net/ipv4/ip_forward":                 {Data: []byte(ipv4 + "\n")},
			"net/ipv6/conf/all/forwarding":        {Data: []byte(ipv6 + "\n")},
			"net/bridge/bridge-nf-call-iptables":  {Data: []byte(bridge + "\n")},
			"net/bridge/bridge-nf-call-ip6tables": {Data: []byte(bridge + "\n")},
		}
	}
	for _, test := range []struct {
		name     string
		settings fs.FS
		family   ruleset.Family
		want     []string
	}{
		{"all is well", settings("1", "1", "1"), ruleset.IPv4, nil},
		{"no forwarding", settings("0", "1", "1"), ruleset.IPv4, []string{"net.ipv4.ip_forward is 0"}},
		{"no forwarding of the other", settings("1", "0", "1"), ruleset.IPv4, nil},
		{"bridges", settings("0", "0", "0"), ruleset.IPv6, []string{"net.ipv6.conf.all.forwarding is 0", "net.bridge.bridge-nf-call-ip6tables is 0"}},
		{"a kernel that has none of it", fstest.MapFS{}, ruleset.IPv6, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings, err := kernel.Findings(test.settings, test.family)
			if err != nil {
				t.Fatal(err)
			}
			if len(findings) != len(test.want) {
				t.Fatalf("Findings = %v, want %q", findings, test.want)
			}
			for i, want := range test.want {
				if text := findings[i].String(); !strings.HasPrefix(text, want+": ") || !strings.HasSuffix(text, "; set it to 1") {
					t.Errorf("finding %q, want %q, a consequence and what to set", text, want)
				}
			}
		})
	}
}
