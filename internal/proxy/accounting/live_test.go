package accounting

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	listening, err := l.kernel.listen()
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

// Only connections with a translated destination are reported: the filter is the
// kernel's.
func TestReportsAreFiltered(t *testing.T) {
	n := newNamespace(t)
	n.serve(target4)
	listening, err := n.tracking().listen()
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
