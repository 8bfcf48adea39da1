package accounting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/netlink"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// The addresses and the port of recorded connections.
var (
	front4, front6   = netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
	target4, target6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:2::1")
)

const frontPort = 80

// deadline is for what takes no time worth mentioning.
const deadline = 30 * time.Second

// resolve knows the fronts of recorded connections.
func resolve(front ruleset.Front, target netip.Addr) (Flow, bool) {
	switch {
	case front.Port != frontPort:
	case front.Address == front4 && target == target4:
		return Flow{Namespace: "shop", Service: "four", DestinationZone: "zone-b"}, true
	case front.Address == front6 && target == target6:
		return Flow{Namespace: "shop", Service: "six", DestinationZone: "zone-a"}, true
	}
	return Flow{}, false
}

// accountant returns an Accountant that knows the fronts of recorded connections.
func accountant(t testing.TB, o Options) *Accountant {
	t.Helper()
	if o.Resolve == nil {
		o.Resolve = resolve
	}
	if o.SourceZone == nil {
		o.SourceZone = func() string { return "zone-a" }
	}
	o.Interval = DefaultInterval
	return New(o)
}

// counted returns the rows of an Accountant.
func counted(a *Accountant) []row {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.book.rows()
}

// sum returns the totals of rows.
func sum(rows []row) (all totals) {
	for _, r := range rows {
		all.connections += r.connections
		all.moved.request += r.moved.request
		all.moved.reply += r.moved.reply
	}
	return all
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(deadline)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %s", what, deadline)
		}
	}
}

// journal keeps the lines of the log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, line)
	}, funcr.Options{})
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// fakeKernel is connection tracking in memory.
type fakeKernel struct {
	mu       sync.Mutex
	open     [][]byte // messages
	costs    time.Duration
	readFail error
	readings int
	bytes    bool
	ends     bool
	countErr error
	listened error
	// flowtable is one that does not count, flowtableErr why flowtables cannot be listed.
	flowtable    string
	flowtableErr error

	received chan received
	closed   chan struct{}
}

type received struct {
	read []byte
	err  error
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{bytes: true, ends: true, received: make(chan received), closed: make(chan struct{})}
}

func (k *fakeKernel) listen() (reports, error) { return k, k.listened }

func (k *fakeKernel) receive(into []byte) (int, error) {
	select {
	case r := <-k.received:
		return copy(into, r.read), r.err
	case <-k.closed:
		return 0, os.ErrClosed
	}
}

func (k *fakeKernel) close() error {
	close(k.closed)
	return nil
}

func (k *fakeKernel) read(_ context.Context, use func([]byte)) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readings++
	for _, message := range k.open {
		use(message[netlink.HeaderLength:])
	}
	return k.costs, k.readFail
}

func (k *fakeKernel) switches() (bytes, ends bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes, k.ends, nil
}

func (k *fakeKernel) countBytes() error { return k.countErr }

func (k *fakeKernel) uncounted() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flowtable, k.flowtableErr
}

func (k *fakeKernel) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func (k *fakeKernel) timesRead() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readings
}

// framed is a message with its header.
func framed(kind uint16, payload []byte) []byte {
	var read []byte
	read = binary.NativeEndian.AppendUint32(read, uint32(unix.SizeofNlMsghdr+len(payload)))
	read = binary.NativeEndian.AppendUint16(read, kind)
	return append(append(read, make([]byte, unix.SizeofNlMsghdr-len(read))...), payload...)
}

// running is an Accountant that runs on a fake kernel and clock.
type running struct {
	*Accountant
	kernel *fakeKernel
	clock  *clocktesting.FakeClock
	log    *journal
	done   chan error
	stop   context.CancelFunc
}

func run(t *testing.T, k *fakeKernel) *running {
	t.Helper()
	c, log := clocktesting.NewFakeClock(noon), &journal{}
	r := &running{Accountant: accountant(t, Options{Log: log.logger()}), kernel: k, clock: c, log: log, done: make(chan error, 1)}
	r.Accountant.kernel, r.Accountant.clock = k, c
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(stop)
	return r
}

// looks makes the Accountant read again, after a change.
func (r *running) looks(t *testing.T, change func()) {
	t.Helper()
	eventually(t, "it waits", r.clock.HasWaiters)
	before := r.kernel.timesRead()
	r.kernel.change(change)
	r.clock.Step(DefaultInterval)
	eventually(t, "it has read again", func() bool { return r.kernel.timesRead() == before+1 && r.clock.HasWaiters() })
}

// ended waits until Run has.
func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(deadline):
		t.Fatal("Run does not return")
		return nil
	}
}

func TestOpenConnectionsCountOnceAndBytesContinuously(t *testing.T) {
	k := newFakeKernel()
	r := run(t, k)
	open := [][]byte{recorded(t, openTCP6), recorded(t, openUDP4), recorded(t, untranslated)}
	want := []row{
		{name{"shop", "four"}, route{"zone-a", "zone-b"}, totals{1, traffic{1028, 1028}}},
		{name{"shop", "six"}, route{"zone-a", "zone-a"}, totals{1, traffic{1440, 1296}}},
	}
	for range 2 { // the second reading brings nothing new
		r.looks(t, func() { k.open = open })
		if got := counted(r.Accountant); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	ended := recorded(t, endedTCP6)
	at := strings.Index(string(ended), "\x05\xa0") + 1 // the bytes of the request
	ended[at]++
	k.received <- received{read: framed(netlink.TrackDelete, ended), err: errLost}
	want[1].moved.request++
	eventually(t, "the last byte counts", func() bool { return fmt.Sprint(counted(r.Accountant)) == fmt.Sprint(want) })

	r.stop()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
	if r.health.lost != 1 {
		t.Errorf("%d losses, want 1", r.health.lost)
	}
	if text := r.log.text(); text != "" {
		t.Errorf("logged %s", text)
	}
}

// Readings take at most a hundredth of a CPU.
func TestReadingsAreLimited(t *testing.T) {
	for _, test := range []struct {
		name         string
		costs, pause time.Duration
		err          error
	}{
		{"cheap ones", time.Millisecond, DefaultInterval, nil},
		{"costly ones", 300 * time.Millisecond, 30 * time.Second, nil},
		{"costly ones that fail", 300 * time.Millisecond, 30 * time.Second, errors.New("no memory")},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newFakeKernel()
			k.costs, k.readFail = test.costs, test.err
			r := run(t, k)
			for n := 1; n < 4; n++ {
				eventually(t, "it waits", func() bool { return k.timesRead() == n && r.clock.HasWaiters() })
				r.clock.Step(test.pause - 1)
				// In this order: it waits again only after it has read.
				if waits, got := r.clock.HasWaiters(), k.timesRead(); !waits || got != n {
					t.Fatalf("%d readings before %s are over, want %d", got, test.pause, n)
				}
				r.clock.Step(1)
			}
			eventually(t, "it waits", func() bool { return k.timesRead() == 4 && r.clock.HasWaiters() })
			r.mu.Lock()
			defer r.mu.Unlock()
			if want := 4 * test.costs; r.health.used != want {
				t.Errorf("readings took %s, want %s", r.health.used, want)
			}
		})
	}
}

// A problem is logged when it begins and when it ends.
func TestProblemsAreLoggedOnce(t *testing.T) {
	k := newFakeKernel()
	k.readFail, k.bytes, k.ends, k.countErr = errors.New("reading the tracked connections: no memory"), false, false, errors.New("read-only file system")
	r := run(t, k)
	r.looks(t, func() {})
	r.looks(t, func() { k.readFail, k.bytes = nil, true })
	r.looks(t, func() {})
	r.looks(t, func() { k.ends = true })
	r.looks(t, func() {})
	want := []string{
		`"level"=0 "msg"="accounting is incomplete" "reason"="bytes are not counted: read-only file system"`,
		`"level"=0 "msg"="accounting is incomplete" "reason"="reading the tracked connections: no memory"`,
		`"level"=0 "msg"="accounting is incomplete" "reason"="the kernel does not report ended connections, so short ones are missed; set the sysctl net.netfilter.nf_conntrack_events to 1 or 2"`,
		`"level"=0 "msg"="accounting is complete again"`,
		`"level"=0 "msg"="accounting is complete again"`,
	}
	if got := r.log.text(); got != strings.Join(want, "\n") {
		t.Errorf("logged\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if h := r.health; h.failed != 2 || h.done != 4 {
		t.Errorf("%d readings failed and %d did not, want 2 and 4", h.failed, h.done)
	}
}

// The accountant makes the kernel count bytes.
func TestBytesAreSwitchedOn(t *testing.T) {
	k := newFakeKernel()
	k.bytes = false
	r := run(t, k)
	eventually(t, "it has read", r.clock.HasWaiters)
	r.stop()
	if err := r.ended(t); err != nil {
		t.Fatal(err)
	}
	if text := r.log.text(); text != "" || !r.health.bytes {
		t.Errorf("logged %q, and bytes are counted: %t", text, r.health.bytes)
	}
}

func TestRunFails(t *testing.T) {
	t.Run("without a socket", func(t *testing.T) {
		k := newFakeKernel()
		k.listened = errors.New("making a netlink socket: operation not permitted")
		if err := run(t, k).ended(t); !errors.Is(err, k.listened) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("later without events, from the same counts", func(t *testing.T) {
		k := newFakeKernel()
		r := run(t, k)
		eventually(t, "it has read", func() bool { return k.timesRead() == 1 && r.clock.HasWaiters() })
		broken := errors.New("reading reports of connection tracking: bad file descriptor")
		k.received <- received{err: broken}
		if err := r.ended(t); !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
		k.closed = make(chan struct{})
		k.change(func() { k.open = [][]byte{recorded(t, openTCP6)} })
		ctx, stop := context.WithCancel(t.Context())
		go func() { r.done <- r.Run(ctx) }()
		eventually(t, "the connection opened meanwhile counts", func() bool { return len(counted(r.Accountant)) == 1 })
		stop()
		if err := r.ended(t); err != nil {
			t.Error(err)
		}
	})
}
