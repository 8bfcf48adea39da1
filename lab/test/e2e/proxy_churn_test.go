package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	// churned is the number of Services whose endpoints change, churners that of concurrent
	// writers, each with Services of its own.
	churned, churners = 16, 8
	// churnedPods answer for all of them. A write changes about half of them, so that the
	// API server of a small machine can take the rate of writes.
	churnedPods = 30
	// churnRate limits the endpoints that come or go per second in all Services. Two fast
	// processors reach 770, slow ones a third of it.
	churnRate = 1000
	// minProgrammed is how many rules and elements the proxy of each node must change for each
	// endpoint that comes or goes. It merges changes that follow each other.
	minProgrammed = 0.1
	// takingTurns is how many endpoints exist in one half of the time only.
	takingTurns = 10
	// following is how long proxies may lag behind at this rate.
	following = 6 * time.Second
	// watched is the number of Services that get requests, watchRate their rate per second.
	watched, watchRate = 4, 50
	// stickyEvery is after how many writes one also changes session affinity, whose sets
	// and chains come and go too.
	stickyEvery = 10
)

// churnTime is how long that goes on.
func churnTime() time.Duration {
	if soaking() {
		return 5 * time.Minute
	}
	return 20 * time.Second
}

// endpointChurn changes endpoints of Services as fast as the machine can, up to churnRate.
// All endpoints always answer, so no connection may fail. All nodes follow: endpoints that
// left for good do not answer any more, and new ones do. Afterwards rules are as of a new
// proxy, and proxies hold as much memory as before.
func endpointChurn(ctx context.Context, s *scene) (string, error) {
	c := &churning{scene: s}
	if err := c.prepare(ctx); err != nil {
		return "", err
	}
	before, err := c.listings(ctx)
	if err != nil {
		return "", err
	}
	did, err := c.run(ctx, churnTime())
	if err != nil {
		return "", err
	}
	if err := did.followed(c.pods); err != nil {
		return "", err
	}
	// Restore all endpoints.
	if err := c.each(ctx, func(ctx context.Context, i int) error {
		return errors.Join(c.stick(ctx, i, corev1.ServiceAffinityNone), c.write(ctx, i, c.endpoints))
	}); err != nil {
		return "", err
	}
	if err := c.asFresh(ctx, before); err != nil {
		return "", err
	}
	jobs, err := c.jobs(ctx, time.Second)
	if err != nil {
		return "", err
	}
	final, err := c.ask(ctx, jobs, nil)
	if err != nil {
		return "", err
	}
	second, last, err := flat(did.held)
	if err != nil {
		return "", err
	}
	nodes := int64(len(s.cluster.Shape().Nodes()))
	return fmt.Sprintf("%.0f endpoints came or went in a second for %s, of which the proxy of a node programmed %.0f changes in a second at least; each node followed those that came and left for good; %d connections, 0 failed; a proxy held %d MiB in the second fifth of the time and %d MiB in the last; the rules of %d nodes are those of a fresh computation",
		did.rate, churnTime(), slices.Min(slices.Collect(maps.Values(did.programmed))), did.answers+final, second/nodes>>20, last/nodes>>20, nodes), nil
}

// churnRun is the result of a run.
type churnRun struct {
	// rate is how many endpoints came or went in a second.
	rate    float64
	answers int64
	// held is the memory of all proxies over time.
	held []int64
	// programmed is how many changes a proxy made in a second, by node.
	programmed map[string]float64
	// answering are the pods that answered the clients of each node in either half of the
	// time, after the proxies had time to follow.
	answering [2]map[string]map[string]bool
}

// followed returns an error if the proxy of a node changed too little, used endpoints that
// had left for good, or none of the new ones.
func (r churnRun) followed(pods []string) error {
	gone := [2][]string{pods[len(pods)-takingTurns:], pods[:takingTurns]}
	for node, programmed := range r.programmed {
		if programmed < minProgrammed*r.rate {
			return fmt.Errorf("the proxy of %s programmed %.1f changes in a second, in which %.0f endpoints came or went; at least %.0f are asked for",
				node, programmed, r.rate, minProgrammed*r.rate)
		}
		for half, answering := range r.answering {
			came := 0
			for pod := range answering[node] {
				if slices.Contains(gone[half], pod) {
					return fmt.Errorf("%s was answered by %s more than %s after it had left for good", node, pod, following)
				}
				if slices.Contains(gone[1-half], pod) {
					came++
				}
			}
			if came == 0 {
				return fmt.Errorf("%s was answered by none of the %d endpoints that came, although they had been there for %s", node, takingTurns, following)
			}
		}
	}
	return nil
}

// churning is what endpointChurn works with.
type churning struct {
	*scene
	api kubernetes.Interface
	// endpoints are all that there are, and pods their names.
	endpoints []discoveryv1.Endpoint
	pods      []string
	events    atomic.Int64
}

func (*churning) name(i int) string { return fmt.Sprintf("churned-%d", i) }

// prepare makes the Services, all with all endpoints.
func (c *churning) prepare(ctx context.Context) error {
	config := c.Config()
	config.QPS = -1 // this is about what the API server takes
	var err error
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := c.deployed(ctx, churnedPods, ""); err != nil {
		return err
	}
	pods, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		c.pods = append(c.pods, pod.Name)
		node, ready := pod.Spec.NodeName, true
		zone := node[:strings.LastIndexByte(node, '-')]
		c.endpoints = append(c.endpoints, discoveryv1.Endpoint{
			Addresses: []string{podAddress(pod, corev1.IPv4Protocol).String()}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	manifests := ""
	for i := range churned {
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, annotations: {vicinity.dev/proxy: \"true\"}}\nspec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080}]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: test}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: []\n", c.name(i))
	}
	if err := c.Apply(ctx, c.namespace, manifests); err != nil {
		return err
	}
	if err := c.each(ctx, func(ctx context.Context, i int) error { return c.write(ctx, i, c.endpoints) }); err != nil {
		return err
	}
	for i := range churned {
		if err := c.servedBy(ctx, c.name(i), true); err != nil {
			return err
		}
		if _, err := c.settledGroups(ctx, c.name(i), len(c.endpoints)); err != nil {
			return err
		}
	}
	return c.rulesRest(ctx)
}

// each does something for all Services, as many at once as there are churners.
func (*churning) each(ctx context.Context, do func(context.Context, int) error) error {
	failed := make(chan error, churners)
	for w := range churners {
		go func() {
			var err error
			for i := w; i < churned && err == nil; i += churners {
				err = do(ctx, i)
			}
			failed <- err
		}()
	}
	var all error
	for range churners {
		all = errors.Join(all, <-failed)
	}
	return all
}

// write gives a Service endpoints.
func (c *churning) write(ctx context.Context, i int, endpoints []discoveryv1.Endpoint) error {
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/endpoints", "value": endpoints}})
	if err != nil {
		return err
	}
	_, err = c.api.DiscoveryV1().EndpointSlices(c.namespace).Patch(ctx, c.name(i), types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// stick sets the session affinity of a Service.
func (c *churning) stick(ctx context.Context, i int, affinity corev1.ServiceAffinity) error {
	patch := fmt.Sprintf(`{"spec":{"sessionAffinity":%q,"sessionAffinityConfig":null}}`, affinity)
	_, err := c.api.CoreV1().Services(c.namespace).Patch(ctx, c.name(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// run has endpoints come and go for a while, has Services asked all the time, and looks
// how much memory proxies hold.
func (c *churning) run(ctx context.Context, during time.Duration) (r churnRun, err error) {
	jobs, err := c.jobs(ctx, during)
	if err != nil {
		return r, err
	}
	proxies, err := c.proxyProcesses(ctx)
	if err != nil {
		return r, err
	}
	before, err := c.programmed(ctx)
	if err != nil {
		return r, err
	}
	c.events.Store(0)
	begun := time.Now()
	limited, stop := context.WithDeadline(ctx, begun.Add(during))
	defer stop()
	churned, asked := make(chan error, 1), make(chan error, 1)
	go func() { churned <- c.churn(limited, begun, begun.Add(during/2)) }()
	go func() {
		var err error
		seen := &sightings{turn: begun.Add(during / 2), begun: begun}
		r.answers, err = c.ask(ctx, jobs, seen.note)
		r.answering = seen.pods
		asked <- err
	}()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for err == nil && limited.Err() == nil {
		var now int64
		if now, err = resident(proxies); err == nil {
			r.held = append(r.held, now)
		}
		select {
		case <-limited.Done():
		case <-ticker.C:
		}
	}
	stop()
	err = errors.Join(err, <-churned)
	took := time.Since(begun).Seconds()
	r.rate = float64(c.events.Load()) / took
	if err = errors.Join(err, <-asked); err != nil {
		return r, err
	}
	if r.programmed, err = c.programmed(ctx); err != nil {
		return r, err
	}
	for node := range r.programmed {
		r.programmed[node] = (r.programmed[node] - before[node]) / took
	}
	return r, nil
}

// sightings are the pods that answer while endpoints come and go.
type sightings struct {
	begun, turn time.Time
	mu          sync.Mutex
	// pods are those of churnRun.answering.
	pods [2]map[string]map[string]bool
}

// note notes who answered since the last time, if all of that was long enough after the turn
// for proxies to have followed it.
func (s *sightings) note(p load.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	half, from := 0, s.begun
	if p.Last.End.After(s.turn) {
		half, from = 1, s.turn
	}
	if p.Last.Start.Before(from.Add(following)) {
		return
	}
	if s.pods[half] == nil {
		s.pods[half] = map[string]map[string]bool{}
	}
	for _, flow := range p.Last.Flows {
		if s.pods[half][flow.Node] == nil {
			s.pods[half][flow.Node] = map[string]bool{}
		}
		s.pods[half][flow.Node][flow.To.Pod] = true
	}
}

// churn writes until the context ends. Some endpoints leave for good at a turn, and others
// come that were away until then.
func (c *churning) churn(ctx context.Context, begun, turn time.Time) error {
	writers, failed := sync.WaitGroup{}, make(chan error, churners)
	for w := range churners {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			last := map[int][]discoveryv1.Endpoint{}
			for n := 0; ctx.Err() == nil; n++ {
				i := w + churners*(n%(churned/churners))
				of := c.endpoints[:len(c.endpoints)-takingTurns]
				if time.Now().After(turn) {
					of = c.endpoints[takingTurns:]
				}
				next := someOf(of, random)
				if err := c.write(ctx, i, next); err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				if n%stickyEvery == 0 {
					affinity := []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}[random.IntN(2)]
					if err := c.stick(ctx, i, affinity); err != nil && ctx.Err() == nil {
						failed <- err
						return
					}
				}
				if last[i] == nil {
					last[i] = c.endpoints
				}
				events := c.events.Add(int64(differing(last[i], next)))
				last[i] = next
				// Writers that are ahead of the rate wait.
				due := begun.Add(time.Duration(float64(events) / churnRate * float64(time.Second)))
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(due)):
				}
			}
		})
	}
	writers.Wait()
	close(failed)
	var all error
	for err := range failed {
		all = errors.Join(all, err)
	}
	return all
}

// someOf are some endpoints of a list, from one to all.
func someOf(list []discoveryv1.Endpoint, random *rand.Rand) []discoveryv1.Endpoint {
	chosen := slices.Clone(list)
	random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen[:1+random.IntN(len(chosen))]
}

// differing is how many endpoints only one of two lists has.
func differing(a, b []discoveryv1.Endpoint) int {
	both := 0
	for i := range a {
		if slices.ContainsFunc(b, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == a[i].Addresses[0] }) {
			both++
		}
	}
	return len(a) + len(b) - 2*both
}

// jobs ask some of the Services for a while.
func (c *churning) jobs(ctx context.Context, during time.Duration) ([]lab.LoadJob, error) {
	var all []lab.LoadJob
	for i := range watched {
		job, err := c.planLoadOf(ctx, c.name(i), load.Plan{Rate: watchRate, Duration: during, Interval: 500 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		all = append(all, job)
	}
	return all, nil
}

// ask carries jobs out at once. No connection may fail.
func (c *churning) ask(ctx context.Context, jobs []lab.LoadJob, note func(load.Progress)) (answers int64, err error) {
	type ended struct {
		answers int64
		err     error
	}
	done := make(chan ended, len(jobs))
	for _, job := range jobs {
		go func() {
			result, err := c.runFlawless(ctx, job, load.Watch{Progress: note})
			done <- ended{result.Answered, err}
		}()
	}
	for range jobs {
		one := <-done
		answers, err = answers+one.answers, errors.Join(err, one.err)
	}
	return answers, err
}

// proxyProcesses are the numbers of the processes of all proxies.
func (s *scene) proxyProcesses(ctx context.Context) (all []int, err error) {
	status, err := s.cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, component := range status.Components {
		if strings.HasPrefix(component.Name, "vicinity-proxy-") {
			all = append(all, component.PID)
		}
	}
	if want := len(s.cluster.Shape().Nodes()); len(all) != want {
		return nil, fmt.Errorf("%d proxies are there, want %d", len(all), want)
	}
	return all, nil
}

// resident is how much memory some processes hold, in bytes.
func resident(processes []int) (total int64, err error) {
	for _, pid := range processes {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if err != nil {
			return 0, err
		}
		var size, pages int64
		if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
			return 0, fmt.Errorf("reading how much memory process %d holds: %w", pid, err)
		}
		total += pages * int64(os.Getpagesize())
	}
	return total, nil
}

// flat is an error if more memory is held in the last fifth of the time than in the second
// by more than a garbage collector makes of it.
func flat(held []int64) (second, last int64, err error) {
	fifth := len(held) / 5
	if fifth == 0 {
		return 0, 0, fmt.Errorf("memory was looked at %d times, which is too few", len(held))
	}
	second, last = middle(held[fifth:2*fifth]), middle(held[len(held)-fifth:])
	if most := second + second/5 + 32<<20; last > most {
		return 0, 0, fmt.Errorf("all proxies held %d MiB in the second fifth of the time and %d MiB in the last; at most %d MiB are allowed", second>>20, last>>20, most>>20)
	}
	return second, last, nil
}

// middle is the median.
func middle(values []int64) int64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// programmed is how many changes of rules and elements the proxy of each node has made.
func (c *churning) programmed(ctx context.Context) (map[string]float64, error) {
	changes := map[string]float64{}
	for _, node := range c.cluster.Shape().Nodes() {
		metrics, err := c.proxyMetrics(ctx, node)
		if err != nil {
			return nil, err
		}
		changes[node.Name] = metrics.sum("vicinity_proxy_transaction_changes_sum")
	}
	return changes, nil
}

// listings are the rules of all nodes.
func (c *churning) listings(ctx context.Context) (map[string]holds, error) {
	all := map[string]holds{}
	for _, node := range c.cluster.Shape().Nodes() {
		text, err := c.nft(ctx, node, "list", "table", "ip", "vicinity")
		if err != nil {
			return nil, err
		}
		all[node.Name] = heldBy(text)
	}
	return all, nil
}

// asFresh waits until each node has the rules that a proxy would make that starts from
// nothing, and those of before.
func (c *churning) asFresh(ctx context.Context, before map[string]holds) error {
	return kube.Wait(ctx, "rules to be those of a fresh computation", func(ctx context.Context) (string, error) {
		now, err := c.listings(ctx)
		if err != nil {
			return "", err
		}
		for _, node := range c.cluster.Shape().Nodes() {
			if difference := now[node.Name].differs(before[node.Name]); difference != "" {
				return fmt.Sprintf("what %s has is not what was there before: %s", node.Name, difference), nil
			}
			computed, err := c.fresh(ctx, node)
			if err != nil {
				return "", err
			}
			if difference := now[node.Name].counted().differs(computed.counted()); difference != "" {
				return fmt.Sprintf("what %s has is not what is computed: %s", node.Name, difference), nil
			}
		}
		return "", nil
	})
}

// fresh is what the rules of a node would be, as a dry run says.
func (c *churning) fresh(ctx context.Context, node shape.Node) (holds, error) {
	pods, err := c.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=proxy", FieldSelector: "spec.nodeName=" + node.Name,
	})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("%s has %d proxies, want 1", node.Name, len(pods.Items))
	}
	args := append([]string{"--dry-run", "--node-name=" + node.Name, "--kubeconfig=" + c.cluster.Kubeconfig(), "--lease-namespace=" + vicinityNamespace}, pods.Items[0].Spec.Containers[0].Args...)
	computed, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(c.options.Program), "vicinity-proxy"), args...).Output()
	if err != nil {
		return nil, fmt.Errorf("a dry run for %s: %w%s", node.Name, err, stderrOf(err))
	}
	first, _, _ := strings.Cut(string(computed), "table ip6 ")
	return heldBy(first), nil
}

// stderrOf is the error output of a program that failed.
func stderrOf(err error) string {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return ": " + strings.TrimSpace(string(failed.Stderr))
	}
	return ""
}

// holds are the elements or rules of the sets, maps and chains of a table, sorted.
type holds map[string][]string

// heldBy reads a listing. It ignores slot numbers and the clients that affinity remembers.
func heldBy(listing string) holds {
	all := holds{}
	name := ""
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "\t") || len(words) == 0:
		case words[0] == "}" && !strings.HasPrefix(line, "\t\t"):
			slices.Sort(all[name])
			name = ""
		case name == "":
			name = strings.Join(words[:2], " ")
			all[name] = nil
		case strings.HasPrefix(name, "chain "):
			rule, _, _ := strings.Cut(strings.TrimSpace(line), " comment ")
			all[name] = append(all[name], rule)
		case strings.HasPrefix(name, "map affinity-") || slices.Contains([]string{"type", "typeof", "flags", "comment", "size"}, words[0]):
		default:
			_, listed, begins := strings.Cut(line, "elements = {")
			if !begins {
				listed = line
			}
			for element := range strings.SplitSeq(strings.TrimRight(listed, " }\n"), ",") {
				if element = strings.TrimSpace(element); element != "" {
					all[name] = append(all[name], withoutSlot(name, element))
				}
			}
		}
	}
	return all
}

// withoutSlot is an element of a map of slots without its number.
func withoutSlot(name, element string) string {
	if name != "map slots" && name != "map local-slots" {
		return element
	}
	key, target, _ := strings.Cut(element, " : ")
	return key[:max(0, strings.LastIndex(key, " . "))] + " : " + target
}

// counted replaces the rules of each chain by their number: a dry run words some rules in
// another way than the kernel.
func (h holds) counted() holds {
	counted := maps.Clone(h)
	for name, rules := range h {
		if strings.HasPrefix(name, "chain ") {
			counted[name] = []string{fmt.Sprintf("%d rules", len(rules))}
		}
	}
	return counted
}

// differs says what one of two tables has that the other does not.
func (h holds) differs(other holds) string {
	names := maps.Clone(h)
	maps.Copy(names, other)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		has, known := h[name]
		want, wanted := other[name]
		switch {
		case !known || !wanted:
			return fmt.Sprintf("%s is there: %t, want %t", name, known, wanted)
		case !slices.Equal(has, want):
			return fmt.Sprintf("%s differs: %s", name, changedLines(strings.Join(want, "\n"), strings.Join(has, "\n")))
		}
	}
	return ""
}
