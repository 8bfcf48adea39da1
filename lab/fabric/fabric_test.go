package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// place is a pod, a node or the fabric, with an echo server on port 7 of each address.
type place struct {
	name, zone, namespace string
	addrs                 []netip.Addr
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

// talk says something to an echo server.
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

// Everybody reaches everybody, by both families, but across the border of a zone that is cut off. Nothing stays.
func TestEverybodyReachesEverybody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	s := shape.Default()
	s.Name = fmt.Sprintf("test%d", os.Getpid())
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
	})
	places := []place{{"the fabric", "", shape.FabricNamespace(s.Name), s.FabricAddrs()}}
	for i, name := range []string{"zone-a-1", "zone-a-1", "zone-a-2", "zone-c-2"} {
		node, _ := s.Node(name)
		id := fmt.Sprint("pod-", i)
		pod := place{id, node.Zone, shape.PodNamespace(s.Name, id), s.PodAddrs(node, i+1)}
		if _, err := f.AddPod(name, id, pod.addrs); err != nil {
			t.Fatal(err)
		}
		places = append(places, pod)
	}
	for _, p := range places {
		serve(t, p)
	}
	check := func(cut string) {
		for _, from := range places {
			for _, to := range places {
				reaches, wait := from.zone == to.zone || from.zone != cut && to.zone != cut, 5*time.Second
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
	if err := f.CutZone("zone-c", fabric.Everything); err != nil {
		t.Fatal(err)
	}
	check("zone-c")
	if err := f.HealZone("zone-c"); err != nil {
		t.Fatal(err)
	}
	check(nothing)
}
