package ruleset

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// cluster are ServicePorts with ten endpoints each.
func cluster(family Family, services int) []ServicePort {
	front, target := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.128.0.1")
	if family == IPv6 {
		front, target = netip.MustParseAddr("fd96::1"), netip.MustParseAddr("fd01::1")
	}
	ports := make([]ServicePort, services)
	for i := range ports {
		ports[i] = ServicePort{
			Name:   fmt.Sprintf("namespace-%d/service-%d:http", i%100, i),
			Rank:   fmt.Sprintf("2030-01-01T00:00:00Z namespace-%d/service-%d", i%100, i),
			Fronts: []FrontEnd{{Front: Front{Address: front, Protocol: TCP, Port: 80}, ClusterIP: true}},
		}
		front = front.Next()
		for range 10 {
			ports[i].Cluster = append(ports[i].Cluster, netip.AddrPortFrom(target, 8080))
			target = target.Next()
		}
	}
	return ports
}

func filledTable(b testing.TB, family Family, services int) (*Table, []ServicePort) {
	ports := cluster(family, services)
	table := NewTable(Config{Family: family})
	for _, sp := range ports {
		if err := table.Set(sp); err != nil {
			b.Fatal(err)
		}
	}
	table.Commit(time.Unix(0, 0))
	return table, ports
}

func BenchmarkBuild(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			ports := cluster(IPv4, services)
			b.ReportAllocs()
			for b.Loop() {
				table := NewTable(Config{Family: IPv4})
				for _, sp := range ports {
					if err := table.Set(sp); err != nil {
						b.Fatal(err)
					}
				}
				table.Commit(time.Unix(0, 0))
			}
		})
	}
}

// BenchmarkMemory tells what a table takes when it is at rest.
func BenchmarkMemory(b *testing.B) {
	for _, family := range []Family{IPv4, IPv6} {
		b.Run(fmt.Sprintf("family=%s/services=10000", family), func(b *testing.B) {
			var before, after runtime.MemStats
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				table, ports := filledTable(b, family, 10_000)
				for i := range ports {
					ports[i].Cluster = nil
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(table)
				runtime.KeepAlive(ports)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB/table")
		})
	}
}

// BenchmarkChange tells what it costs that an endpoint of one of the Services is another,
// and that one goes and comes.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		table, ports := filledTable(b, IPv4, services)
		b.Run(fmt.Sprintf("replace/services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				sp := ports[n%len(ports)]
				target := &sp.Cluster[n%10]
				*target = netip.AddrPortFrom(target.Addr(), target.Port()+1)
				if err := table.Set(sp); err != nil {
					b.Fatal(err)
				}
				if table.Commit(time.Unix(0, 0)).Transaction.Empty() {
					b.Fatal("nothing changes")
				}
				n++
			}
		})
		b.Run(fmt.Sprintf("go-and-come/services=%d", services), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				flap(b, table, ports[n%len(ports)], n)
				n++
			}
		})
	}
}

func BenchmarkAdopt(b *testing.B) {
	table, _ := filledTable(b, IPv4, 10_000)
	l := table.Want()
	b.Run("services=10000", func(b *testing.B) {
		for b.Loop() {
			table.Adopt(l)
			if c := table.Commit(time.Unix(0, 0)); !c.Transaction.Empty() {
				b.Fatalf("it changes: %v", describe(c.Transaction))
			}
		}
	})
}

func BenchmarkHolds(b *testing.B) {
	table, _ := filledTable(b, IPv4, 10_000)
	l := table.Want()
	b.Run("services=10000", func(b *testing.B) {
		for b.Loop() {
			if !table.Holds(l) {
				b.Fatal("it does not")
			}
		}
	})
}

// flap takes an endpoint from a ServicePort, and puts it back.
func flap(b testing.TB, table *Table, sp ServicePort, at int) {
	all := sp.Cluster
	for i, endpoints := range [][]netip.AddrPort{all[1:], all} {
		sp.Cluster = endpoints
		if err := table.Set(sp); err != nil {
			b.Fatal(err)
		}
		if table.Commit(time.Unix(int64(2*at+i), 0)).Transaction.Empty() {
			b.Fatal("nothing changes")
		}
	}
}

// BenchmarkChangeRatio tells how many times as long changes take with ten times as many
// Services.
func BenchmarkChangeRatio(b *testing.B) {
	few, fewPorts := filledTable(b, IPv4, 1000)
	many, manyPorts := filledTable(b, IPv4, 10_000)
	var tookFew, tookMany time.Duration
	n := 0
	for b.Loop() {
		begin := time.Now()
		flap(b, few, fewPorts[n%len(fewPorts)], n)
		middle := time.Now()
		flap(b, many, manyPorts[n%len(manyPorts)], n)
		tookFew += middle.Sub(begin)
		tookMany += time.Since(middle)
		n++
	}
	b.ReportMetric(float64(tookMany)/float64(tookFew), "ratio")
}

func TestChangesCostTheSameHoweverManyServicesThereAre(t *testing.T) {
	var allocations [2]float64
	for i, services := range []int{100, 2000} {
		table, ports := filledTable(t, IPv4, services)
		n := 0
		allocations[i] = testing.AllocsPerRun(500, func() {
			flap(t, table, ports[n%len(ports)], n)
			n++
		})
	}
	if allocations[1] > 1.2*allocations[0] {
		t.Errorf("changes among 100 Services make %.0f allocations, among 2000 %.0f", allocations[0], allocations[1])
	}
}
