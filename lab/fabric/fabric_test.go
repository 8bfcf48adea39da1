package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// needRoot skips a test where network namespaces cannot be made.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
}

// labName is a name that no other test and no user has at the same time.
func labName(t *testing.T, suffix string) string {
	t.Helper()
	return fmt.Sprintf("test%d%s", os.Getpid(), suffix)
}

// killedUp is set for a copy of the tests that makes networks until it is killed.
const killedUp = "VICINITY_TEST_UP"

func TestMain(m *testing.M) {
	for name := os.Getenv(killedUp); name != ""; {
		s := shape.Default()
		s.Name = name
		if _, err := fabric.Up(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// up brings a network up for the time of a test. Nothing of it may stay, and the
// network of the host must be as before.
func up(t *testing.T, s shape.Shape) *fabric.Fabric {
	t.Helper()
	before := hostNetwork(t)
	f, err := fabric.Up(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
		if left, err := fabric.Namespaces(s.Name); err != nil || len(left) > 0 {
			t.Errorf("Namespaces(%q) after Down = %v, %v", s.Name, left, err)
		}
		if after := hostNetwork(t); after != before {
			t.Errorf("the network of the host has changed from\n%s\nto\n%s", before, after)
		}
	})
	return f
}

// hostNetwork describes the network namespace of the test: its links, routes and what
// decides on forwarding.
func hostNetwork(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, link.Name, link.Flags, addrs)
	}
	// What /proc/self says is of the main thread, which must not have moved either.
	for _, file := range []string{
		"/proc/self/net/route", "/proc/self/net/ipv6_route",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/rp_filter",
		"/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv6/conf/default/accept_dad",
	} {
		content, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s:\n%s\n", file, withoutCounters(string(content)))
	}
	return text.String()
}

// withoutCounters leaves out the counters of uses from a table of routes.
func withoutCounters(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 10 { // of IPv6
			fields = slices.Delete(fields, 6, 8)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return strings.Join(lines, "\n")
}

// pod is a pod with an echo server for TCP and UDP on port 7 of each address.
type pod struct {
	node, id, namespace string
	addrs               []netip.Addr
}

// addPod makes a pod with a number on a node.
func addPod(t *testing.T, f *fabric.Fabric, s shape.Shape, node string, number int) pod {
	t.Helper()
	n, ok := s.Node(node)
	if !ok {
		t.Fatalf("no node %q", node)
	}
	id := fmt.Sprintf("%x-%x", n.Index, number)
	p := pod{node: node, id: id, addrs: s.PodAddrs(n, number), namespace: shape.PodNamespace(s.Name, id)}
	path, err := f.AddPod(node, id, p.addrs)
	if err != nil {
		t.Fatal(err)
	}
	if want := shape.NamespacePath(p.namespace); path != want {
		t.Errorf("AddPod(%q, %q) = %q, want %q", node, id, path, want)
	}
	return p
}

// serve echoes in a namespace what comes to port 7 of an address.
func serve(t *testing.T, namespace string, addr netip.Addr) {
	t.Helper()
	at := netip.AddrPortFrom(addr, 7).String()
	listener, err := fabric.Listen(namespace, "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	var packets net.PacketConn
	err = fabric.InNamespace(namespace, func() (err error) {
		packets, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = listener.Close(), packets.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(buffer[:n], from)
		}
	}()
}

// The time that a connection has to succeed, and how long one that must not is watched.
const (
	patience   = 5 * time.Second
	impatience = 200 * time.Millisecond
)

// talk says something to an echo server and returns the address it spoke from, as the
// socket says.
func talk(t *testing.T, wait time.Duration, namespace, network string, to netip.Addr) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	conn, err := fabric.Dial(ctx, namespace, network, netip.AddrPortFrom(to, 7).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	const word = "hello"
	if _, err := io.WriteString(conn, word); err != nil {
		return err
	}
	answer := make([]byte, len(word))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != word {
		return fmt.Errorf("the answer is %q", answer)
	}
	return nil
}

func TestEverybodyReachesEverybody(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name, s.HA = labName(t, ""), true
	f := up(t, s)
	pods := map[string]pod{
		"pod":                   addPod(t, f, s, "zone-a-1", 1),
		"pod of the same node":  addPod(t, f, s, "zone-a-1", 2),
		"pod of another node":   addPod(t, f, s, "zone-a-2", 1),
		"pod of another zone":   addPod(t, f, s, "zone-c-2", 1),
		"pod with high address": addPod(t, f, s, "zone-b-1", shape.MaxPods+1),
	}
	type place struct {
		namespace string
		addrs     []netip.Addr
	}
	places := map[string]place{"the fabric": {shape.FabricNamespace(s.Name), s.FabricAddrs()}}
	for name, p := range pods {
		places[name] = place{p.namespace, p.addrs}
	}
	for _, name := range []string{"zone-a-1", "zone-c-2"} {
		node, _ := s.Node(name)
		places["node "+name] = place{shape.NodeNamespace(s.Name, node.Index), s.NodeAddrs(node)}
	}
	for _, p := range places {
		for _, addr := range p.addrs {
			serve(t, p.namespace, addr)
		}
	}
	for fromName, from := range places {
		for toName, to := range places {
			for _, addr := range to.addrs {
				for _, network := range []string{"tcp", "udp"} {
					if err := talk(t, patience, from.namespace, network, addr); err != nil {
						t.Errorf("from %s to %s %s: %v", fromName, toName, addr, err)
					}
				}
			}
		}
	}
}

func TestSpeaksFromOwnAddress(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	from, to := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-b-1", 1)
	for i, addr := range to.addrs {
		listener, err := fabric.Listen(to.namespace, "tcp", netip.AddrPortFrom(addr, 7).String())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := fabric.Dial(t.Context(), from.namespace, "tcp", netip.AddrPortFrom(addr, 7).String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		if got := netip.MustParseAddrPort(accepted.RemoteAddr().String()).Addr(); got != from.addrs[i] {
			t.Errorf("the pod is seen as %s, want %s", got, from.addrs[i])
		}
	}
}

func TestSingleStack(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name, s.SingleStack = labName(t, ""), true
	f := up(t, s)
	from, to := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-b-1", 1)
	if len(to.addrs) != 1 {
		t.Fatalf("the pod has the addresses %v, want one", to.addrs)
	}
	serve(t, to.namespace, to.addrs[0])
	if err := talk(t, patience, from.namespace, "tcp", to.addrs[0]); err != nil {
		t.Error(err)
	}
}

func TestTrafficIsCounted(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	a, b := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-b-1", 1)
	c, d := addPod(t, f, s, "zone-c-1", 1), addPod(t, f, s, "zone-c-2", 1)
	near := addPod(t, f, s, "zone-a-1", 2)
	for _, transfer := range []struct {
		from, to pod
		size     int64
	}{{a, b, 4 << 20}, {c, d, 2 << 20}, {a, near, 8 << 20}} {
		for _, addr := range transfer.to.addrs {
			send(t, transfer.from, transfer.to, addr, transfer.size)
		}
	}
	// A second look is a second program's.
	again, err := fabric.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	traffic, err := again.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	for pair, sent := range map[fabric.ZonePair]uint64{
		{From: "zone-a", To: "zone-b"}: 2 * 4 << 20,
		{From: "zone-c", To: "zone-c"}: 2 * 2 << 20,
	} {
		if got := traffic[pair].Bytes; got < sent || got > sent+sent/20 {
			t.Errorf("%v: %d bytes are counted, want %d and up to 5 %% more", pair, got, sent)
		}
		delete(traffic, pair)
	}
	// What is left are acknowledgements.
	back := fabric.ZonePair{From: "zone-b", To: "zone-a"}
	if got := traffic[back]; got.Packets == 0 || got.Bytes > 1<<20 {
		t.Errorf("%v: %+v is counted, want a few packets", back, got)
	}
	delete(traffic, back)
	if len(traffic) > 0 {
		t.Errorf("there is traffic that nobody sent: %v", traffic)
	}
}

// send sends bytes from a pod to an address of another.
func send(t *testing.T, from, to pod, addr netip.Addr, size int64) {
	t.Helper()
	listener, err := fabric.Listen(to.namespace, "tcp", netip.AddrPortFrom(addr, 9).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	received := make(chan int64)
	go func() {
		defer close(received)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		received <- n
	}()
	conn, err := fabric.Dial(t.Context(), from.namespace, "tcp", netip.AddrPortFrom(addr, 9).String())
	if err != nil {
		t.Fatal(err)
	}
	// A source that is not a file is copied through memory.
	if _, err := io.CopyN(conn, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-received; got != size {
		t.Fatalf("%d bytes arrived, want %d", got, size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestCutNode(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	inside, neighbour := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-a-1", 2)
	outside, other := addPod(t, f, s, "zone-a-2", 1), addPod(t, f, s, "zone-b-1", 1)
	servePods(t, inside, neighbour, outside, other)
	control := pod{namespace: shape.FabricNamespace(s.Name), addrs: s.FabricAddrs()}
	servePods(t, control)

	for range 2 {
		// What is asked for twice is done once.
		for range 2 {
			if err := f.CutNode("zone-a-1"); err != nil {
				t.Fatal(err)
			}
		}
		reaches(t, true, inside, neighbour)
		reaches(t, true, outside, other, control)
		reaches(t, false, inside, outside, other, control)
		reaches(t, false, outside, inside)
		reaches(t, false, control, inside)
		if cuts, err := f.Cuts(); err != nil || !slices.Equal(cuts.Nodes, []string{"zone-a-1"}) || len(cuts.Zones) > 0 {
			t.Errorf("Cuts() = %+v, %v", cuts, err)
		}
		for range 2 {
			if err := f.HealNode("zone-a-1"); err != nil {
				t.Fatal(err)
			}
		}
		reaches(t, true, inside, neighbour, outside, other, control)
		reaches(t, true, control, inside)
	}
}

// onlyZone checks that zone-a is all that is cut off.
func onlyZone(t *testing.T, f *fabric.Fabric, reach fabric.Reach) {
	t.Helper()
	if cuts, err := f.Cuts(); err != nil || len(cuts.Nodes) > 0 || !maps.Equal(cuts.Zones, map[string]fabric.Reach{"zone-a": reach}) {
		t.Errorf("Cuts() = %+v, %v, want zone-a with reach %d", cuts, err, reach)
	}
}

func TestCutZone(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	inside, also := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-a-2", 1)
	outside, other := addPod(t, f, s, "zone-b-1", 1), addPod(t, f, s, "zone-c-1", 1)
	control := pod{namespace: shape.FabricNamespace(s.Name), addrs: s.FabricAddrs()}
	servePods(t, inside, also, outside, other, control)

	if err := f.CutZone("zone-a", fabric.OtherZones); err != nil {
		t.Fatal(err)
	}
	reaches(t, true, inside, also, control)
	reaches(t, true, outside, other, control)
	reaches(t, false, inside, outside, other)
	reaches(t, false, outside, inside, also)
	onlyZone(t, f, fabric.OtherZones)

	if err := f.CutZone("zone-a", fabric.Everything); err != nil {
		t.Fatal(err)
	}
	reaches(t, true, inside, also)
	reaches(t, false, inside, control, outside)
	reaches(t, false, control, also)
	onlyZone(t, f, fabric.Everything)

	// A node that comes while its zone is cut is cut, too.
	with, node, err := s.With(shape.Node{Zone: "zone-a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AddNode(node); err != nil {
		t.Fatal(err)
	}
	late := addPod(t, f, with, node.Name, 1)
	servePods(t, late)
	reaches(t, true, inside, late)
	reaches(t, false, outside, late)

	if err := f.HealZone("zone-a"); err != nil {
		t.Fatal(err)
	}
	reaches(t, true, outside, inside, also, late)
	reaches(t, true, inside, control, outside, late)
}

func servePods(t *testing.T, pods ...pod) {
	t.Helper()
	for _, p := range pods {
		for _, addr := range p.addrs {
			serve(t, p.namespace, addr)
		}
	}
}

// reaches checks that a pod reaches others, or that it does not.
func reaches(t *testing.T, want bool, from pod, to ...pod) {
	t.Helper()
	wait := impatience
	if want {
		wait = patience
	}
	for _, p := range to {
		for _, addr := range p.addrs {
			err := talk(t, wait, from.namespace, "tcp", addr)
			if want && err != nil {
				t.Errorf("from %s to %s %s: %v", from.namespace, p.namespace, addr, err)
			}
			if !want && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("from %s to %s %s: %v, want no answer", from.namespace, p.namespace, addr, err)
			}
		}
	}
}

func TestNodesComeAndGo(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	old := addPod(t, f, s, "zone-a-1", 1)
	gone := addPod(t, f, s, "zone-b-1", 1)

	with, node, err := s.With(shape.Node{Zone: "zone-d", Region: "far"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AddNode(node); err != nil {
		t.Fatal(err)
	}
	added := addPod(t, f, with, node.Name, 1)
	servePods(t, old, added)
	reaches(t, true, old, added)
	reaches(t, true, added, old)
	traffic, err := f.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	if pair := (fabric.ZonePair{From: "zone-a", To: "zone-d"}); traffic[pair].Bytes == 0 {
		t.Errorf("%v is not counted: %v", pair, traffic)
	}

	if err := f.RemoveNode("zone-b-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.RemovePod("zone-b-1", gone.id); err != nil {
		t.Errorf("removing a pod of a node that has gone: %v", err)
	}
	if _, err := f.AddPod("zone-b-1", "x", nil); err == nil || !strings.Contains(err.Error(), `node "zone-b-1"`) {
		t.Errorf("adding a pod to a node that has gone: %v", err)
	}
	reaches(t, true, old, added)
}

// A pod can get the address of a pod that was just removed.
func TestAddressesAreUsedAgain(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	client := addPod(t, f, s, "zone-b-1", 1)
	node, _ := s.Node("zone-a-1")
	addrs := s.PodAddrs(node, 7)
	for i := range 3 {
		id := fmt.Sprintf("3c9e2a0e-7d5b-4f1a-9a51-%012d", i)
		if _, err := f.AddPod(node.Name, id, addrs); err != nil {
			t.Fatal(err)
		}
		p := pod{node: node.Name, id: id, namespace: shape.PodNamespace(s.Name, id), addrs: addrs}
		servePods(t, p)
		reaches(t, true, client, p)
		for range 2 {
			if err := f.RemovePod(node.Name, id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDownAfterHalf(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	// A command that is killed leaves files on which nothing was mounted.
	stale := shape.NamespacePath(shape.PodNamespace(s.Name, "stale"))
	if err := os.WriteFile(stale, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	// A namespace mounted twice is one that was adopted by an older program.
	node := shape.NamespacePath(shape.NodeNamespace(s.Name, 1))
	if err := unix.Mount(node, node, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := fabric.Down(s.Name); err != nil {
			t.Fatal(err)
		}
		if left, err := fabric.Namespaces(s.Name); err != nil || len(left) > 0 {
			t.Fatalf("Namespaces() = %v, %v", left, err)
		}
	}
	if _, err := fabric.Open(s); err == nil || !strings.Contains(err.Error(), "bring the lab up again") {
		t.Errorf("Open() after Down: %v", err)
	}
	// Up over the remains of another Up is a new network.
	if _, err := fabric.Up(s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if f, err := fabric.Up(s); err != nil {
		t.Fatal(err)
	} else if _, err := f.AddPod("zone-a-1", "stale", nil); err != nil {
		t.Error(err)
	}
	if err := f.RemovePod("zone-a-1", "stale"); err != nil {
		t.Error(err)
	}
}

func TestUpAfterKill(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	t.Cleanup(func() {
		if err := fabric.Down(s.Name); err != nil {
			t.Error(err)
		}
	})
	for kill := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killedUp+"="+s.Name)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		// Each is killed with another number of namespaces made.
		deadline := time.Now().Add(time.Minute)
		for made := -1; made != kill; {
			namespaces, err := fabric.Namespaces(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if made = len(namespaces); time.Now().After(deadline) {
				t.Fatalf("there are never %d namespaces", kill)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the copy ended by itself")
		}
		f, err := fabric.Up(s)
		if err != nil {
			t.Fatal(err)
		}
		a, b := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-c-2", 1)
		servePods(t, b)
		reaches(t, true, a, b)
		if err := f.Down(); err != nil {
			t.Fatal(err)
		}
		if left, err := fabric.Namespaces(s.Name); err != nil || len(left) > 0 {
			t.Fatalf("Namespaces() = %v, %v", left, err)
		}
	}
}

func TestLabsSideBySide(t *testing.T) {
	needRoot(t)
	// The name of one begins as the namespaces of the other do.
	first, second := shape.Default(), shape.Default()
	first.Name, second.Name = labName(t, ""), labName(t, "-p1")
	f, g := up(t, first), up(t, second)
	a, b := addPod(t, f, first, "zone-a-1", 1), addPod(t, f, first, "zone-b-1", 1)
	c, d := addPod(t, g, second, "zone-a-1", 1), addPod(t, g, second, "zone-b-1", 1)
	servePods(t, a, b, c, d)
	reaches(t, true, a, b)
	reaches(t, true, c, d)
	if err := f.Down(); err != nil {
		t.Fatal(err)
	}
	reaches(t, true, c, d)
	reaches(t, true, d, c)
}

func TestLatencyWithoutNetem(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name, s.CrossZoneLatency = labName(t, ""), shape.Duration{Duration: 20 * time.Millisecond}
	f := up(t, s)
	a, near, far := addPod(t, f, s, "zone-a-1", 1), addPod(t, f, s, "zone-a-2", 1), addPod(t, f, s, "zone-b-1", 1)
	servePods(t, a, near, far)
	reaches(t, true, a, near, far)
	if notes := f.Notes(); len(notes) > 0 {
		if len(notes) != 1 || !strings.Contains(notes[0], "netem") {
			t.Errorf("Notes() = %q, want one about netem", notes)
		}
		return
	}
	// The kernel has netem: a round trip takes at least as long as was asked for.
	for _, addr := range far.addrs {
		start := time.Now()
		if err := talk(t, patience, a.namespace, "tcp", addr); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < s.CrossZoneLatency.Duration {
			t.Errorf("a connection to another zone took %s, want at least %s", took, s.CrossZoneLatency)
		}
	}
}

func TestDialErrors(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	p := addPod(t, f, s, "zone-a-1", 1)
	for _, test := range []struct {
		namespace, network, address, want string
	}{
		{p.namespace, "tcp", p.addrs[0].String() + ":9", "connection refused"},
		{p.namespace, "tcp", "example.com:80", "write an IP address and a port"},
		{p.namespace, "unix", "10.0.0.1:80", "write tcp or udp"},
		{"vl-none-fabric", "tcp", "10.0.0.1:80", "bring the lab up again"},
	} {
		conn, err := fabric.Dial(t.Context(), test.namespace, test.network, test.address)
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Dial(%q, %q, %q): %v, want %q", test.namespace, test.network, test.address, err, test.want)
		}
	}
}

func TestCheck(t *testing.T) {
	needRoot(t)
	before := hostNetwork(t)
	if err := fabric.Check(); err != nil {
		t.Error(err)
	}
	if after := hostNetwork(t); after != before {
		t.Errorf("the network of the host has changed from\n%s\nto\n%s", before, after)
	}
}

// BenchmarkUp makes the network of 6 nodes and 12 pods.
func BenchmarkUp(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: network namespaces")
	}
	s := shape.Default()
	s.Name = fmt.Sprintf("bench%d", os.Getpid())
	b.Cleanup(func() {
		if err := fabric.Down(s.Name); err != nil {
			b.Error(err)
		}
	})
	for b.Loop() {
		f, err := fabric.Up(s)
		if err != nil {
			b.Fatal(err)
		}
		for i, node := range s.Nodes() {
			for number := 1; number <= 2; number++ {
				if _, err := f.AddPod(node.Name, fmt.Sprintf("%d-%d", i, number), s.PodAddrs(node, number)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// A process in a namespace of the lab is found even without the marker.
func TestProcessesInNamespaces(t *testing.T) {
	needRoot(t)
	s := shape.Default()
	s.Name = labName(t, "")
	f := up(t, s)
	p := addPod(t, f, s, "zone-a-1", 1)
	d, err := state.Create(t.TempDir(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	started, err := process.Start(d, process.Spec{
		Name: "pod", Args: []string{"/usr/bin/env", "-i", "/bin/sh", "-c", "cat /proc/net/fib_trie; echo seen; exec sleep 1000"},
		Namespace: p.namespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	namespaces, err := fabric.Namespaces(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.StopAll(d, namespaces...); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		log, err := os.ReadFile(d.Log("pod"))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the process does not see its pod's address %s: %v", p.addrs[0], err)
		}
		// By the last line cat, which is a process too, has ended.
		if strings.Contains(string(log), p.addrs[0].String()) && strings.HasSuffix(string(log), "seen\n") {
			break
		}
	}
	if found, err := process.Strays(d, namespaces...); err != nil || !slices.Equal(found, []int{started.PID}) {
		t.Errorf("Strays() = %v, %v, want [%d]", found, err, started.PID)
	}
	if err := process.StopAll(d, namespaces...); err != nil {
		t.Fatal(err)
	}
	if started.Alive() {
		t.Error("the process is alive after StopAll")
	}
}
