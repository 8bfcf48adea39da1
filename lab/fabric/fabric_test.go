package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// deadline limits the wait for what must happen.
const deadline = 5 * time.Second

// testShape returns the default shape with a name that no user's lab has.
func testShape() shape.Shape {
	s := shape.Default()
	s.Name = fmt.Sprintf("test%d", os.Getpid())
	return s
}

// up brings a network up for a test. Down removes all of it and leaves the host's network unchanged.
func up(t *testing.T, s shape.Shape) *fabric.Fabric {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	before := hostNetwork(t)
	f, err := fabric.Up(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fabric.Down(s.Name); err != nil {
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

// hostNetwork describes the network namespace of the test: links, routes and forwarding settings.
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
	// /proc/self shows the main thread, which must not have changed its namespace either.
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

// withoutCounters removes the reference and use counts from a table of routes.
func withoutCounters(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 10 { // a route of IPv6
			fields = slices.Delete(fields, 6, 8)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return strings.Join(lines, "\n")
}

// place is a pod, a node or the fabric, with an echo server on port 7 of each address.
type place struct {
	name, zone, namespace string
	addrs                 []netip.Addr
}

// addPod makes a pod with a number on a node.
func addPod(t *testing.T, f *fabric.Fabric, s shape.Shape, name string, number int) place {
	t.Helper()
	node, _ := s.Node(name)
	id := fmt.Sprint("pod-", number)
	p := place{id, node.Zone, shape.PodNamespace(s.Name, id), s.PodAddrs(node, number)}
	if err := f.AddPod(name, id, p.addrs); err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(t *testing.T, p place) {
	t.Helper()
	for _, addr := range p.addrs {
		listener, err := fabric.Listen(p.namespace, "tcp", netip.AddrPortFrom(addr, 7).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
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
	}
}

// talk sends a text to an echo server.
func talk(t *testing.T, wait time.Duration, from place, to netip.Addr) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	conn, err := fabric.Dial(ctx, from.namespace, "tcp", netip.AddrPortFrom(to, 7).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := []byte("hello")
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := conn.Write(answer); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, answer)
	return err
}

// All nodes and pods reach each other over both families, except across the border of a zone that is
// cut off. Nothing stays after Down.
func TestNodesAndPodsReachEachOther(t *testing.T) {
	s := testShape()
	f := up(t, s)
	places := []place{{"the fabric", "", shape.FabricNamespace(s.Name), s.FabricAddrs()}}
	for i, name := range []string{"zone-a-1", "zone-a-1", "zone-a-2", "zone-c-2"} {
		places = append(places, addPod(t, f, s, name, i+1))
	}
	for _, p := range places {
		serve(t, p)
	}
	check := func(cut string) {
		for _, from := range places {
			for _, to := range places {
				reaches, wait := from.zone == to.zone || from.zone != cut && to.zone != cut, deadline
				if !reaches {
					wait = 200 * time.Millisecond
				}
				for _, addr := range to.addrs {
					err := talk(t, wait, from, addr)
					if reaches && err != nil || !reaches && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%q is cut off: from %s to %s %s: %v", cut, from.name, to.name, addr, err)
					}
				}
			}
		}
	}
	const nothing = "none"
	check(nothing)
	if err := f.CutZone("zone-c"); err != nil {
		t.Fatal(err)
	}
	check("zone-c")
	if err := f.HealZone("zone-c"); err != nil {
		t.Fatal(err)
	}
	check(nothing)
}

// Labs with the same addresses do not disturb each other, even if the name of one begins like the
// namespaces of the other.
func TestLabsSideBySide(t *testing.T) {
	first, second := testShape(), testShape()
	second.Name += "-p1"
	f, g := up(t, first), up(t, second)
	a, b := addPod(t, f, first, "zone-a-1", 1), addPod(t, f, first, "zone-b-1", 2)
	c, d := addPod(t, g, second, "zone-a-1", 1), addPod(t, g, second, "zone-b-1", 2)
	serve(t, b)
	serve(t, d)
	reaches := func(from, to place) {
		t.Helper()
		for _, addr := range to.addrs {
			if err := talk(t, deadline, from, addr); err != nil {
				t.Errorf("from %s to %s %s: %v", from.namespace, to.namespace, addr, err)
			}
		}
	}
	reaches(a, b)
	reaches(c, d)
	if err := fabric.Down(first.Name); err != nil {
		t.Fatal(err)
	}
	reaches(c, d)
}

// Processes in a namespace of the lab are found and killed even without the lab's marker. No other
// process is found.
func TestProcessesInNamespaces(t *testing.T) {
	s := testShape()
	p := addPod(t, up(t, s), s, "zone-a-1", 1)
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
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		log, err := os.ReadFile(d.Log("pod"))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the process does not see its pod's address %s: %v", p.addrs[0], err)
		}
		// After the last line, cat has ended, which is a process of the namespace, too.
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

// Packets from and to an impaired zone are lost or late, also to the control plane. Inside the zone all
// is well, and after the repair everywhere.
func TestImpairedZone(t *testing.T) {
	s := testShape()
	f := up(t, s)
	places := []place{{"the fabric", "", shape.FabricNamespace(s.Name), s.FabricAddrs()}}
	for i, name := range []string{"zone-a-1", "zone-c-1", "zone-c-2"} {
		places = append(places, addPod(t, f, s, name, i+1))
	}
	for _, p := range places {
		serve(t, p)
	}
	const impaired, delay = "zone-c", 25 * time.Millisecond
	// check talks between all places. Across the border of the zone, that must take a time and end with an error.
	check := func(wait, least time.Duration, want error) {
		t.Helper()
		for _, from := range places {
			for _, to := range places {
				wait, least, want := wait, least, want
				if (from.zone == impaired) == (to.zone == impaired) {
					wait, least, want = deadline, 0, nil
				}
				for _, addr := range to.addrs {
					begun := time.Now()
					err := talk(t, wait, from, addr)
					if took := time.Since(begun); !errors.Is(err, want) || took < least {
						t.Errorf("from %s to %s %s: %v after %s, want %v after %s", from.name, to.name, addr, err, took, want, least)
					}
				}
			}
		}
	}
	impair := func(i shape.Impairment) {
		t.Helper()
		if err := f.SetImpairment(impaired, i); err != nil {
			t.Fatal(err)
		}
	}
	impair(shape.Impairment{Loss: 100})
	check(200*time.Millisecond, 200*time.Millisecond, context.DeadlineExceeded)
	impair(shape.Impairment{Delay: shape.Duration{Duration: delay}})
	check(deadline, 0, nil) // no process delays
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- fabric.InNamespace(shape.FabricNamespace(s.Name), func() error {
			return fabric.DelayPackets(ctx, fabric.ZoneQueue(impaired), delay)
		})
	}()
	for begun := time.Now(); f.CheckQueue(impaired) != nil; {
		if time.Since(begun) > deadline {
			t.Fatal(f.CheckQueue(impaired))
		}
	}
	// Both the opening of the connection and the answer take a packet in each direction.
	check(deadline, 4*delay, nil)
	impair(shape.Impairment{})
	check(deadline, 0, nil)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
