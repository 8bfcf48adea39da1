package kernel_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// track opens a tracker in the namespace.
func (n *namespace) track(t testing.TB, o kernel.TrackerOptions) *kernel.Tracker {
	t.Helper()
	var tracker *kernel.Tracker
	n.Must(t, func() (err error) {
		tracker, err = kernel.OpenTracker(o)
		return err
	})
	t.Cleanup(func() {
		if err := tracker.Close(); err != nil {
			t.Error(err)
		}
	})
	return tracker
}

// flow is a socket that keeps sending to a front from one port.
type flow struct {
	net.Conn
}

func newFlow(t testing.TB, w *world, f ruleset.FrontEnd) flow {
	t.Helper()
	conn, err := w.client.dial(net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.pod, 0))}, "udp", to(f))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return flow{conn}
}

// answer sends a packet and waits for an answer.
func (f flow) answer(timeout time.Duration) (seen, error) {
	if _, err := f.Write([]byte("?")); err != nil {
		return seen{}, err
	}
	return ask(f, timeout)
}

// wantAnswer wants an answer of an endpoint.
func (f flow) wantAnswer(t *testing.T, want netip.AddrPort) {
	t.Helper()
	if s, err := f.answer(answerTimeout); err != nil || s.endpoint != want {
		t.Fatalf("%s answered, %v, want %s", s.endpoint, err, want)
	}
}

// forget deletes the connections that a commit has made stale.
func forget(t *testing.T, tracker *kernel.Tracker, stale []ruleset.Stale, want int) {
	t.Helper()
	deleted, err := tracker.Delete(t.Context(), stale)
	if err != nil || deleted != want {
		t.Fatalf("Delete(%v) = %d, %v, want %d", stale, deleted, err, want)
	}
}

func TestFlowsMoveToOtherEndpoints(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		tracker := w.node.track(t, kernel.TrackerOptions{})
		front, other := w.front(1, 53), w.front(2, 53)
		front.Protocol, other.Protocol = ruleset.UDP, ruleset.UDP
		with := func(n int) ruleset.ServicePort {
			return ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(n)}
		}
		stage(t, w.conn, table, with(1), ruleset.ServicePort{Name: "a/c:", Fronts: []ruleset.FrontEnd{other}, Cluster: w.all(1)})
		moving, staying := newFlow(t, w, front), newFlow(t, w, other)
		moving.wantAnswer(t, w.endpoint(1))
		staying.wantAnswer(t, w.endpoint(1))

		done := stage(t, w.conn, table, with(2))
		// The flow stays with its endpoint until it is forgotten.
		moving.wantAnswer(t, w.endpoint(1))
		forget(t, tracker, done.Stale, 1)
		moving.wantAnswer(t, w.endpoint(2))
		staying.wantAnswer(t, w.endpoint(1))
		forget(t, tracker, done.Stale, 0)

		// Without endpoints it stays until there is another one.
		done = stage(t, w.conn, table, ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}})
		forget(t, tracker, done.Stale, 0)
		moving.wantAnswer(t, w.endpoint(2))
		done = stage(t, w.conn, table, with(3))
		forget(t, tracker, done.Stale, 1)
		moving.wantAnswer(t, w.endpoint(3))
		staying.wantAnswer(t, w.endpoint(1))

		// An endpoint that serves without new connections keeps its connections.
		serving := with(1)
		serving.Known.Serving = w.all(3)
		done = stage(t, w.conn, table, serving)
		forget(t, tracker, done.Stale, 0)
		moving.wantAnswer(t, w.endpoint(3))
	})
}

func TestTCPConnectionsAreDeletedOnRequest(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		with := func(n int) ruleset.ServicePort {
			return ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(n)}
		}
		stage(t, w.conn, table, with(1))
		if _, err := w.client.connect(w.pod, to(front), answerTimeout); err != nil {
			t.Fatal(err)
		}
		done := stage(t, w.conn, table, with(2))
		forget(t, w.node.track(t, kernel.TrackerOptions{}), done.Stale, 0)
		forget(t, w.node.track(t, kernel.TrackerOptions{TCP: true}), done.Stale, 1)
	})
}

// When an endpoint is drained, connections of the Service to it are reset, from pods and from outside. Those of another
// Service to the same endpoint go on.
func TestDrainedConnectionsAreReset(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		tracker := w.node.track(t, kernel.TrackerOptions{})
		echo := func(n int) netip.AddrPort {
			at := netip.AddrPortFrom(w.endpoint(n).Addr(), 7)
			listener := w.endpoints.listen(t, at)
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						_, _ = io.Copy(conn, conn)
						_ = conn.Close()
					}()
				}
			}()
			return at
		}
		drained, outside := echo(1), echo(2)
		inner, outer, other := w.front(1, 80), w.front(2, 80), w.front(3, 80)
		outer.ClusterIP, outer.Masquerade = false, true
		with := func(target netip.AddrPort, known ruleset.Known) ruleset.ServicePort {
			return ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{inner, outer}, Cluster: []netip.AddrPort{target}, Known: known}
		}
		stage(t, w.conn, table, with(drained, ruleset.Known{}),
			ruleset.ServicePort{Name: "a/c:", Fronts: []ruleset.FrontEnd{other}, Cluster: []netip.AddrPort{drained}})
		open := func(from netip.Addr, front ruleset.FrontEnd) net.Conn {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: answerTimeout}
			conn, err := w.client.dial(d, "tcp", to(front))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		echoes := func(conn net.Conn) error {
			if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
				return err
			}
			if _, err := conn.Write([]byte("?")); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, make([]byte, 1))
			return err
		}
		conns := []net.Conn{open(w.pod, inner), open(w.stranger, outer), open(w.pod, other)}
		wantAll := func() {
			t.Helper()
			for _, conn := range conns {
				if err := echoes(conn); err != nil {
					t.Fatal(err)
				}
			}
		}
		wantAll()
		known := ruleset.Known{Serving: []netip.AddrPort{drained}}
		forget(t, tracker, stage(t, w.conn, table, with(outside, known)).Stale, 0)
		wantAll()

		known.Drained = known.Serving
		done := stage(t, w.conn, table, with(outside, known))
		forget(t, tracker, done.Stale, 2)
		for _, conn := range conns[:2] {
			if err := echoes(conn); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("from %s: %v, want a reset", conn.LocalAddr(), err)
			}
		}
		forget(t, tracker, done.Stale, 0)
		conns = []net.Conn{open(w.pod, inner), open(w.stranger, outer), conns[2]}
		wantAll()
	})
}

// An unanswered connection is tracked for minutes. A new one from the same port would go the same way.
func TestUnansweredConnectionsAreDeleted(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		tracker := w.node.track(t, kernel.TrackerOptions{})
		front := w.front(1, 80)
		with := func(n int) ruleset.ServicePort {
			return ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(n)}
		}
		const port, briefly = 23456, 200 * time.Millisecond
		connect := func(timeout time.Duration) (seen, error) {
			conn, err := w.client.dial(net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.pod, port)), Timeout: timeout}, "tcp", to(front))
			if err != nil {
				return seen{}, err
			}
			defer conn.Close()
			return ask(conn, timeout)
		}
		// There is no such endpoint.
		stage(t, w.conn, table, with(listeners+1))
		if s, err := connect(briefly); err == nil {
			t.Fatalf("%s answered", s.endpoint)
		}
		done := stage(t, w.conn, table, with(1))
		if s, err := connect(briefly); err == nil {
			t.Fatalf("%s answered a connection that is not forgotten: this test shows nothing", s.endpoint)
		}
		// One from another port, which is answered, is left alone.
		if _, err := w.client.connect(w.pod, to(front), answerTimeout); err != nil {
			t.Fatal(err)
		}
		forget(t, tracker, done.Stale, 1)
		if s, err := connect(answerTimeout); err != nil || s.endpoint != w.endpoint(1) {
			t.Fatalf("%s answered, %v, want %s", s.endpoint, err, w.endpoint(1))
		}
	})
}

// When a proxy starts, tracked connections may lead to endpoints that were removed while no proxy ran. UDP flows
// continue only to allowed targets.
func TestFlowsAreReconciled(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		tracker := w.node.track(t, kernel.TrackerOptions{})
		front, other, foreign := w.front(1, 53), w.front(2, 53), w.front(3, 53)
		front.Protocol, other.Protocol, foreign.Protocol = ruleset.UDP, ruleset.UDP, ruleset.UDP
		with := func(name string, front ruleset.FrontEnd, n int) ruleset.ServicePort {
			return ruleset.ServicePort{Name: name, Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(n)}
		}
		stage(t, w.conn, table, with("a/b:", front, 1), with("a/c:", other, 1), with("a/d:", foreign, 1))
		moving, staying, unknown := newFlow(t, w, front), newFlow(t, w, other), newFlow(t, w, foreign)
		for _, f := range []flow{moving, staying, unknown} {
			f.wantAnswer(t, w.endpoint(1))
		}
		// A proxy is killed, and another starts after the endpoint is removed.
		again := ruleset.NewTable(w.config())
		listing, err := w.conn.Read(w.family)
		if err != nil {
			t.Fatal(err)
		}
		again.Adopt(listing)
		serving := with("a/c:", other, 2)
		serving.Known.Serving = w.all(1)
		stage(t, w.conn, again, with("a/b:", front, 2), serving)
		deleted, err := tracker.Reconcile(t.Context(), again.Live(ruleset.UDP))
		if err != nil || deleted != 1 {
			t.Fatalf("Reconcile(%v) = %d, %v, want 1", again.Live(ruleset.UDP), deleted, err)
		}
		moving.wantAnswer(t, w.endpoint(2))
		staying.wantAnswer(t, w.endpoint(1))
		unknown.wantAnswer(t, w.endpoint(1))
		if deleted, err = tracker.Reconcile(t.Context(), again.Live(ruleset.UDP)); err != nil || deleted != 0 {
			t.Errorf("a second time %d are forgotten, %v", deleted, err)
		}
	})
}
