package compile

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// largeService is a Service with so many ports and external IPs, which begin with a prefix of
// two octets.
func largeService(prefix string, addresses, ports int) *corev1.Service {
	return testService(ours, func(s *corev1.Service) {
		s.Spec.Ports = nil
		for i := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1), NodePort: int32(30000 + i), Protocol: corev1.ProtocolTCP})
		}
		for i := range addresses {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("%s.%d.%d", prefix, i/256, i%256))
		}
	})
}

// balancedService has its addresses by its load balancer.
func balancedService(prefix string, addresses, ports int) *corev1.Service {
	s := largeService(prefix, addresses, ports)
	for _, ip := range s.Spec.ExternalIPs {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	s.Spec.ExternalIPs = nil
	return s
}

// growth is how many times as much of a processor a large piece of work takes as a small one,
// each in the best of some runs, so that what else the machine does matters little.
func growth(t *testing.T, small, large func()) float64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano()
	}
	best := [2]int64{math.MaxInt64, math.MaxInt64}
	for range 15 {
		for i, do := range []func(){small, large} {
			began := used()
			do()
			best[i] = min(best[i], used()-began)
		}
	}
	return float64(best[1]) / float64(best[0])
}

// linear is what four times as much may take, with room for what a machine does besides: work
// that grows with the square takes 16 times as long.
const linear = 10

// The work of the book grows with the size of a Service: neither with the square of its
// addresses nor with addresses times ports.
func TestWorkOfTheBookGrowsWithTheSize(t *testing.T) {
	name := types.NamespacedName{Namespace: "tenant", Name: "x"}
	for kind, made := range map[string]func(string, int, int) *corev1.Service{"external IPs": largeService, "load balancer": balancedService} {
		t.Run(kind, func(t *testing.T) {
			work := func(addresses, ports int) func() {
				b, service := NewAddressBook(), made("198.18", addresses, ports)
				return func() {
					b.SetService(name, service)
					b.SetService(name, nil)
				}
			}
			if times := growth(t, work(250, 500), work(1000, 2000)); times > linear {
				t.Errorf("a Service that is 4 times as large takes %.1f times as long", times)
			}
			if times := growth(t, work(5000, 1000), work(20000, 1000)); times > 2 {
				t.Errorf("addresses that do not count take %.1f times as long if there are 4 times as many", times)
			}
		})
	}
}

// A Service that has not changed is not read again when its endpoints change.
func TestBookReadsAServiceOnce(t *testing.T) {
	b, service := NewAddressBook(), largeService("198.18", 500, 500)
	name := types.NamespacedName{Namespace: "tenant", Name: "x"}
	b.SetService(name, service)
	if n := testing.AllocsPerRun(10, func() { b.SetService(name, service) }); n > 0 {
		t.Errorf("the book makes %v objects for a Service that it has", n)
	}
	changed := service.DeepCopy()
	changed.Spec.ExternalIPs = changed.Spec.ExternalIPs[:1]
	b.SetService(name, changed)
	if n := len(b.claimants); n != 1 {
		t.Errorf("%d addresses are claimed after the change, want 1", n)
	}
}

// What the book keeps of a Service is bounded.
func TestBookKeepsWhatCounts(t *testing.T) {
	b := NewAddressBook()
	name := types.NamespacedName{Namespace: "tenant", Name: "x"}
	b.SetService(name, largeService("198.18", 20000, 1))
	if n := len(b.claimants); n != MaxClaims {
		t.Errorf("%d addresses are kept, want %d", n, MaxClaims)
	}
	b.SetService(name, balancedService("198.18", 20000, 1))
	if n := len(b.balanced); n != MaxClaims {
		t.Errorf("%d addresses of load balancers are kept, want %d", n, MaxClaims)
	}
}

// A port that comes to or goes from the load balancer of a Service decides the claims of
// others, at all its addresses.
func TestPortsOfLoadBalancersDecideClaims(t *testing.T) {
	b := NewAddressBook()
	owner, claimant := types.NamespacedName{Namespace: "bank", Name: "web"}, types.NamespacedName{Namespace: "tenant", Name: "x"}
	b.SetService(claimant, largeService("198.18", 3, 1))
	for _, ports := range []int{1, 2, 1} {
		if told := b.SetService(owner, balancedService("198.18", 3, ports)); !slices.Equal(told, []types.NamespacedName{claimant}) {
			t.Errorf("%d ports: %v are told", ports, told)
		}
	}
	if told := b.SetService(owner, balancedService("198.18", 3, 1)); len(told) > 0 {
		t.Errorf("nothing has changed: %v are told", told)
	}
}
