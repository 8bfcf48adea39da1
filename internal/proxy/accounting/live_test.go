package accounting

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/netlink"
)

// live is an Accountant that is told what happens in a namespace.
type live struct {
	*Accountant
	*namespace
	log *journal
}

// watch has what happens in a namespace counted, from now on.
func (n *namespace) watch(o Options) *live {
	n.t.Helper()
	log := &journal{}
	o.Log = log.logger()
	l := &live{accountant(n.t, o), n, log}
	l.kernel = n.tracking()
	listening, err := l.kernel.listen(l.buffer)
	if err != nil {
		n.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.follow(listening) }()
	n.t.Cleanup(func() {
		if err := errors.Join(listening.close(), <-done); err != nil {
			n.t.Error(err)
		}
	})
	l.look(context.Background())
	return l
}

// settle ends all connections, looks until so many are counted and none is open, and
// says what was counted.
func (l *live) settle(connections uint64) []row {
	l.t.Helper()
	l.flush()
	eventually(l.t, "that all ends are known", func() bool {
		l.look(context.Background())
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.ledger.open) == 0 && sum(l.ledger.book.rows()).connections >= connections
	})
	return counted(l.Accountant)
}

// byService are the totals of rows.
func byService(rows []row) map[string]totals {
	all := map[string]totals{}
	for _, r := range rows {
		t := all[r.service]
		all[r.service] = sum([]row{r, {totals: t}})
	}
	return all
}

// kinds are what the live tests try all of.
var kinds = []struct {
	name, network string
	front, target netip.Addr
	service       string
}{
	{"TCP over IPv4", "tcp", front4, target4, "four"},
	{"TCP over IPv6", "tcp", front6, target6, "six"},
	{"UDP over IPv4", "udp", front4, target4, "four"},
	{"UDP over IPv6", "udp", front6, target6, "six"},
}

// What is counted is exactly what the kernel has counted, read in another way: of
// connections that are seen open, several times, and of those that are not.
func TestCountsAreExact(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			n := newNamespace(t)
			n.set(switchBytes, "1")
			n.serve(kind.target)
			l := n.watch(Options{})
			for i := range 3 {
				conn := n.dial(kind.network, kind.front, frontPort)
				n.echo(conn, 1000+i)
				direct := n.dial(kind.network, kind.target, targetPort)
				n.echo(direct, 1000)
				if i > 0 {
					l.look(t.Context())
					n.echo(conn, 5000)
					l.look(t.Context())
					n.echo(conn, 1)
				}
			}
			if got := byService(counted(l.Accountant))[kind.service].connections; got != 3 {
				t.Errorf("%d connections are counted as long as they are open, want 3", got)
			}
			want := n.quiet(kind.front)
			if got := l.settle(3); len(got) != 1 || got[0].service != kind.service || got[0].totals != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
			if want.connections != 3 || want.moved.request < 3*1000+2*5001 {
				t.Errorf("the kernel has %+v, which cannot be", want)
			}
		})
	}
}

// delayed is how long the kernel waits at most before it acknowledges what was received.
const delayed = 200 * time.Millisecond

// quiet is what the kernel has counted of connections to a front, once no packet is
// under way any more.
func (n *namespace) quiet(front netip.Addr) (all totals) {
	n.t.Helper()
	changed := time.Now()
	eventually(n.t, "that no packet is under way", func() bool {
		before := all
		all = totals{}
		for _, flow := range n.tracked(front) {
			all.connections++
			all.moved.request += flow.Forward.Bytes
			all.moved.reply += flow.Reverse.Bytes
		}
		if all != before {
			changed = time.Now()
		}
		return time.Since(changed) > delayed
	})
	return all
}

// A packet of UDP has an IP header and eight bytes of its own before what is sent.
func TestBytesAreThoseOfPackets(t *testing.T) {
	n := newNamespace(t)
	n.set(switchBytes, "1")
	n.serve(target4)
	n.serve(target6)
	l := n.watch(Options{})
	n.echo(n.dial("udp", front4, frontPort), 1000)
	n.echo(n.dial("udp", front6, frontPort), 1000)
	got := byService(l.settle(2))
	if want := (totals{1, traffic{1028, 1028}}); got["four"] != want {
		t.Errorf("over IPv4 %+v, want %+v", got["four"], want)
	}
	if want := (totals{1, traffic{1048, 1048}}); got["six"] != want {
		t.Errorf("over IPv6 %+v, want %+v", got["six"], want)
	}
}

func TestWithoutBytesConnectionsCount(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			n := newNamespace(t)
			n.set(switchBytes, "0")
			n.serve(kind.target)
			l := n.watch(Options{})
			for range 3 {
				n.echo(n.dial(kind.network, kind.front, frontPort), 1000)
			}
			l.look(t.Context())
			if got, want := byService(l.settle(3)), (totals{connections: 3}); len(got) != 1 || got[kind.service] != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
			if text := l.log.text(); strings.Count(text, "the kernel does not count bytes") != 1 {
				t.Errorf("logged %q, want it said once", text)
			}
		})
	}
}

// Bytes are counted of connections that are opened once the kernel does.
func TestBytesAreSwitchedOn(t *testing.T) {
	n := newNamespace(t)
	n.set(switchBytes, "0")
	n.serve(target4)
	before := n.dial("udp", front4, frontPort)
	n.echo(before, 1000)
	l := n.watch(Options{CountBytes: true})
	n.echo(before, 1000)
	n.echo(n.dial("udp", front4, frontPort), 1000)
	l.flush()
	want := totals{1, traffic{1028, 1028}}
	eventually(t, "that what was opened since counts with its bytes", func() bool { return sum(counted(l.Accountant)) == want })
	if text := l.log.text(); text != "" {
		t.Errorf("logged %s", text)
	}
	n.must(func() error {
		if on, err := isOn(DefaultSwitches, switchBytes); err != nil || !on {
			t.Errorf("the kernel counts bytes: %t, %v", on, err)
		}
		return nil
	})
}

// Where /proc/sys cannot be written that is said, with what to do about it.
func TestBytesCannotBeSwitchedOn(t *testing.T) {
	n := newNamespace(t)
	n.set(switchBytes, "0")
	n.must(func() error {
		// A mount of this thread's own.
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if err := unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
		err := CountBytes(DefaultSwitches)
		if !errors.Is(err, unix.EROFS) || !strings.HasSuffix(err.Error(), "set it on the node, or run where /proc/sys can be written, as in a privileged container") {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

func TestSwitches(t *testing.T) {
	folder := t.TempDir()
	k := conntrack{folder}
	if _, _, err := k.switches(); !errors.Is(err, errNotLoaded) {
		t.Errorf("without switches: %v", err)
	}
	if err := k.countBytes(); !errors.Is(err, errNotLoaded) {
		t.Errorf("without a switch: %v", err)
	}
	if err := os.Mkdir(filepath.Join(folder, "netfilter"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		bytes, ends         string
		wantBytes, wantEnds bool
	}{
		{"0\n", "0\n", false, false}, {"1\n", "0\n", true, false}, {"0\n", "1\n", false, true}, {"0\n", "2\n", false, true},
	} {
		for name, text := range map[string]string{switchBytes: test.bytes, switchEnds: test.ends} {
			if err := os.WriteFile(switchFile(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if bytes, ends, err := k.switches(); err != nil || bytes != test.wantBytes || ends != test.wantEnds {
			t.Errorf("%+v: %t, %t, %v", test, bytes, ends, err)
		}
	}
	if err := k.countBytes(); err != nil {
		t.Error(err)
	}
	if bytes, _, err := k.switches(); err != nil || !bytes {
		t.Errorf("bytes are not counted once that is switched on: %v", err)
	}
}

// Connections come and go while all are read, and each counts once.
func TestNoneIsCountedTwice(t *testing.T) {
	n := newNamespace(t)
	l := n.watch(Options{Buffer: 64 << 20})
	const rounds, each = 20, 200
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			l.look(ctx)
		}
	})
	for range rounds {
		n.many(each)
		n.flush()
	}
	stop()
	reading.Wait()
	if got, want := sum(l.settle(rounds*each)).connections, uint64(rounds*each); got != want {
		t.Errorf("%d connections are counted, want %d", got, want)
	}
	if l.health.lost != 0 {
		t.Errorf("%d times reports were lost", l.health.lost)
	}
}

// The kernel may not report the ends of connections, as it does not by default of those that
// were opened when nothing listened. They are forgotten all the same.
func TestWhatIsNotReportedIsForgotten(t *testing.T) {
	n := newNamespace(t)
	n.set(switchEnds, "0") // the default depends on whether anything listens, in any namespace
	n.many(10)
	c := clocktesting.NewFakeClock(noon)
	l := n.watch(Options{Clock: c})
	remembered := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.ledger.open)
	}
	if got := remembered(); got != 10 {
		t.Fatalf("%d connections are remembered, want 10", got)
	}
	l.flush()
	for range 3 {
		c.Step(clearEvery)
		l.look(t.Context())
	}
	if got := remembered(); got != 0 {
		t.Errorf("%d connections are remembered", got)
	}
	if got := counted(l.Accountant); len(got) != 0 {
		t.Errorf("counted %+v", got)
	}
}

// What does not fit into the buffer is lost, but not that it was lost; what was seen
// open counts all the same.
func TestLossesAreCounted(t *testing.T) {
	n := newNamespace(t)
	n.set(switchBytes, "1")
	c := clocktesting.NewFakeClock(noon)
	a := accountant(t, Options{Clock: c})
	a.kernel = n.tracking()
	listening, err := a.kernel.listen(4 << 10)
	if err != nil {
		t.Fatal(err)
	}
	a.look(t.Context())
	n.many(500)
	a.look(t.Context())
	n.flush() // nobody listens
	done := make(chan error, 1)
	go func() { done <- a.follow(listening) }()
	eventually(t, "that losses are known", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.health.lost > 0
	})
	// What is reported after it was forgotten would count twice.
	if err := errors.Join(listening.close(), <-done); err != nil {
		t.Error(err)
	}
	for range 3 {
		c.Step(clearEvery)
		a.look(t.Context())
	}
	// The packets are of the IP header and that of UDP only.
	if got, want := sum(counted(a)), (totals{500, traffic{500 * 28, 0}}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	a.mu.Lock()
	if len(a.ledger.open) != 0 {
		t.Errorf("%d connections are remembered", len(a.ledger.open))
	}
	a.mu.Unlock()
}

// Only connections with a translated destination are reported: the filter is the
// kernel's.
func TestReportsAreFiltered(t *testing.T) {
	n := newNamespace(t)
	n.serve(target4)
	listening, err := n.tracking().listen(DefaultBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listening.close() }()
	for range 10 {
		n.echo(n.dial("udp", target4, targetPort), 10)
	}
	n.flush()
	n.echo(n.dial("udp", front4, frontPort), 10)
	n.flush()
	into := make([]byte, netlink.ReceiveBuffer)
	count, err := listening.receive(into)
	if err != nil {
		t.Fatal(err)
	}
	m, rest, ok := netlink.NextMessage(into[:count])
	if !ok || len(rest) != 0 || m.Kind != netlink.TrackDelete {
		t.Fatalf("the report is %x", into[:count])
	}
	if c, ok := newReader().connection(m.Content); !ok || c.front.Address != front4 {
		t.Errorf("the first report is of %+v, %t", c, ok)
	}
}

// messagesOf is how many messages there are in what was read.
func messagesOf(read []byte) int {
	n := 0
	for {
		_, rest, ok := netlink.NextMessage(read)
		if !ok {
			return n
		}
		n, read = n+1, rest
	}
}

// What ends at once is read at once, and what does not fit in is read next.
func TestReportsAreReadTogether(t *testing.T) {
	const ended = 100
	n := newNamespace(t)
	listening, err := n.tracking().listen(DefaultBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listening.close() }()
	n.many(ended)
	n.flush()
	some := make([]byte, 2*longestReport)
	count, err := listening.receive(some)
	first := messagesOf(some[:count])
	if err != nil || count < longestReport || first < 2 || first >= ended {
		t.Fatalf("%d reports in %d bytes: %v", first, count, err)
	}
	all := make([]byte, netlink.ReceiveBuffer)
	if count, err = listening.receive(all); err != nil || messagesOf(all[:count]) != ended-first {
		t.Errorf("then %d reports, want %d: %v", messagesOf(all[:count]), ended-first, err)
	}
}

// A buffer that is smaller than asked for has less room while reports gather.
func TestSmallBuffersAreReadSooner(t *testing.T) {
	for given, want := range map[int]time.Duration{
		2 * DefaultBuffer: gather, 4 * DefaultBuffer: gather, DefaultBuffer: gather / 2, 2 * 212_992: gather * 212_992 / DefaultBuffer, 0: 0,
	} {
		if got := gatheredIn(given); got != want {
			t.Errorf("with %d bytes reports gather for %s, want %s", given, got, want)
		}
	}
	n := newNamespace(t)
	listening, err := n.tracking().listen(DefaultBuffer)
	if err != nil {
		t.Fatal(err)
	}
	if got := listening.(*ends).gather; got != gather {
		t.Errorf("with all that is asked for reports gather for %s, want %s", got, gather)
	}
	// Whoever reads learns that it is closed, wherever in a reading that happens.
	if err := listening.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := listening.(*ends).receiveMore(make([]byte, netlink.ReceiveBuffer), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after it was closed: %v, want %v", err, os.ErrClosed)
	}
}

// Other namespaces are nobody's business here.
func TestNamespacesAreApart(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	l := n.watch(Options{})
	other.many(10)
	l.look(t.Context())
	other.flush()
	n.many(1)
	if got := sum(l.settle(1)).connections; got != 1 {
		t.Errorf("%d connections are counted, want 1", got)
	}
}

// Run is all of it together, and ends when it is told to.
func TestRun(t *testing.T) {
	n := newNamespace(t)
	n.set(switchBytes, "1")
	n.serve(target4)
	a := accountant(t, Options{})
	a.kernel = n.tracking()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	eventually(t, "that it has looked", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.health.done > 0
	})
	n.echo(n.dial("udp", front4, frontPort), 1000)
	n.flush()
	want := totals{1, traffic{1028, 1028}}
	eventually(t, "that it counts", func() bool { return sum(counted(a)) == want })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A reading that is cut short is none.
func TestReadingIsCutShort(t *testing.T) {
	n := newNamespace(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := n.tracking().read(ctx, func([]byte) { t.Error("something was read") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
