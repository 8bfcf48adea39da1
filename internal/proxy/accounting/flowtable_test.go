package accounting

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// flowtableMessage is the kernel's answer about a flowtable, without headers: it has the table, the name, a handle, the
// number of rules that use it, the flags, and the hook.
func flowtableMessage(flags uint32) []byte {
	var m netlink.Messages
	m.Name(1, "calico")
	m.Name(2, "offload")
	m.Number64(5, 7)
	m.Number32(4, 1)
	m.Number32(7, flags)
	hook := m.Nest(3)
	m.Number32(1, unix.NF_NETDEV_INGRESS)
	m.Number32(2, 0)
	m.EndNest(hook)
	return m.Bytes
}

func TestUncountedFlowtables(t *testing.T) {
	for _, test := range []struct {
		name, want string
		message    []byte
	}{
		{"without counter", "flowtable offload of table calico does not count", flowtableMessage(0)},
		{"with counter", "", flowtableMessage(2)},
		{"in hardware without counter", "flowtable offload of table calico does not count", flowtableMessage(1)},
		{"in hardware with counter", "flowtable offload of table calico is offloaded to hardware", flowtableMessage(3)},
		{"of a kernel before flags", "flowtable offload of table calico does not count", flowtableMessage(0)[:44]},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := uncountedFlowtable(test.message); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestKernelsWithoutFlowtables(t *testing.T) {
	for number, want := range map[unix.Errno]bool{unix.EOPNOTSUPP: true, unix.EINVAL: true, unix.ENOENT: true, unix.EPERM: false, unix.ENOMEM: false} {
		if got := knowsNone(&netlink.Failure{Errno: number}); got != want {
			t.Errorf("%v: no flowtables: %t, want %t", number, got, want)
		}
	}
}

// The kernel knows the request, and lists a flowtable of nft as this package reads it.
func TestFlowtablesOfTheKernel(t *testing.T) {
	namespace := namespacetest.New(t)
	find := func() (found string) {
		namespace.Must(t, func() (err error) {
			if err := listFlowtables(func([]byte) {}); err != nil {
				return err
			}
			found, err = conntrack{}.uncounted()
			return err
		})
		return found
	}
	if found := find(); found != "" {
		t.Errorf("an empty namespace has %s", found)
	}
	err := namespace.Do(func() error {
		rules := "add table ip t; add flowtable ip t f { hook ingress priority 0; devices = { lo }; }"
		return exec.CommandContext(t.Context(), "nft", rules).Run()
	})
	if err != nil {
		t.Skipf("needs a kernel with flowtables (CONFIG_NF_FLOW_TABLE): nft: %v", err)
	}
	if found := find(); found != "flowtable f of table t does not count" {
		t.Errorf("got %q", found)
	}
}

// Each reading looks at flowtables again. Bytes that one has missed are missing from then on.
func TestBytesAreLowerBounds(t *testing.T) {
	k := newFakeKernel()
	r := run(t, k)
	for _, test := range []struct {
		flowtable string
		err       error
		want      bool
	}{
		{"", nil, false},
		{"", errors.New("no memory"), true},
		{"", nil, false},
		{"flowtable f of table t does not count", nil, true},
		{"", errors.New("no memory"), true},
		{"", nil, true},
	} {
		r.looks(t, func() { k.flowtable, k.flowtableErr = test.flowtable, test.err })
		r.mu.Lock()
		if got := r.health.isLowerBound; got != test.want {
			t.Errorf("%+v: bytes are lower bounds: %t", test, got)
		}
		r.mu.Unlock()
	}
	const logged = `"reason"="bytes are lower bounds until vicinity-proxy restarts, since flowtable f of table t does not count; see docs/coexistence.md#flowtables"`
	if text := r.log.text(); !strings.Contains(text, logged) {
		t.Errorf("logged %s, want %s", text, logged)
	}
}
