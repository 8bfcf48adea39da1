package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

const (
	// settleTime limits the controller's time for all Services, generously.
	settleTime = 20 * time.Minute
	// Limits for the start of a proxy and for a change.
	startTime, changeTime = 10 * time.Minute, time.Minute
	// often is the interval of checking a change of vicinity-proxy, and peerPause of kube-proxy, which
	// takes a hundred times as long.
	often, peerPause = 200 * time.Microsecond, 2 * time.Millisecond
	// seldom is the interval while CPU is measured: counted connections cost CPU, too.
	seldom = 20 * time.Millisecond
	// apart is the pause between two changes, longer than vicinity-proxy's between two syncs.
	apart = 50 * time.Millisecond
	// alone is the number of connections in a row that one end must answer, to show that the other is
	// no endpoint any more.
	alone = 12
)

type bench struct {
	*meter.Run
	options
	cluster *cluster
	prober  prober
	figures figures
	// turn counts changes. Each change leads to the other end.
	turn int
	// handed means that Services may be vicinity-proxy's.
	handed bool
}

func (b *bench) measure(ctx context.Context) (err error) {
	b.figures.machine, b.cluster = b.Machine, &cluster{Run: b.Run}
	if err := b.cluster.bringUp(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil && len(b.figures.contests) > 0 {
			b.Say("the benchmark ended early; its figures so far:\n%s", b.figures.String())
		}
	}()
	b.prober = prober{shape.NodeNamespace(b.Cluster.Shape().Name, b.cluster.node.Index)}
	for _, size := range b.sizes {
		b.Say("%d Services with %d endpoints each", size, perService)
		if err := b.cluster.fill(ctx, size); err != nil {
			return err
		}
		// The last proxy of a round is the first of the next: slow changes of the machine affect both,
		// and Services change hands half as often.
		var who []string
		if b.peer {
			who = slices.Clone(peers)
		}
		who = append(who, vicinity)
		for range b.rounds {
			for _, one := range who {
				if err := b.takeTurn(ctx, one); err != nil {
					return fmt.Errorf("%s with %d Services: %w", one, size, err)
				}
			}
			slices.Reverse(who)
		}
		if err := b.race(ctx); err != nil {
			return fmt.Errorf("both proxies with %d Services: %w", size, err)
		}
	}
	return b.extras(ctx)
}

func (b *bench) takeTurn(ctx context.Context, who string) error {
	figures := b.figures.of(who, b.cluster.made)
	if slices.Contains(peers, who) {
		return b.measurePeer(ctx, who, figures)
	}
	return b.withController(ctx, true, func() error {
		return b.withProxy(ctx, vicinity, figures, func(p *meter.Program) error {
			if err := b.served(ctx, b.cluster.made+1); err != nil {
				return err
			}
			if err := b.changeSlices(ctx, p, figures); err != nil {
				return err
			}
			return b.finish(ctx, p, figures)
		})
	})
}

// measurePeer measures kube-proxy. One change takes up to seconds, and connections in between cost it
// nothing that counts: so time and CPU are measured at once.
func (b *bench) measurePeer(ctx context.Context, who string, figures *contest) error {
	if err := b.handBack(ctx); err != nil {
		return err
	}
	return b.withProxy(ctx, who, figures, func(p *meter.Program) error {
		if err := b.Rest(ctx); err != nil {
			return err
		}
		err := b.costs(p, figures, peerChanges, func() error { return b.change(ctx, peerChanges, peerPause, &figures.changes) })
		if err != nil {
			return err
		}
		return b.finish(ctx, p, figures)
	})
}

// handBack gives Services back to kube-proxy, which then runs without the controller.
func (b *bench) handBack(ctx context.Context) error {
	if !b.handed {
		return nil
	}
	return b.withController(ctx, false, func() error { return nil })
}

// finish measures the proxy's memory, and counts the connections by its rules that fail.
func (b *bench) finish(ctx context.Context, p *meter.Program, figures *contest) error {
	held, err := p.Memory()
	if err != nil {
		return err
	}
	figures.memory = max(figures.memory, held)
	all, err := times(ctx, connects, way{b.prober.namespace, b.cluster.live})
	if err != nil {
		return err
	}
	b.count(figures, all)
	return nil
}

// count adds answered connections, and returns why others failed.
func (b *bench) count(figures *contest, all []connections) {
	for _, one := range all {
		figures.answered += len(one.took)
		if figures.failed += one.failed; one.failed > 0 {
			b.Say("%s: %d connections failed: %v", figures.proxy, one.failed, one.last)
		}
	}
}

// withController runs the controller, which hands Services over or back, and calls a function when
// that is done.
func (b *bench) withController(ctx context.Context, groups bool, do func() error) (err error) {
	program, err := b.Program("vicinity-controller")
	if err != nil {
		return err
	}
	args := []string{
		program, "--kubeconfig", b.Cluster.Kubeconfig(), "--namespace", "vicinity-system",
		"--leader-elect=false", "--health-probe-bind-address", "0", "--metrics-bind-address", "0",
		"--kube-api-qps", "2000", "--kube-api-burst", "4000", "--hand-back-grace", "0s", fmt.Sprintf("--groups=%t", groups),
		// A Service is handed over when the proxies of all these nodes have programmed it.
		"--proxy-nodes", corev1.LabelHostname + "=" + b.cluster.node.Name,
	}
	controller, err := meter.Start("controller", "", b.Folder, b.Lost, args...)
	if err != nil {
		return err
	}
	b.handed = groups
	defer func() { err = errors.Join(err, controller.Stop()) }()
	what := "Services go to vicinity-proxy"
	if !groups {
		what = "Services go back to kube-proxy"
	}
	b.Say("%s", what)
	limited, cancel := context.WithTimeoutCause(ctx, settleTime, errors.New("the controller takes too long"))
	defer cancel()
	err = b.cluster.until(limited, "groups", func(n counted) string {
		// Each or none has one.
		if groups && n.groups < b.cluster.made+1 || !groups && n.groups+n.served > 0 {
			return fmt.Sprintf("%d groups exist, and only vicinity-proxy serves %d Services", n.groups, n.served)
		}
		return ""
	})
	if err != nil {
		return err
	}
	return do()
}

// served waits until vicinity-proxy alone serves a number of Services, without pending work.
func (b *bench) served(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTime, errors.New("the hand-over takes too long"))
	defer cancel()
	return b.cluster.until(ctx, "the hand-over", func(n counted) string {
		if n.served != number || n.passing > 0 {
			return fmt.Sprintf("%d of %d Services are handed over, and %d groups are of Services that are being handed over", n.served, number, n.passing)
		}
		return ""
	})
}

// withProxy runs a proxy on a node without rules, measures the time until its first rules, and calls a
// function.
func (b *bench) withProxy(ctx context.Context, who string, figures *contest, do func(*meter.Program) error) (err error) {
	if err := b.clear(ctx, b.cluster.node); err != nil {
		return err
	}
	end, err := b.current(ctx)
	if err != nil {
		return err
	}
	if err := b.Rest(ctx); err != nil {
		return err
	}
	b.Say("%s starts", who)
	proxy, err := b.contend(who, b.cluster.node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Stop(), b.clear(context.WithoutCancel(ctx), b.cluster.node)) }()
	limited, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s takes too long to start", who))
	defer cancel()
	took, err := b.prober.until(limited, aim{to: b.cluster.live, want: end.letter, inRow: 1, pause: often}, proxy.Began)
	if err != nil {
		return err
	}
	figures.starts = append(figures.starts, took)
	return do(proxy)
}

// current is the end that the live Service's slice leads to. The next change is to the other one.
func (b *bench) current(ctx context.Context) (end, error) {
	slice, err := b.API.DiscoveryV1().EndpointSlices(liveName).Get(ctx, liveName+"-0", metav1.GetOptions{})
	if err != nil {
		return end{}, err
	}
	for i, e := range b.cluster.ends {
		if slice.Endpoints[0].Addresses[0] == e.address.String() {
			b.turn = i
			return e, nil
		}
	}
	return end{}, fmt.Errorf("the live Service leads to %v", slice.Endpoints[0].Addresses)
}

// change makes the live Service lead to the other end, a number of times, each a moment after the
// previous change has taken effect. It records the times since before the request.
func (b *bench) change(ctx context.Context, number int, pause time.Duration, took *[]time.Duration) error {
	for range number {
		b.turn++
		to := b.cluster.ends[b.turn%2]
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(apart):
		}
		limited, cancel := context.WithTimeoutCause(ctx, changeTime, errors.New("a change takes too long"))
		// No connection may reach the next end already.
		from := b.cluster.ends[(b.turn+1)%2]
		if _, err := b.prober.until(limited, aim{to: b.cluster.live, want: from.letter, inRow: alone, pause: often}, time.Now()); err != nil {
			cancel()
			return err
		}
		sent := time.Now()
		written := make(chan error, 1)
		go func() {
			_, err := b.API.DiscoveryV1().EndpointSlices(liveName).
				Patch(limited, liveName+"-0", types.JSONPatchType, patchOf(to.address, to.node), metav1.PatchOptions{})
			written <- err
		}()
		effect, err := b.prober.until(limited, aim{to: b.cluster.live, want: to.letter, inRow: 1, pause: pause}, sent)
		err = errors.Join(err, <-written)
		cancel()
		if err != nil {
			return err
		}
		*took = append(*took, effect)
	}
	return nil
}

// changeSlices measures the CPU of changes, and then their times. That comes before thousands of
// connections, which are counted when the kernel forgets them two minutes later.
func (b *bench) changeSlices(ctx context.Context, p *meter.Program, figures *contest) error {
	if err := b.Rest(ctx); err != nil {
		return err
	}
	err := b.costs(p, figures, costly, func() error { return b.change(ctx, costly, seldom, new([]time.Duration)) })
	if err != nil {
		return err
	}
	return b.change(ctx, changes, often, &figures.changes)
}

// costs measures the CPU of a number of changes, with everything else that the proxy does meanwhile.
func (b *bench) costs(p *meter.Program, figures *contest, number int, do func() error) error {
	before, err := p.CPU()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := p.CPU()
	figures.cpu += after - before
	figures.costed += number
	return err
}

// extras measures what only vicinity-proxy does, with all Services.
func (b *bench) extras(ctx context.Context) error {
	if b.weights {
		if err := b.measureWeights(ctx); err != nil {
			return err
		}
	}
	if b.subsets {
		if err := b.measureSubsets(ctx); err != nil {
			return err
		}
	}
	if b.endpoints > 0 {
		return b.measureCrowd(ctx)
	}
	return nil
}

// measureWeights makes zones prefer themselves without enough endpoints, so that they share traffic by
// weights, and measures vicinity-proxy again.
func (b *bench) measureWeights(ctx context.Context) error {
	b.Say("zones share their traffic by weights")
	if err := b.cluster.annotate(ctx, `{"metadata":{"annotations":{"endpointslice.kubernetes.io/same-zone":"Prefer"}}}`); err != nil {
		return err
	}
	figures := b.figures.of(weighted, b.cluster.made)
	return b.withController(ctx, true, func() error {
		// Services are handed over only while a proxy runs.
		if err := b.withProxy(ctx, vicinity, &contest{}, func(*meter.Program) error { return b.weightsSettled(ctx) }); err != nil {
			return err
		}
		return b.withProxy(ctx, vicinity, figures, func(p *meter.Program) error {
			if err := b.changeSlices(ctx, p, figures); err != nil {
				return err
			}
			return b.finish(ctx, p, figures)
		})
	})
}

// weightsSettled waits until groups of all Services have weights, and no group passes or shrinks any
// more.
func (b *bench) weightsSettled(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTime, errors.New("the controller takes too long"))
	defer cancel()
	last := -1
	return poll(ctx, "groups to give zones weights", holdTime, func(ctx context.Context) (bool, error) {
		if err := b.served(ctx, b.cluster.made+1); err != nil {
			return false, err
		}
		weighted, endpoints, err := b.cluster.readGroups(ctx)
		// A shrinking group is held for less than the interval of checks.
		if err != nil || weighted == b.cluster.made && endpoints == last {
			return err == nil, err
		}
		b.Say("%d of %d Services have weights, and groups %d endpoints", weighted, b.cluster.made, endpoints)
		last = endpoints
		return false, nil
	})
}

// holdTime is longer than the controller holds a shrinking group.
const holdTime = 20 * time.Second

// measureSubsets makes all Services require the zone, so that each zone has its own groups. It
// measures what a proxy of one zone receives and holds, beside one that sees all.
func (b *bench) measureSubsets(ctx context.Context) error {
	b.Say("traffic stays in its zone")
	if err := b.cluster.annotate(ctx, `{"metadata":{"annotations":{"endpointslice.kubernetes.io/same-zone":"Require"}}}`); err != nil {
		return err
	}
	zones := len(b.Cluster.Shape().Zones)
	return b.withController(ctx, true, func() error {
		// Services are handed over only while a proxy runs.
		err := b.withProxy(ctx, vicinity, &contest{}, func(*meter.Program) error { return b.subsetsSettled(ctx, zones) })
		if err != nil {
			return err
		}
		b.figures.zones = zones
		for _, one := range []struct {
			into *received
			zone string
		}{{&b.figures.all, "null"}, {&b.figures.own, fmt.Sprintf("%q", b.cluster.node.Zone)}} {
			label := fmt.Sprintf(`{"metadata":{"labels":{"topology.kubernetes.io/zone":%s}}}`, one.zone)
			if _, err := b.API.CoreV1().Nodes().Patch(ctx, b.cluster.node.Name, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
				return err
			}
			err := b.withProxy(ctx, vicinity, &contest{}, func(p *meter.Program) (err error) {
				if one.into.bytes, err = b.metric(ctx, "vicinity_proxy_received_bytes_total", `resource="endpointgroups"`); err != nil {
					return err
				}
				if one.into.endpoints, err = b.metric(ctx, "vicinity_proxy_endpoints", `family="IPv4"`); err != nil {
					return err
				}
				one.into.memory, err = p.Memory()
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// subsetsSettled waits until each zone has its own group of every Service, with only the zone's
// endpoints.
func (b *bench) subsetsSettled(ctx context.Context, zones int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTime, errors.New("the controller takes too long"))
	defer cancel()
	want := zones*b.cluster.made + 1
	return poll(ctx, "groups to have only the endpoints of their zones", look, func(ctx context.Context) (bool, error) {
		err := b.cluster.until(ctx, "groups for each zone", func(n counted) string {
			if n.groups != want || n.passing > 0 {
				return fmt.Sprintf("%d groups exist, want %d; %d are of Services that are being handed over", n.groups, want, n.passing)
			}
			return ""
		})
		if err != nil {
			return false, err
		}
		// A shrinking group is held for a while.
		_, endpoints, err := b.cluster.readGroups(ctx)
		if err != nil || endpoints == perService*b.cluster.made+1 {
			return err == nil, err
		}
		b.Say("groups have %d endpoints, want %d", endpoints, perService*b.cluster.made+1)
		return false, nil
	})
}

// measureCrowd gives one Service many endpoints, and measures the time until all are programmed.
func (b *bench) measureCrowd(ctx context.Context) error {
	return b.withController(ctx, true, func() error {
		return b.withProxy(ctx, vicinity, &contest{}, func(p *meter.Program) error {
			limited, cancel := context.WithTimeoutCause(ctx, settleTime, errors.New("the endpoints take too long"))
			defer cancel()
			before, err := b.metric(limited, "vicinity_proxy_endpoints", `family="IPv4"`)
			if err != nil {
				return err
			}
			b.Say("a Service of %d endpoints", b.endpoints)
			begun := time.Now()
			if err := b.cluster.crowd(limited, b.endpoints); err != nil {
				return err
			}
			err = poll(limited, "endpoints to be programmed", seldom, func(ctx context.Context) (bool, error) {
				now, err := b.metric(ctx, "vicinity_proxy_endpoints", `family="IPv4"`)
				return now >= before+float64(b.endpoints), err
			})
			if err != nil {
				return err
			}
			b.figures.crowd, b.figures.crowded = b.endpoints, time.Since(begun)
			b.figures.crowdMemory, err = p.Memory()
			return err
		})
	})
}
