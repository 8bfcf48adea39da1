package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/test/kube"
)

// ledger counts events of the slices of a namespace by Service, as a proxy sees them.
type ledger struct {
	mu     sync.Mutex
	events map[string]int
	moves  map[string]int // endpoints that other zones use now
	// switches counts, for each slice, how often its hints came or went.
	switches map[string]map[string]int
	slices   map[string]*discoveryv1.EndpointSlice
	watching chan struct{}
	stop     context.CancelFunc
}

// watchSlices starts a ledger.
func (s *scene) watchSlices(ctx context.Context) (*ledger, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &ledger{slices: map[string]*discoveryv1.EndpointSlice{}, watching: make(chan struct{}), stop: stop}
	l.reset()
	list, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, err
	}
	for i := range list.Items {
		l.slices[list.Items[i].Name] = &list.Items[i]
	}
	w, err := s.DiscoveryV1().EndpointSlices(s.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer close(l.watching)
		for event := range w.ResultChan() {
			l.take(event)
		}
	}()
	return l, nil
}

// reset forgets what was counted.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.moves, l.switches = map[string]int{}, map[string]int{}, map[string]map[string]int{}
}

func (l *ledger) take(event watch.Event) {
	slice, ok := event.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	service := slice.Labels[discoveryv1.LabelServiceName]
	l.events[service]++
	before := hintsOf(l.slices[slice.Name])
	if event.Type == watch.Deleted {
		delete(l.slices, slice.Name)
		return
	}
	after := hintsOf(slice)
	if l.slices[slice.Name] != nil && isHinted(before) != isHinted(after) {
		if l.switches[service] == nil {
			l.switches[service] = map[string]int{}
		}
		l.switches[service][slice.Name]++
	}
	for address, zones := range after {
		if had, ok := before[address]; ok && had != "" && zones != "" && had != zones {
			l.moves[service]++
		}
	}
	l.slices[slice.Name] = slice
}

// hintsOf returns the zones in the hints, by address.
func hintsOf(slice *discoveryv1.EndpointSlice) map[string]string {
	hints := map[string]string{}
	if slice == nil {
		return hints
	}
	for _, endpoint := range slice.Endpoints {
		var zones []string
		if endpoint.Hints != nil {
			for _, zone := range endpoint.Hints.ForZones {
				zones = append(zones, zone.Name)
			}
		}
		slices.Sort(zones)
		for _, address := range endpoint.Addresses {
			hints[address] = strings.Join(zones, ",")
		}
	}
	return hints
}

// isHinted reports whether an endpoint has hints.
func isHinted(hints map[string]string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(hints)), func(zones string) bool { return zones != "" })
}

// mostSwitches returns how often the hints of a slice of the Service came or went at most.
func (l *ledger) mostSwitches(service string) (most int) {
	for _, number := range l.switches[service] {
		most = max(most, number)
	}
	return most
}

// end stops the ledger. After that its counts can be read.
func (l *ledger) end() {
	l.stop()
	<-l.watching
}

// count returns the number of events of a Service so far.
func (l *ledger) count(service string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[service]
}

// waitQuiet waits until the slices of "echo" have not changed for a while: no two controllers revert
// each other's writes.
func (l *ledger) waitQuiet(ctx context.Context) error {
	last, since := l.count("echo"), time.Now()
	return kube.Wait(ctx, fmt.Sprintf("the slices of echo to stay unchanged for %s", settleTime), func(context.Context) (string, error) {
		if now := l.count("echo"); now != last {
			last, since = now, time.Now()
		}
		if rest := settleTime - time.Since(since); rest > 0 {
			return fmt.Sprintf("for %s more", rest.Round(time.Millisecond)), nil
		}
		return "", nil
	})
}

// settleTime exceeds the pauses of Kubernetes' controller and of Vicinity's.
const settleTime = 2500 * time.Millisecond

// twin returns a Service with the pods of "echo" and other annotations.
func twin(name, annotations string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, annotations: {%s}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: echo}
  ports: [{name: http, port: 80, targetPort: http}]
`, name, annotations)
}

// surge replaces all pods of a Deployment at once, by as many new ones.
const surge = "  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: \"100%\"}}\n"

// rollingUpdate replaces all endpoints at once, under load. Their number is below, at or above the
// starting threshold of 9, and twice as high meanwhile. A Service that prefers its zone, and one of
// the algorithm local, are compared with one of Auto and one without routing.
func rollingUpdate(ctx context.Context, s *scene) (string, error) {
	sizes := []int{5, 9, 13}
	if soaking() {
		sizes = []int{5, 6, 7, 8, 9, 10, 11, 12, 13}
	}
	replicas := fmt.Sprintf("  replicas: %d\n", sizes[0])
	check(s.Apply(ctx, s.namespace, localPolicy))
	check(s.serve(ctx, strings.Replace(patientEcho(lab.EchoManifests("echo", sizes[0])), replicas, replicas+surge, 1), sizes[0]))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	check(s.Apply(ctx, s.namespace, twin("local", `service.kubernetes.io/topology-mode: vicinity.dev/local`)+"---\n"+
		twin("auto", `service.kubernetes.io/topology-mode: Auto`)+"---\n"+twin("plain", "")))
	var figures []string
	for _, size := range sizes {
		figure, err := s.surged(ctx, size)
		if err != nil {
			return "", fmt.Errorf("%d endpoints: %w", size, err)
		}
		figures = append(figures, figure)
	}
	return "all pods replaced at once under load: " + strings.Join(figures, "; "), nil
}

// surged replaces all pods by as many new ones. It returns the effects, or an error if they are out
// of bounds.
func (s *scene) surged(ctx context.Context, size int) (figure string, err error) {
	routed := []string{"echo", "local"}
	converged := func() (err error) {
		for _, service := range routed {
			_, failed := s.waitConverged(ctx, service, size)
			err = errors.Join(err, failed)
		}
		return err
	}
	if err := errors.Join(s.scale(ctx, "echo", int32(size)), converged()); err != nil {
		return "", err
	}
	l, err := s.watchSlices(ctx)
	if err != nil {
		return "", err
	}
	defer l.end()
	if err := l.waitQuiet(ctx); err != nil {
		return "", err
	}
	l.reset()
	result, err := s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 300}}, func(ctx context.Context) error {
		return s.redeploy(ctx, patientDrain, quietDrain)
	})
	if err = errors.Join(err, converged()); err != nil {
		return "", err
	}
	if err := l.waitQuiet(ctx); err != nil {
		return "", err
	}
	l.end()
	for _, service := range routed {
		figure += fmt.Sprintf("%s: %d writes of slices, %d endpoints moved, %d changes of state; ", service, l.events[service], l.moves[service], l.mostSwitches(service))
	}
	figure = fmt.Sprintf("%d endpoints (%snot routed: %d writes; Auto: %d; %d requests, 0 failed)", size, figure, l.events["plain"], l.events["auto"], result.Answered)
	for _, service := range routed {
		// Each write of Kubernetes may be followed by one of Vicinity. Each endpoint, old or new, of
		// two families, may move once. Planning may start with the new pods and stop without the old.
		if l.events[service] > 2*l.events["plain"] || l.moves[service] > 2*2*size || l.mostSwitches(service) > 2 {
			return "", fmt.Errorf("%s: %s; want at most twice the writes without routing, %d moves, and 2 changes of state", service, figure, 2*2*size)
		}
	}
	return figure, nil
}

// churn kills pods one after the other, of a balanced Service, then of one that prefers its zone, and
// then of the same with the mark for Cilium. The slices of the latter do not change more often, and
// come to rest.
func churn(ctx context.Context, s *scene) (figure string, err error) {
	kills := 12
	if soaking() {
		kills = 500
	}
	check(s.route(ctx, 12, balancedZone))
	without := must(s.churned(ctx, kills))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	check(s.WaitHints(ctx, s.namespace, "echo", true))
	with := must(s.churned(ctx, kills))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cilium-config"}, Data: map[string]string{"kube-proxy-replacement": "true", "enable-service-topology": "true"}}
	configs := s.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	must(configs.Create(ctx, config, metav1.CreateOptions{}))
	defer func() {
		err = errors.Join(err, configs.Delete(context.WithoutCancel(ctx), config.Name, metav1.DeleteOptions{}))
	}()
	check(kube.Wait(ctx, "the mark for Cilium", func(ctx context.Context) (string, error) {
		service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
		if err != nil || service.Annotations[v1alpha1.AnnotationTopologyMode] == v1alpha1.MarkRouted {
			return "", err
		}
		return fmt.Sprintf("the Service has %v", service.Annotations), nil
	}))
	marked := must(s.churned(ctx, kills))
	// The batching of kills by Kubernetes' controller is random: this allows five standard
	// deviations of twelve kills. A write by Vicinity beside each of these would double the events.
	const chance = 1.25
	if max(with.events, marked.events) > chance*without.events {
		return "", fmt.Errorf("each killed pod changed the slices %.2f times, and %.2f times with the mark, but %.2f times when balanced", with.events, marked.events, without.events)
	}
	return fmt.Sprintf("for each killed pod %.2f watch events (%.2f with the mark, %.2f when balanced), %d endpoints moved by %d kills (%d with the mark), at rest afterwards",
		with.events, marked.events, without.events, with.moves, with.kills, marked.moves), nil
}

// unrest has the effects of killed pods on the slices of the Service; events are per kill.
type unrest struct {
	kills, moves int
	events       float64
}

func (s *scene) churned(ctx context.Context, kills int) (unrest, error) {
	if _, err := s.waitConverged(ctx, "echo", 12); err != nil {
		return unrest{}, err
	}
	l, err := s.watchSlices(ctx)
	if err != nil {
		return unrest{}, err
	}
	defer l.end()
	if err := l.waitQuiet(ctx); err != nil {
		return unrest{}, err
	}
	events := l.count("echo")
	u := unrest{}
	for ; u.kills < kills; u.kills++ {
		if err := s.killPod(ctx, u.kills); err != nil {
			return u, err
		}
		if err := s.WaitEndpoints(ctx, s.namespace, "echo", 12); err != nil {
			return u, err
		}
	}
	if _, err := s.waitConverged(ctx, "echo", 12); err != nil {
		return u, err
	}
	if err := l.waitQuiet(ctx); err != nil {
		return u, err
	}
	l.end()
	u.moves = l.moves["echo"]
	u.events = float64(l.events["echo"]-events) / float64(u.kills)
	return u, nil
}

// atOnce returns options that delete without a grace period.
func atOnce() metav1.DeleteOptions {
	none := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &none}
}

// killPod kills an echo pod, another one each time.
func (s *scene) killPod(ctx context.Context, turn int) error {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return err
	}
	var alive []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			alive = append(alive, list.Items[i].Name)
		}
	}
	if len(alive) == 0 {
		return errors.New("no echo pod exists")
	}
	slices.Sort(alive)
	return s.CoreV1().Pods(s.namespace).Delete(ctx, alive[turn%len(alive)], atOnce())
}

// waitControllers waits until two pods of the controller are ready.
func (s *scene) waitControllers(ctx context.Context) error {
	return kube.Wait(ctx, "the controller's pods", func(ctx context.Context) (string, error) {
		pods, err := controllers(ctx, s.Client)
		if err != nil {
			return "", err
		}
		if len(pods) < 2 {
			return fmt.Sprintf("%d pods are ready", len(pods)), nil
		}
		return "", nil
	})
}

// allHints returns the hints of all endpoints of the Service "echo".
func (s *scene) allHints(ctx context.Context) (map[string]string, error) {
	list, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=echo"})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i := range list.Items {
		maps.Copy(all, hintsOf(&list.Items[i]))
	}
	return all, nil
}

// controllerKilled kills all pods of the controller. No endpoint moves, and a change afterwards is
// planned.
func controllerKilled(ctx context.Context, s *scene) (string, error) {
	check(s.routeUneven(ctx, preferZone, 6, 4, 2))
	must(s.waitConverged(ctx, "echo", 12))
	// Kubernetes' controller syncs again after recent writes, which costs hints while the webhook
	// is away.
	settling := must(s.watchSlices(ctx))
	err := settling.waitQuiet(ctx)
	settling.end()
	check(err)
	before := must(s.allHints(ctx))
	l := must(s.watchSlices(ctx))
	defer l.end()
	pods := must(controllers(ctx, s.Client))
	for i := range pods {
		check(s.CoreV1().Pods(pods[i].Namespace).Delete(ctx, pods[i].Name, atOnce()))
	}
	check(s.waitControllers(ctx))
	check(s.waitLeader(ctx))
	check(l.waitQuiet(ctx))
	after := must(s.allHints(ctx))
	l.end()
	if !maps.Equal(before, after) || l.events["echo"] > 0 {
		return "", fmt.Errorf("a restart wrote slices %d times: hints were %v and are %v", l.events["echo"], before, after)
	}
	check(s.scale(ctx, "echo-"+s.cluster.Shape().Zones[2].Name, 6))
	must(s.waitConverged(ctx, "echo", 16))
	return "all pods of the controller killed: no slice written, no endpoint moved, and the next change was planned", nil
}

// replicas scales the controller and waits for its pods.
func (s *scene) replicas(ctx context.Context, number int32) error {
	return s.scaleIn(ctx, vicinityNamespace, "vicinity-controller", number)
}

// webhookAway removes all pods of the controller. Traffic continues, Kubernetes' updates of slices
// are not blocked, and everything is planned again afterwards.
func webhookAway(ctx context.Context, s *scene) (figure string, err error) {
	check(s.route(ctx, 12, preferZone))
	must(s.waitConverged(ctx, "echo", 12))
	check(s.replicas(ctx, 0))
	defer undo(&err, func() error { return s.replicas(context.WithoutCancel(ctx), 2) })
	took := must(s.replaced(ctx))
	// Proxies sync once a second.
	check(s.waitSettled(ctx))
	must(s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()}))
	check(s.replicas(ctx, 2))
	check(s.waitControllers(ctx))
	must(s.waitConverged(ctx, "echo", 12))
	if hinted, err := s.hinted(ctx, "echo"); err != nil || !hinted {
		return "", errors.Join(err, errors.New("the hints are not restored"))
	}
	return fmt.Sprintf("without Vicinity a killed pod left the slices after %.1f s and traffic went on; with it all traffic was near again", took.Seconds()), nil
}

// replaced kills an echo pod, and measures the time until it has left the slices.
func (s *scene) replaced(ctx context.Context) (time.Duration, error) {
	before, err := s.allHints(ctx)
	if err != nil {
		return 0, err
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return 0, err
	}
	listed := slices.IndexFunc(list.Items, func(pod corev1.Pod) bool {
		_, is := before[pod.Status.PodIP]
		return is
	})
	if listed < 0 {
		return 0, errors.New("no echo pod is in the slices")
	}
	victim := &list.Items[listed]
	begun := time.Now()
	if err := s.CoreV1().Pods(s.namespace).Delete(ctx, victim.Name, atOnce()); err != nil {
		return 0, err
	}
	err = kube.Wait(ctx, "the pod to leave the slices", func(ctx context.Context) (string, error) {
		after, err := s.allHints(ctx)
		if err != nil {
			return "", err
		}
		if _, there := after[victim.Status.PodIP]; there {
			return "still there", nil
		}
		return "", nil
	})
	return time.Since(begun), err
}
