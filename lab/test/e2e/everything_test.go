package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// everythingArea checks all parts of Vicinity at the same time.
func everythingArea() area {
	return area{
		name:     "everything",
		setup:    everything,
		promises: []promise{{name: "day", keep: day, tier: inSoak}},
	}
}

// everything is a cluster with all parts of Vicinity. Budgets are also projected as
// PodDisruptionBudgets.
var everything = &setup{
	name: "everything",
	shape: func() shape.Shape {
		s := shape.Default()
		s.Name, s.Proxy, s.DNS = "everything", shape.ProxyBoth, shape.DNSNone
		return s
	},
	prepare: func(ctx context.Context, c *lab.Cluster) error {
		set := []string{"disruption.enabled=true", "disruption.projectPDBs=true", "rollouts.enabled=true", "rollouts.scaleDown=true", "rollouts.pacing=true"}
		if err := c.InstallVicinity(ctx, append(set, locateAll...)...); err != nil {
			return err
		}
		return configureNames(ctx, c)
	},
}

// A day of a large cluster has an update, a drain, a scale-down and a restart of each part every
// hour, and the loss of a zone every twelve hours.
const (
	hours      = 24
	hoursALoss = 12
	// dayRate is the number of requests a second, all the time.
	dayRate = 200
	// lossTime is the duration of the loss of a zone.
	lossTime = 4 * time.Second
)

type daily struct {
	*scene
	*rolled

	requests                                         int64
	names, updates, drains, restarts, scales, losses int
	churned                                          int
}

// day does the work of a day under load by HTTP and by DNS. Only requests to a lost zone may fail.
// No budget is exceeded, and at the end no more objects, rules or memory remain than at the start.
func day(ctx context.Context, s *scene) (string, error) {
	d := &daily{scene: s, rolled: &rolled{Field: s.field(), kind: ofStatefulSet, name: "echo", pods: 6}}
	check(d.prepare(ctx))
	before := must(d.traces(ctx))
	history := must(d.Follow(ctx))
	defer history.Stop()
	begun := time.Now()
	for hour := range hours {
		if err := d.hour(ctx, hour); err != nil {
			return "", fmt.Errorf("hour %d: %w", hour+1, err)
		}
		if (hour+1)%hoursALoss == 0 {
			if err := d.loseZone(ctx, d.Zones()[hour%len(d.Zones())]); err != nil {
				return "", fmt.Errorf("hour %d: %w", hour+1, err)
			}
		}
	}
	took := time.Since(begun)
	report, err := d.Judge(ctx, history, map[string]int{"echo": d.pods})
	check(errors.Join(err, report.Err()))
	check(d.rests(ctx))
	grown := must(d.sameAs(ctx, before))
	if d.requests == 0 || d.names == 0 {
		return "", fmt.Errorf("%d requests were sent and %d names asked for, which proves nothing", d.requests, d.names)
	}
	return fmt.Sprintf("%d hours of work in %s: %d updates, %d drains, %d restarts, %d scale-downs, %d zones lost, %d Services made and deleted; %d requests and %d names, 0 failed; no budget exceeded; %s",
		hours, took.Round(time.Second), d.updates, d.drains, d.restarts, d.scales, d.losses, d.churned, d.requests, d.names, grown), nil
}

func (d *daily) prepare(ctx context.Context) error {
	if err := d.serve(ctx, echoSet()+"---\n"+evictions.ByZone("echo", "app", "echo", `maxUnavailable: "100%"`, "maxUnavailableDomains: 1"), d.pods); err != nil {
		return err
	}
	if err := d.PatchService(ctx, d.namespace, "echo", annotated(zoneAnnotation, "Prefer", "vicinity.dev/proxy", "true")); err != nil {
		return err
	}
	if err := d.waitServedBy(ctx, "echo", true); err != nil {
		return err
	}
	if err := d.Apply(ctx, d.namespace, strings.ReplaceAll(lab.EchoManifests("crew", 6), "app: echo", "app: crew")); err != nil {
		return err
	}
	if err := d.WaitDeployment(ctx, d.namespace, "crew"); err != nil {
		return err
	}
	return d.rests(ctx)
}

// hour does the work of an hour, under load.
func (d *daily) hour(ctx context.Context, hour int) error {
	return d.under(ctx, nil, func(ctx context.Context) error {
		if err := d.update(ctx, fmt.Sprintf("v%d", hour+1), "0s", ""); err != nil {
			return err
		}
		if err := d.waitComplete(ctx, fmt.Sprintf("v%d", hour+1)); err != nil {
			return err
		}
		d.updates++
		node := d.cluster.Shape().Nodes()[hour%len(d.cluster.Shape().Nodes())].Name
		_, err := d.Drain(ctx, "app=echo", []string{node}, "--timeout=120s")
		if err = errors.Join(err, d.SetSchedulable(context.WithoutCancel(ctx), true, node)); err != nil {
			return err
		}
		d.drains++
		if err := d.waitHealthy(ctx); err != nil {
			return err
		}
		if err := d.restart(ctx, hour); err != nil {
			return err
		}
		for _, replicas := range []int32{3, 6} {
			if err := d.scale(ctx, "crew", replicas); err != nil {
				return err
			}
		}
		d.scales++
		return nil
	})
}

// restart kills the leading controller, ends a DNS server gracefully, and kills the proxy of a
// node.
func (d *daily) restart(ctx context.Context, hour int) error {
	leader, err := d.leader(ctx)
	if err != nil {
		return err
	}
	if err := d.scene.CoreV1().Pods(vicinityNamespace).Delete(ctx, leader, atOnce()); err != nil {
		return err
	}
	proxy := "vicinity-proxy-" + d.cluster.Shape().Nodes()[hour%len(d.cluster.Shape().Nodes())].Name
	if err := errors.Join(d.cluster.KillComponent(ctx, proxy), d.cluster.StartComponent(ctx, proxy)); err != nil {
		return err
	}
	pod, _, err := d.dnsPod(ctx)
	if err != nil {
		return err
	}
	if err := d.scene.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.restarts += 3
	return d.waitServers(ctx)
}

// waitServers waits for both pods of the controller and of the DNS server.
func (d *daily) waitServers(ctx context.Context) error {
	if err := errors.Join(d.WaitDeployment(ctx, vicinityNamespace, "vicinity-controller"), d.waitLeader(ctx)); err != nil {
		return err
	}
	return kube.Wait(ctx, "two DNS servers", func(ctx context.Context) (string, error) {
		all, err := d.dnsInstances(ctx)
		if err == nil && len(all) < 2 {
			return fmt.Sprintf("%d are ready", len(all)), nil
		}
		return "", err
	})
}

// loseZone cuts a zone off and heals it. Clients of other zones have endpoints of their own, and
// notice nothing.
func (d *daily) loseZone(ctx context.Context, zone string) (err error) {
	others := slices.DeleteFunc(d.Zones(), func(name string) bool { return name == zone })
	err = d.under(ctx, others, func(ctx context.Context) (err error) {
		defer undo(&err, func() error { return d.cluster.HealZone(context.WithoutCancel(ctx), zone) })
		if err := d.cluster.CutZone(ctx, zone); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lossTime):
			return nil
		}
	})
	if err != nil {
		return fmt.Errorf("%s was lost: %w", zone, err)
	}
	d.losses++
	if err := errors.Join(d.waitLeasesRenewed(ctx, zone), d.waitServers(ctx), d.waitHealthy(ctx)); err != nil {
		return err
	}
	return d.waitSettled(ctx)
}

// under sends requests, asks for names, and makes and deletes Services while do runs. Clients are
// in the given zones, or in all for nil. While a zone is lost no names are asked for, since some
// DNS servers are in that zone.
func (d *daily) under(ctx context.Context, zones []string, do func(context.Context) error) error {
	job, err := d.planLoad(ctx, lab.LoadOptions{Zones: zones, Plan: load.Plan{Rate: dayRate, Duration: longest}})
	if err != nil {
		return err
	}
	flow, stop := context.WithCancel(ctx)
	defer stop()
	sending := start(flow, job, nil)
	var names *steady
	if zones == nil {
		if names, err = d.nameIsKnown(ctx); err != nil {
			return err
		}
	}
	var churning sync.WaitGroup
	churn, still := context.WithCancel(ctx)
	churned, failed := 0, error(nil)
	churning.Go(func() { churned, failed = d.churnServices(churn) })
	err = do(ctx)
	still()
	churning.Wait()
	if names != nil {
		err = errors.Join(err, names.end())
		d.names += names.right
	}
	result, lost := sending.end()
	if err = errors.Join(err, failed, lost); err != nil {
		return err
	}
	d.requests += result.Answered
	d.churned += churned
	if result.Failed() > 0 || unsent(result) != "" {
		return errors.New(failures(result))
	}
	return nil
}

// nameIsKnown keeps asking a node of each zone for the Service.
func (d *daily) nameIsKnown(ctx context.Context) (*steady, error) {
	service, err := d.scene.CoreV1().Services(d.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var all []asked
	for _, zone := range d.cluster.Shape().Zones {
		all = append(all, asked{d.fromNode(zone.Nodes[0]), dnsquery.Query{Name: d.fqdn("echo")}, service.Spec.ClusterIP})
	}
	return d.askSteadily(ctx, all)
}

// churnServices makes and deletes Services, one after the other, until the context ends.
func (d *daily) churnServices(ctx context.Context) (n int, err error) {
	for ; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("churn-%d", n)
		all := context.WithoutCancel(ctx)
		if err := d.Apply(all, d.namespace, twin(name, `vicinity.dev/proxy: "true"`)); err != nil {
			return n, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		if err := d.scene.CoreV1().Services(d.namespace).Delete(all, name, metav1.DeleteOptions{}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// rests waits until nothing is in progress: the update is complete, budgets have no reservations,
// and rules do not change.
func (d *daily) rests(ctx context.Context) error {
	if _, err := d.waitPhase(ctx, v1alpha1.PhaseComplete); err != nil {
		return err
	}
	if err := errors.Join(d.waitHealthy(ctx), d.AtRest(ctx)); err != nil {
		return err
	}
	if _, err := d.waitConverged(ctx, "echo", d.pods); err != nil {
		return err
	}
	return d.waitRulesStable(ctx)
}

// traces counts the objects and resources that work could leave behind.
type traces struct {
	groups, leases, locators, rules int
	goroutines, memory              float64 // of the proxies
}

func (d *daily) traces(ctx context.Context) (t traces, err error) {
	if t.groups, err = d.count(ctx, "/apis/vicinity.dev/v1alpha1/namespaces/"+d.namespace+"/endpointgroups"); err != nil {
		return t, err
	}
	if t.leases, err = d.count(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+vicinityNamespace+"/leases"); err != nil {
		return t, err
	}
	if t.locators, err = d.count(ctx, "/apis/vicinity.dev/v1alpha1/namespaces/"+d.namespace+"/podlocators"); err != nil {
		return t, err
	}
	for _, node := range d.cluster.Shape().Nodes() {
		for _, family := range []string{"ip", "ip6"} {
			text, err := d.nft(ctx, node, "list", "table", family, "vicinity")
			if err != nil {
				return t, err
			}
			t.rules += heldIn(text)
		}
		all, err := d.proxyMetrics(ctx, node)
		if err != nil {
			return t, err
		}
		t.goroutines += all.sum("go_goroutines")
		t.memory += all.sum("process_resident_memory_bytes")
	}
	return t, nil
}

// heldIn counts the rules and elements in a listing of a table.
func heldIn(listing string) (number int) {
	kind := "" // chain, set or map
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "\t") || len(words) == 0:
		case words[0] == "}" && !strings.HasPrefix(line, "\t\t"):
			kind = ""
		case kind == "":
			kind = words[0]
		case kind == "chain":
			number++
		case slices.Contains([]string{"type", "typeof", "flags", "comment", "size"}, words[0]):
		default:
			_, elements, begins := strings.Cut(line, "elements = {")
			if !begins {
				elements = line
			}
			for element := range strings.SplitSeq(strings.TrimRight(elements, " }\n"), ",") {
				if strings.TrimSpace(element) != "" {
					number++
				}
			}
		}
	}
	return number
}

// count returns the number of objects at a path of the API.
func (d *daily) count(ctx context.Context, path string) (int, error) {
	text, err := d.scene.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return len(list.Items), nil
}

// sameAs waits until nothing exceeds its value before. Each node may have some more goroutines,
// which answer requests, and a fifth more memory, because of garbage collection.
func (d *daily) sameAs(ctx context.Context, before traces) (figure string, err error) {
	nodes := float64(len(d.cluster.Shape().Nodes()))
	var after traces
	err = kube.Wait(ctx, "the traces of the work to disappear", func(ctx context.Context) (string, error) {
		if after, err = d.traces(ctx); err != nil {
			return "", err
		}
		if after.groups > before.groups || after.leases > before.leases || after.locators > before.locators || after.rules > before.rules ||
			after.goroutines > before.goroutines+5*nodes || after.memory > 1.2*before.memory+nodes*(16<<20) {
			return fmt.Sprintf("now %+v, before %+v", after, before), nil
		}
		return "", nil
	})
	return fmt.Sprintf("groups %d and %d, Leases %d and %d, PodLocators %d and %d, rules %d and %d, goroutines of proxies %.0f and %.0f, their memory %.0f and %.0f MiB at the start and the end",
		before.groups, after.groups, before.leases, after.leases, before.locators, after.locators, before.rules, after.rules,
		before.goroutines, after.goroutines, before.memory/(1<<20), after.memory/(1<<20)), err
}

// dnsPod returns a pod of the DNS server with its address.
func (s *scene) dnsPod(ctx context.Context) (*corev1.Pod, netip.AddrPort, error) {
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	list, err := s.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=" + instances[0].Addr().String()})
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	if len(list.Items) != 1 {
		return nil, netip.AddrPort{}, fmt.Errorf("%d pods have the address %s of the DNS server", len(list.Items), instances[0].Addr())
	}
	return &list.Items[0], instances[0], nil
}
