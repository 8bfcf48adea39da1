package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Services and groups are added, changed and removed for a long time. Memory does not grow, and in each pause a real
// kernel has exactly the wanted rules.
func TestChurn(t *testing.T) {
	const pauses, rate = 4, 1000 // changes in a second at most
	each := rate
	switch {
	case testing.Short():
		t.Skip("takes seconds: memory is looked at again and again")
	case os.Getenv("E2E_SOAK") != "":
		each = 50 * rate
	}
	c := &churn{newLiveWorld(t), rand.New(rand.NewPCG(1, 2)), map[int]bool{}}
	background(t, c.cleaner.run)
	background(t, c.programmer.run)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var used []uint64
	for range pauses {
		for range each {
			c.change()
			<-tick.C
		}
		c.rest()
		used = append(used, heap())
	}
	t.Logf("%d changes; the heap had %d bytes in the pauses", pauses*each, used)
	// In the first pauses all has been as large as it gets.
	before, after := slices.Max(used[:pauses/2]), slices.Max(used[pauses/2:])
	if after > before+before/4+4<<20 {
		t.Errorf("the heap grows: it had %d bytes in the pauses", used)
	}
	for n := range c.exists {
		c.remove(n)
	}
	c.rest()
	for _, number := range ruleset.Families {
		listing, err := c.reader.Read(number)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range listing.Sets {
			if len(set.Elements) > 0 {
				t.Errorf("%s: %s has %d elements when there is no Service", number.Name(), set.Name, len(set.Elements))
			}
		}
	}
}

// churn is a world with Services that change.
type churn struct {
	*liveWorld
	random *rand.Rand
	exists map[int]bool
}

func (c *churn) change() {
	const services = 300
	n := c.random.IntN(services)
	switch {
	case !c.exists[n]:
		c.put(c.service(n), c.group(n))
		c.exists[n] = true
	case c.random.IntN(20) == 0:
		c.remove(n)
	case c.random.IntN(10) == 0:
		c.put(c.service(n))
	default:
		c.put(c.group(n))
	}
}

func (c *churn) remove(n int) {
	c.drop(c.service(n), c.group(n))
	delete(c.exists, n)
}

// service is the n-th, with some of all that a Service can ask for.
func (c *churn) service(n int) *corev1.Service {
	service := aService(fmt.Sprintf("s%d", n), netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}).String())
	spec := &service.Spec
	if c.random.IntN(3) == 0 {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if c.random.IntN(3) == 0 {
		spec.Type = corev1.ServiceTypeLoadBalancer
		spec.LoadBalancerSourceRanges = []string{fmt.Sprintf("10.%d.0.0/16", c.random.IntN(200))}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}).String()}}
		if c.random.IntN(2) == 0 {
			spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	return service
}

// group is that of the n-th Service, with any of very many endpoints.
func (c *churn) group(n int) *v1alpha1.EndpointGroup {
	var addresses []string
	for range c.random.IntN(12) {
		addresses = append(addresses, netip.AddrFrom4([4]byte{10, byte(128 + c.random.IntN(100)), byte(c.random.IntN(256)), byte(1 + c.random.IntN(250))}).String())
	}
	group := aGroup(fmt.Sprintf("s%d", n), fmt.Sprintf("s%d-1", n), addresses...)
	for i := range group.Spec.Endpoints {
		if c.random.IntN(4) == 0 {
			group.Spec.Endpoints[i].Node = "node-a"
		}
	}
	return group
}

// rest waits until the kernel has exactly the expected rules: nothing lingers.
func (c *churn) rest() {
	c.t.Helper()
	wanted := c.wanted()
	eventually(c.t, "the kernel has exactly the expected rules", func() bool {
		for number, table := range wanted {
			listing, err := c.reader.Read(number)
			switch {
			case err != nil: // it changes still
				return false
			case !listing.Exists && number == ruleset.IPv6: // nothing asks for it
			case len(table.Differences(listing)) > 0:
				return false
			}
		}
		return true
	})
}
