package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// proxySwitches repeatedly changes a Service's mode under load.
func proxySwitches(ctx context.Context, s *scene) (string, error) {
	check(s.deployed(ctx, 12, ""))
	steps := []struct {
		patch string
		inZone,
		all bool
	}{
		{annotated(zoneAnnotation, "Require"), true, false},
		{balancedZone, false, true},
		{preferZone, true, false},
		{annotated(zoneAnnotation, "", keysAnnotation, zoneKey), true, false},
		{annotated(keysAnnotation, hostnameKey+","+zoneKey+",*"), true, false},
		{annotated(keysAnnotation, ""), false, true},
	}
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for i, step := range steps {
			if err := s.PatchService(ctx, s.namespace, "echo", step.patch); err != nil {
				return err
			}
			err := kube.Wait(ctx, fmt.Sprintf("traffic to follow step %d", i+1), func(ctx context.Context) (string, error) {
				result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200, Duration: 300 * time.Millisecond}})
				if err != nil {
					return "", err
				}
				if near := result.InZone(); step.inZone && near < 1 || step.all && near > 0.6 {
					return fmt.Sprintf("%.0f %% stays in its zone", 100*near), nil
				}
				return failures(result), nil
			})
			if err != nil {
				return err
			}
			if err := t.more(ctx, newRate); err != nil {
				return err
			}
		}
		return nil
	}))
	return fmt.Sprintf("switched %d times between Balanced, Prefer, Require and keys; %s", len(steps), u), nil
}

// handOverUnderLoad hands a Service over between the proxies, under load.
func handOverUnderLoad(ctx context.Context, s *scene) (string, error) {
	times := 1
	if soaking() {
		times = 20
	}
	check(s.deploy(ctx))
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for range times {
			for _, vicinity := range []bool{true, false} {
				patch, owner := byKubeProxy, "kube-proxy"
				if vicinity {
					patch, owner = byVicinity, "vicinity"
				}
				if err := s.PatchService(ctx, s.namespace, "echo", patch); err != nil {
					return err
				}
				if err := s.waitServedBy(ctx, "echo", vicinity); err != nil {
					return err
				}
				if err := s.waitOnlyIn(ctx, "echo", owner); err != nil {
					return err
				}
				if err := t.more(ctx, newRate); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return fmt.Sprintf("handed over and back %d times; %s", times, u), nil
}

// waitAnswersFrom waits until so many pods answer.
func (s *scene) waitAnswersFrom(ctx context.Context, pods int) error {
	return kube.Wait(ctx, fmt.Sprintf("%d pods to answer", pods), func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 800, Duration: 500 * time.Millisecond}})
		if err != nil {
			return "", err
		}
		seen := map[string]bool{}
		for _, flow := range result.Flows {
			seen[flow.To.Pod] = true
		}
		if len(seen) != pods {
			return fmt.Sprintf("%d do", len(seen)), nil
		}
		return failures(result), nil
	})
}

// ruleHandles returns the tables of all nodes with the kernel's handles. A handle changes when its
// object is made again.
func (s *scene) ruleHandles(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	for _, node := range s.cluster.Shape().Nodes() {
		for _, family := range []string{"ip", "ip6"} {
			text, err := s.nft(ctx, node, "-a", "list", "table", family, "vicinity")
			if err != nil {
				return nil, err
			}
			all[node.Name+" "+family] = text
		}
	}
	return all, nil
}

// waitRulesStable waits until the rules of all nodes are stable and contain nothing of earlier promises.
func (s *scene) waitRulesStable(ctx context.Context) error {
	if err := s.waitOthersGone(ctx); err != nil {
		return err
	}
	last, err := s.ruleHandles(ctx)
	if err != nil {
		return err
	}
	since := time.Now()
	return kube.Wait(ctx, "rules to be stable", func(ctx context.Context) (string, error) {
		now, err := s.ruleHandles(ctx)
		if err != nil {
			return "", err
		}
		for name, text := range now {
			if text != last[name] {
				last, since = now, time.Now()
			}
		}
		if time.Since(since) < 2*time.Second {
			return "they have just changed", nil
		}
		return "", nil
	})
}

// afterRestart is how long traffic continues after proxies have restarted.
const afterRestart = 3 * time.Second

// zoneChanged moves a node by its label to another zone and back, to a zone that no group knows,
// and to none. There the node reaches all endpoints, and with hard keys it is refused.
func zoneChanged(ctx context.Context, s *scene) (figure string, err error) {
	const node = "zone-a-2"
	// The node itself has no endpoint, because that would change zones with the node.
	endpoints := []string{"zone-a-1", "zone-a-1", "zone-b-1", "zone-b-2", "zone-c-1", "zone-c-2"}
	check(s.placed(ctx, annotated(keysAnnotation, zoneKey+",*"), endpoints...))
	check(s.waitAnswersOnlyFrom(ctx, node, "zone-a"))
	defer undo(&err, func() error { return s.labelNode(context.WithoutCancel(ctx), node, "zone-a") })
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for _, zone := range []string{"zone-b", "zone-c", "zone-a"} {
			if err := s.labelNode(ctx, node, zone); err != nil {
				return err
			}
			if err := s.waitAnswersOnlyFrom(ctx, node, zone); err != nil {
				return err
			}
			if err := t.more(ctx, newRate); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, rule := range []struct {
		keys    string
		reached []string
	}{{zoneKey + ",*", slices.Compact(slices.Clone(endpoints))}, {zoneKey, nil}} {
		check(s.PatchService(ctx, s.namespace, "echo", annotated(keysAnnotation, rule.keys)))
		for _, zone := range []string{"zone-d", ""} {
			// Both zones have the same outcome. The node returns to its own zone in between, so
			// that the second change shows.
			check(s.labelNode(ctx, node, "zone-a"))
			check(s.waitAnswersOnlyFrom(ctx, node, "zone-a"))
			check(s.labelNode(ctx, node, zone))
			if _, err := s.reaches(ctx, reach{node: rule.reached, "zone-a-1": {"zone-a-1"}}); err != nil {
				return "", fmt.Errorf("with the keys %s in zone %q: %w", rule.keys, zone, err)
			}
		}
	}
	return fmt.Sprintf("a node in three zones in turn, served by each; in a new zone and in none it reaches all, and hard keys refuse; %s", u), nil
}

// waitAnswersOnlyFrom waits until the clients of a node get answers only from one zone, and from more
// than one of its endpoints.
func (s *scene) waitAnswersOnlyFrom(ctx context.Context, node, zone string) error {
	return kube.Wait(ctx, fmt.Sprintf("%s to be answered from %s", node, zone), func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Nodes: []string{node}, Plan: load.Plan{Rate: 200, Duration: 250 * time.Millisecond}})
		if err != nil {
			return "", err
		}
		pods := map[string]bool{}
		for _, flow := range result.Flows {
			pods[flow.To.Pod] = true
			if flow.To.Zone != zone {
				return "it is answered from " + flow.To.Zone, nil
			}
		}
		if len(pods) < 2 {
			return fmt.Sprintf("it is answered by %d endpoints", len(pods)), nil
		}
		return failures(result), nil
	})
}

// maxBehind limits how late proxies follow a change after an outage of an API server: pauses
// between retries of watches grow to half a minute.
const maxBehind = time.Minute

// apiServerAway stops the API server; the long form does so until the Leases of the proxies expire.
// Meanwhile names are answered. Afterwards the next change is followed in time.
func apiServerAway(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deployed(ctx, 12, preferZone))
	away := 10 * time.Second
	if soaking() {
		away = v1alpha1.LeaseFresh + 5*time.Second
	}
	names := s.namesOfZones(ctx)
	asking := must(s.askSteadily(ctx, names))
	defer asking.stop()
	const component = "kube-apiserver"
	defer undo(&err, func() error { return s.cluster.StartComponent(context.WithoutCancel(ctx), component) })
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		if err := s.cluster.KillComponent(ctx, component); err != nil {
			return err
		}
		if err := t.more(ctx, int64(newRate*away.Seconds())); err != nil {
			return err
		}
		// A query to a silent server fails only after 20 s, so right answers are counted too.
		if err := errors.Join(asking.more(ctx, 2000), asking.end()); err != nil {
			return fmt.Errorf("without the API server: %w", err)
		}
		return s.cluster.StartComponent(ctx, component)
	}))
	check(s.WaitNodes(ctx, true))
	// The time that Kubernetes' controllers need for the pods does not count.
	check(s.scale(ctx, "echo", 15))
	begun := time.Now()
	follow, cancel := context.WithTimeout(ctx, maxBehind)
	defer cancel()
	if err := s.waitAnswersFrom(follow, 15); err != nil {
		return "", fmt.Errorf("a change after the outage of the API server was not followed within %s: %w", maxBehind, err)
	}
	took := time.Since(begun)
	for _, node := range s.cluster.Shape().Nodes() {
		check(s.cluster.StartComponent(ctx, "vicinity-proxy-"+node.Name))
	}
	return fmt.Sprintf("no API server for %s: %s, and %s; a change afterwards was followed %.1f s after its pods were ready", away, u, asking, took.Seconds()), nil
}

// namesOfZones waits until a client of each zone gets the zone's endpoints of a headless Service,
// and the address of the echo Service. It returns these queries.
func (s *scene) namesOfZones(ctx context.Context) []asked {
	check(s.Apply(ctx, s.namespace, headlessOf("near", keysAnnotation, zoneKey)))
	clients := must(s.fromClients(ctx))
	echo := must(s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{}))
	pods := must(s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"}))
	inZone := map[string][]string{}
	for i := range pods.Items {
		at, _ := s.cluster.Shape().Node(pods.Items[i].Spec.NodeName)
		inZone[at.Zone] = append(inZone[at.Zone], pods.Items[i].Name)
	}
	asking := map[string]place{} // a client of each zone
	for node, from := range clients {
		at, _ := s.cluster.Shape().Node(node)
		asking[at.Zone] = from
	}
	var all []asked
	for zone, from := range asking {
		all = append(all,
			asked{from, dnsquery.Query{Name: s.fqdn("near")}, strings.Join(sortedCopy(inZone[zone]), " ")},
			asked{from, dnsquery.Query{Name: s.fqdn("echo")}, echo.Spec.ClusterIP})
	}
	must(s.answers(ctx, all))
	return all
}

// foreignFlush removes rules in several ways, as another program may, and measures how long connections of the node fail.
func foreignFlush(ctx context.Context, s *scene) (string, error) {
	check(s.placed(ctx, "", "zone-a-1", "zone-b-1", "zone-c-1"))
	must(s.reaches(ctx, reach{"zone-a-1": {"zone-a-1", "zone-b-1", "zone-c-1"}}))
	node, _ := s.cluster.Shape().Node("zone-a-1")
	check(s.waitRulesStable(ctx))
	before := must(s.nft(ctx, node, "list", "table", "ip", "vicinity"))
	attacks := []string{
		"flush table ip vicinity", "delete table ip vicinity", "flush chain ip vicinity nat-prerouting",
		"flush map ip vicinity services", "delete table ip vicinity; add table ip vicinity",
	}
	const most = quietTime
	worst, how := time.Duration(0), ""
	for _, attack := range attacks {
		took, err := s.recovery(ctx, node, func() error {
			_, err := s.nft(ctx, node, attack)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%s: %w", attack, err)
		}
		if took > worst {
			worst, how = took, attack
		}
	}
	check(s.waitRulesStable(ctx))
	after := must(s.nft(ctx, node, "list", "table", "ip", "vicinity"))
	if sortedLines(before) != sortedLines(after) {
		return "", fmt.Errorf("the rules differ from before: %s", changedLines(sortedLines(before), sortedLines(after)))
	}
	if worst > most {
		return "", fmt.Errorf("after %q connections failed for %d ms; at most %d are allowed", how, worst.Milliseconds(), most.Milliseconds())
	}
	return fmt.Sprintf("%d ways to remove rules: connections failed for %d ms at most (%s); the rules are restored",
		len(attacks), worst.Milliseconds(), how), nil
}

// sortedLines sorts the lines of a text: sets are listed in any order.
func sortedLines(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ',' || r == '\t' || r == '{' || r == '}' })
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return strings.Join(sortedCopy(words), "\n")
}

// changedLines returns the lines that only one of two texts has.
func changedLines(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	var all []string
	for _, line := range was {
		if !slices.Contains(is, line) {
			all = append(all, "-"+strings.TrimSpace(line))
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			all = append(all, "+"+strings.TrimSpace(line))
		}
	}
	return strings.Join(all, " | ")
}

// quietTime without a failed connection means that the connections of a node work again.
const quietTime = time.Second

// recovery measures how long clients on a node see connections fail after an action.
func (s *scene) recovery(ctx context.Context, node shape.Node, do func() error) (time.Duration, error) {
	service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	client, err := s.CoreV1().Pods(s.namespace).Get(ctx, "client-"+node.Name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	p := probe{
		namespace: shape.PodNamespace(s.cluster.Shape().Name, string(client.UID)), network: "tcp",
		to: netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), 81), timeout: 250 * time.Millisecond,
	}
	if err := do(); err != nil {
		return 0, err
	}
	// Connections follow each other without a pause.
	begun := time.Now()
	for last := begun; ; {
		sent := time.Now()
		if _, _, err = exchange(ctx, p); err != nil {
			last = sent
		} else if time.Since(last) >= quietTime {
			return last.Sub(begun), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("connections do not work again: %w", errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// probeService is the Service by which proxies probe their nodes.
const probeService = "vicinity-proxy-probe"

// probeFailure returns the failure of the last probe from the Lease of a node's proxy; empty if the
// probe passed.
func (s *scene) probeFailure(ctx context.Context, node string) (string, error) {
	lease, err := s.CoordinationV1().Leases(vicinityNamespace).Get(ctx, "vicinity-proxy-"+node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return lease.Annotations[v1alpha1.AnnotationProbeFailure], nil
}

// foreignTable returns the commands of nft that add and remove a table which translates the probe's
// address before the rules of vicinity-proxy do.
func (s *scene) foreignTable(ctx context.Context) (add, remove string, err error) {
	probe, err := s.CoreV1().Services(vicinityNamespace).Get(ctx, probeService, metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	address, err := netip.ParseAddr(probe.Spec.ClusterIP)
	if err != nil {
		return "", "", err
	}
	family, nowhere := "ip", "192.0.2.77"
	if address.Is6() {
		family, nowhere = "ip6", "2001:db8::77"
	}
	table := family + " translates-first"
	return fmt.Sprintf("table %s { chain output { type nat hook output priority -102; %s daddr %s dnat to %s; }; }", table, family, address, nowhere),
		"table " + table + "; delete table " + table, nil // works without the table too
}

// proxyProbed adds a foreign table on one node that translates the probe's address before the rules
// of vicinity-proxy do. A Service that asks for vicinity-proxy stays with kube-proxy, and its
// condition names that node. Without the table it is handed over.
func proxyProbed(ctx context.Context, s *scene) (figure string, err error) {
	const waits = v1alpha1.LeaseFresh/3 + 2*time.Second // the controller looks every third of LeaseFresh
	// A probe that passed before the table existed counts for 10 s.
	const trusted = 11 * time.Second
	check(s.deploy(ctx))
	node := s.cluster.Shape().Nodes()[0]
	add, removal, err := s.foreignTable(ctx)
	check(err)
	remove := func(ctx context.Context) error {
		_, err := s.nft(ctx, node, removal)
		return err
	}
	defer undo(&err, func() error { return remove(context.WithoutCancel(ctx)) })
	var noticed time.Duration
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		if _, err := s.nft(ctx, node, add); err != nil {
			return err
		}
		translated := time.Now()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(trusted):
		}
		if err := s.PatchService(ctx, s.namespace, "echo", byVicinity); err != nil {
			return err
		}
		named := "until vicinity-proxy is ready on node " + node.Name
		if err := kube.Wait(ctx, "the probe of "+node.Name+" to fail, and the Service to wait for it", func(ctx context.Context) (string, error) {
			failure, err := s.probeFailure(ctx, node.Name)
			if err != nil {
				return "", err
			}
			if !strings.Contains(failure, "does not end at vicinity-proxy") {
				return fmt.Sprintf("the Lease has the failure %q", failure), nil
			}
			service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if why := whyNotServed(service); !strings.Contains(why, named) {
				return why, nil
			}
			return "", nil
		}); err != nil {
			return err
		}
		noticed = time.Since(translated)
		if err := t.more(ctx, int64(newRate*waits.Seconds())); err != nil {
			return err
		}
		service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if why := whyNotServed(service); service.Labels["service.kubernetes.io/service-proxy-name"] != "" || !strings.Contains(why, named) {
			return fmt.Errorf("the Service no longer waits for node %s: its labels are %v, %s", node.Name, service.Labels, why)
		}
		for _, other := range s.cluster.Shape().Nodes()[1:] {
			if failure, err := s.probeFailure(ctx, other.Name); err != nil || failure != "" {
				return errors.Join(fmt.Errorf("the probe of %s fails too: %s", other.Name, failure), err)
			}
		}
		if err := remove(ctx); err != nil {
			return err
		}
		if err := s.waitServedBy(ctx, "echo", true); err != nil {
			return err
		}
		return t.more(ctx, newRate)
	}))
	return fmt.Sprintf("kube-proxy's while a foreign table came first on one node, reported by the probe and the Service within %.0f s, and handed over without the table; %s", noticed.Seconds(), u), nil
}
