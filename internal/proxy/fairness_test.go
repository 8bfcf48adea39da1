package proxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// watchedKernel tells when something of an address was done.
type watchedKernel struct {
	*nftables.Conn
	address string
	done    chan time.Time
	// longest is how long a transaction took at most.
	longest time.Duration
}

func (k *watchedKernel) Apply(ctx context.Context, t ruleset.Transaction) error {
	began := time.Now()
	err := k.Conn.Apply(ctx, t)
	k.longest = max(k.longest, time.Since(began))
	if err == nil && touches(t, k.address) {
		select {
		case k.done <- time.Now():
		default:
		}
	}
	return err
}

// BenchmarkQuietService is how long a change of a Service takes until the kernel has it, alone
// and beside one that changes a thousand times a second, or as often as the metric others/s
// says: of many endpoints, or as large as a Service may be with the memory that the chart gives.
func BenchmarkQuietService(b *testing.B) {
	const perSecond = 1000
	large := aService("flapper", "10.96.0.1")
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("10.2.%d.%d", i/250, i%250+1))
	}
	wide := withExternal(large, 2000)
	wide.Spec.Ports = nil
	var ports []v1alpha1.GroupPort
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		wide.Spec.Ports = append(wide.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(1000 + i), Protocol: corev1.ProtocolTCP})
		ports = append(ports, v1alpha1.GroupPort{Name: name, Port: int32(1000 + i), Protocol: corev1.ProtocolTCP})
	}
	few := aGroup("flapper", "flapper-1", many[:6]...)
	other := aGroup("flapper", "flapper-1", many[6:12]...)
	few.Spec.Ports, other.Spec.Ports = ports, ports
	for _, test := range []struct {
		name    string
		service *corev1.Service
		groups  [2]*v1alpha1.EndpointGroup
	}{
		{"alone", nil, [2]*v1alpha1.EndpointGroup{}},
		{"beside=1000-endpoints", large, [2]*v1alpha1.EndpointGroup{aGroup("flapper", "flapper-1", many...), aGroup("flapper", "flapper-1", many[1:]...)}},
		{"beside=one-at-its-bound", wide, [2]*v1alpha1.EndpointGroup{few, other}},
	} {
		b.Run(test.name, func(b *testing.B) {
			k := &watchedKernel{address: "10.96.0.2", done: make(chan time.Time, 1)}
			namespacetest.New(b).Must(b, func() (err error) {
				k.Conn, err = nftables.Open()
				return err
			})
			defer k.Close()
			w := &world{programmer: liveProgrammer(k)}
			w.bounds = newBounds(view.BoundsWithin(1<<30/10*9, view.Bounds{}))
			w.put(aService("quiet", "10.96.0.2"), aGroup("quiet", "quiet-1", "10.1.1.1"))
			w.catalogue.Fill(func() { w.catalogue.SetNode(aNode("a")) })
			w.settleIn()
			ctx, stop := context.WithCancel(b.Context())
			var running sync.WaitGroup
			running.Go(func() { w.programmer.run(ctx) })
			programmed := func() time.Time {
				select {
				case at := <-k.done:
					return at
				case <-time.After(time.Minute):
					b.Fatal("a change of the quiet Service is not programmed")
					return time.Time{}
				}
			}
			programmed()
			changes, changing := 0, time.Now()
			if test.service != nil {
				running.Go(func() {
					w.put(test.service.DeepCopy())
					tick := time.NewTicker(time.Second / perSecond)
					defer tick.Stop()
					for n := 0; ctx.Err() == nil; n++ {
						group := *test.groups[n%2]
						w.put(&group)
						changes++
						<-tick.C
					}
				})
			}
			var took []time.Duration
			n := 0
			for b.Loop() {
				n++
				time.Sleep(time.Duration(20+n*7%80) * time.Millisecond) // so that it comes at any time
				began := time.Now()
				w.put(aGroup("quiet", "quiet-1", fmt.Sprintf("10.1.%d.%d", n/250%250, n%250+1)))
				took = append(took, programmed().Sub(began))
			}
			stop()
			running.Wait()
			slices.Sort(took)
			if test.service != nil {
				b.ReportMetric(float64(changes)/time.Since(changing).Seconds(), "others/s")
			}
			b.ReportMetric(float64(k.longest.Microseconds())/1000, "longest-write-ms")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
		})
	}
}
