package coverage

import (
	"fmt"
	"testing"
)

// BenchmarkStateOf reads the state of a budget of 420 pods in a cluster of 5,000 nodes, as
// each group of decisions does.
func BenchmarkStateOf(b *testing.B) {
	w := in()
	for i := range 5000 {
		w.node(fmt.Sprint("node-", i), map[string]string{zone: fmt.Sprint("zone-", i%3), "pool": "web"})
	}
	d := w.deployment(420)
	set := w.replicaSet("web-1", 420, d)
	for i := range 420 {
		w.pod(fmt.Sprint("pod-", i), fmt.Sprint("node-", i*7%5000), of(set), selecting("pool", "web"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if s := StateOf(w.World); len(s.Pods) != 420 || len(s.Domains) != 3 {
			b.Fatal(len(s.Pods), s.Domains)
		}
	}
}
