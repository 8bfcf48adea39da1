package kernel_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// front is a front end for TCP without source ranges.
func (a addresses) front(n int, port uint16) ruleset.FrontEnd {
	return ruleset.FrontEnd{Front: ruleset.Front{Address: a.service(n), Protocol: ruleset.TCP, Port: port}, ClusterIP: true}
}

// all are all endpoints that listen.
func (a addresses) all(ns ...int) []netip.AddrPort {
	var all []netip.AddrPort
	for _, n := range ns {
		all = append(all, a.endpoint(n))
	}
	return all
}

// stage stages ServicePorts and applies them to the kernel.
func stage(t testing.TB, c *kernel.Conn, table *ruleset.Table, all ...ruleset.ServicePort) ruleset.Commit {
	t.Helper()
	for _, p := range all {
		table.Set(p)
	}
	return commit(t, c, table, time.Now())
}

// inWorlds runs a test with either family.
func inWorlds(t *testing.T, f func(*testing.T, *world, *ruleset.Table)) {
	for _, a := range worlds {
		t.Run(fmt.Sprint("family ", a.family), func(t *testing.T) {
			w := newWorld(t, a)
			w.serve(t)
			f(t, w, ruleset.NewTable(a.config()))
		})
	}
}

// to returns the address of a front.
func to(f ruleset.FrontEnd) netip.AddrPort { return netip.AddrPortFrom(f.Address, f.Port) }

// From the transaction that removes an endpoint on, its clients are led to another one and stay there, even before they
// are forgotten.
func TestClientsOfRemovedEndpoints(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, table *ruleset.Table) {
		front := w.front(1, 80)
		p := ruleset.ServicePort{Name: "a/b:", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3, 4, 5, 6), Affinity: time.Hour}
		stage(t, w.conn, table, p)
		answers := func() netip.AddrPort {
			t.Helper()
			s, err := w.client.connect(w.stranger, to(front), answerTimeout)
			if err != nil {
				t.Fatal(err)
			}
			return s.endpoint
		}
		for len(p.Cluster) > 1 {
			gone := answers()
			p.Cluster = slices.DeleteFunc(slices.Clone(p.Cluster), func(a netip.AddrPort) bool { return a == gone })
			stage(t, w.conn, table, p)
			first := answers()
			if first == gone {
				t.Fatalf("%s answered, which is no longer an endpoint", gone)
			}
			for range 5 {
				if now := answers(); now != first {
					t.Fatalf("%s answered, and %s before", now, first)
				}
			}
		}
		// Nothing is left to forget, so that the rules are as they were.
		at := time.Now()
		table.Forgotten(affinityMap(t, w), at.Add(time.Hour))
		commit(t, w.conn, table, at)
		wantTable(t, w.conn, w.family, table)
	})
}

// affinityMap is the name of the only map that packets add to.
func affinityMap(t testing.TB, w *world) string {
	t.Helper()
	if all := affinityMaps(t, w); len(all) > 0 {
		return all[0]
	}
	t.Fatal("there is no map of clients")
	return ""
}

// affinityMaps are the names of all maps that packets add to.
func affinityMaps(t testing.TB, w *world) []string {
	t.Helper()
	shape, err := w.conn.Shape(w.family)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, set := range shape.Sets {
		if strings.HasPrefix(set.Name, "affinity-") {
			all = append(all, set.Name)
		}
	}
	return all
}

// waitFor waits for a condition.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	look, late := time.NewTicker(time.Millisecond), time.After(answerTimeout)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("not in %s: %s", answerTimeout, what)
		}
	}
}
