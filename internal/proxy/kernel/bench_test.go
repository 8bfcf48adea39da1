package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// numbered is the n-th address of a range.
func numbered(first string, n int) netip.Addr {
	bytes := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(n))
	return netip.AddrFrom4(bytes)
}

// servicePort is a port of a Service with as many endpoints.
func servicePort(n, endpoints int) ruleset.ServicePort {
	p := ruleset.ServicePort{
		Name: fmt.Sprintf("default/service-%d:http", n),
		Fronts: []ruleset.FrontEnd{{
			Front:     ruleset.Front{Address: numbered("10.96.0.0", n), Protocol: ruleset.TCP, Port: 80},
			ClusterIP: true,
		}},
	}
	for i := range endpoints {
		p.Cluster = append(p.Cluster, netip.AddrPortFrom(numbered("10.128.0.0", n*endpoints+i), 8080))
	}
	return p
}

// loaded is a table with so many Services of ten endpoints, not committed.
func loaded(b *testing.B, services int) *ruleset.Table {
	b.Helper()
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	for n := range services {
		if err := table.Set(servicePort(n, 10)); err != nil {
			b.Fatal(err)
		}
	}
	return table
}

func apply(tb testing.TB, c *kernel.Conn, t ruleset.Transaction) {
	tb.Helper()
	if err := c.Apply(tb.Context(), t); err != nil {
		tb.Fatal(err)
	}
}

var sizes = []int{1000, 10000}

// BenchmarkLoad is what it takes to have the kernel hold everything.
func BenchmarkLoad(b *testing.B) {
	for _, services := range sizes {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			c := newNamespace(b).open(b)
			t := loaded(b, services).Commit(time.Now()).Transaction
			for b.Loop() {
				apply(b, c, t)
			}
		})
	}
}

// BenchmarkRead is what it takes to read everything back.
func BenchmarkRead(b *testing.B) {
	for _, services := range sizes {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			c := newNamespace(b).open(b)
			apply(b, c, loaded(b, services).Commit(time.Now()).Transaction)
			for b.Loop() {
				if _, err := c.Read(ruleset.IPv4); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkShape is what it takes to read all but the elements back.
func BenchmarkShape(b *testing.B) {
	c := newNamespace(b).open(b)
	apply(b, c, loaded(b, 10000).Commit(time.Now()).Transaction)
	for b.Loop() {
		if _, err := c.Shape(ruleset.IPv4); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInterference is what it takes to learn that nobody has changed anything.
func BenchmarkInterference(b *testing.B) {
	c := newNamespace(b).open(b)
	for b.Loop() {
		interference(b, c)
	}
}

// BenchmarkReplaceEndpoint is what it takes to replace one endpoint of one Service, without
// notices of what others change, and with them.
func BenchmarkReplaceEndpoint(b *testing.B) {
	for _, services := range sizes {
		for _, notices := range []bool{false, true} {
			b.Run(fmt.Sprintf("services=%d,notices=%t", services, notices), func(b *testing.B) {
				replaceEndpoints(b, services, notices)
			})
		}
	}
}

func replaceEndpoints(b *testing.B, services int, notices bool) {
	c := newNamespace(b).open(b)
	if notices {
		interference(b, c)
	}
	table := loaded(b, services)
	now := time.Now()
	apply(b, c, table.Commit(now).Transaction)
	n := 0
	for b.Loop() {
		p := servicePort(n%services, 10)
		p.Cluster[n%10] = netip.AddrPortFrom(numbered("10.250.0.0", n%65536), 8080)
		if err := table.Set(p); err != nil {
			b.Fatal(err)
		}
		apply(b, c, table.Commit(now).Transaction)
		n++
	}
}

// BenchmarkChangeNumber is what it takes to give one Service one endpoint more, or one
// less, which changes what its fronts lead to.
func BenchmarkChangeNumber(b *testing.B) {
	for _, services := range sizes {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			c := newNamespace(b).open(b)
			table := loaded(b, services)
			now := time.Now()
			apply(b, c, table.Commit(now).Transaction)
			n := 0
			for b.Loop() {
				if err := table.Set(servicePort(0, 10+n%2)); err != nil {
					b.Fatal(err)
				}
				now = now.Add(time.Second)
				apply(b, c, table.Commit(now).Transaction)
				n++
			}
		})
	}
}

// BenchmarkForgetConnections is what it takes to look for the connections of one endpoint:
// the kernel looks at all that it tracks, or has room for.
func BenchmarkForgetConnections(b *testing.B) {
	n := newNamespace(b)
	tracker := n.track(b, kernel.TrackerOptions{})
	stale := []ruleset.Stale{{
		Front:  ruleset.Front{Address: numbered("10.96.0.0", 1), Protocol: ruleset.TCP, Port: 80},
		Target: netip.AddrPortFrom(numbered("10.250.0.0", 1), 8080),
	}}
	for b.Loop() {
		if _, err := tracker.Delete(b.Context(), stale); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory is what elements cost, of the kernel and of the program: one Service with
// many endpoints, one with many fronts, and many Services with few of both.
func BenchmarkMemory(b *testing.B) {
	for _, shape := range []struct {
		name                        string
		services, fronts, endpoints int
	}{
		{"one-large", 1, 1, 100_000},
		{"one-wide", 1, 20_000, 6},
		{"many-small", 50_000, 1, 10},
	} {
		b.Run(shape.name, func(b *testing.B) { measureMemory(b, shape.services, shape.fronts, shape.endpoints) })
	}
}

func measureMemory(b *testing.B, services, fronts, endpoints int) {
	var elements int
	var kernelBytes, heapBytes float64
	for b.Loop() {
		c := newNamespace(b).open(b)
		kernelBefore, heapBefore := kernelMemory(b), heapInUse()
		table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
		staged := make([]ruleset.ServicePort, services)
		for n := range services {
			staged[n] = servicePort(n, endpoints)
			for i := range fronts - 1 {
				more := staged[n].Fronts[0]
				more.Address, more.ClusterIP, more.Masquerade = numbered("198.18.0.0", i), false, true
				staged[n].Fronts = append(staged[n].Fronts, more)
			}
			if err := table.Set(staged[n]); err != nil {
				b.Fatal(err)
			}
		}
		elements = 0
		transaction := table.Commit(time.Now()).Transaction
		for i := range transaction.Changes {
			elements += max(1, len(transaction.Changes[i].Elements))
		}
		apply(b, c, transaction)
		transaction = ruleset.Transaction{}
		kernelBytes, heapBytes = kernelMemory(b)-kernelBefore, heapInUse()-heapBefore
		runtime.KeepAlive(staged)
		runtime.KeepAlive(table)
	}
	b.ReportMetric(float64(elements), "elements")
	b.ReportMetric(kernelBytes/float64(elements), "kernel-B/element")
	b.ReportMetric(heapBytes/float64(elements), "heap-B/element")
}

// heapInUse is how many bytes the program uses.
func heapInUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// kernelMemory is how many bytes the kernel of this machine uses for itself.
func kernelMemory(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "SUnreclaim" && name != "VmallocUsed" {
			continue
		}
		var kilobytes float64
		if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
			b.Fatal(err)
		}
		sum += kilobytes * 1024
	}
	return sum
}
