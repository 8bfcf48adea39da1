package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
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
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	// churnedServices is the number of Services whose endpoints change, churners that of concurrent
	// writers, each with Services of its own.
	churnedServices, churners = 16, 8
	// churnedPods answer for all of them.
	churnedPods = 30
	// churnPause is that of a writer after a write, for the API server of a small machine to take the rate.
	churnPause = 100 * time.Millisecond
	// watchRate is the rate per second of requests to the one that is asked.
	watchRate = 200
)

// endpointChurn has several writers change endpoints of Services all the time. All endpoints always
// answer, so no connection may fail. Afterwards rules are as of a new proxy.
func endpointChurn(ctx context.Context, s *scene) (string, error) {
	during := 10 * time.Second
	if soaking() {
		during = 5 * time.Minute
	}
	c := &churning{scene: s}
	if err := c.prepare(ctx); err != nil {
		return "", err
	}
	before, err := c.listings(ctx)
	if err != nil {
		return "", err
	}
	job, err := c.planLoadOf(ctx, c.name(0), load.Plan{Rate: watchRate, Duration: during})
	if err != nil {
		return "", err
	}
	limited, stop := context.WithTimeout(ctx, during)
	defer stop()
	churned := make(chan error, 1)
	go func() { churned <- c.churn(limited) }()
	result, err := c.runFlawless(ctx, job, load.Watch{})
	stop()
	if err := errors.Join(err, <-churned); err != nil {
		return "", err
	}
	// Restore all endpoints.
	if err := c.each(ctx, func(ctx context.Context, i int) error { return c.write(ctx, i, c.endpoints) }); err != nil {
		return "", err
	}
	if err := c.asFresh(ctx, before); err != nil {
		return "", err
	}
	return fmt.Sprintf("endpoints of %d Services written %d times in %s; %d connections, 0 failed; the rules of %d nodes are those of a fresh computation",
		churnedServices, c.writes.Load(), during, result.Answered, len(s.cluster.Shape().Nodes())), nil
}

// churning is what endpointChurn works with.
type churning struct {
	*scene
	api kubernetes.Interface
	// endpoints are all that there are.
	endpoints []discoveryv1.Endpoint
	writes    atomic.Int64
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
		node, ready := pod.Spec.NodeName, true
		zone := node[:strings.LastIndexByte(node, '-')]
		c.endpoints = append(c.endpoints, discoveryv1.Endpoint{
			Addresses: []string{podAddress(pod, corev1.IPv4Protocol).String()}, NodeName: &node, Zone: &zone,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	manifests := ""
	for i := range churnedServices {
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, annotations: {vicinity.dev/proxy: \"true\"}}\nspec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: 8080}]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s, endpointslice.kubernetes.io/managed-by: test}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: []\n", c.name(i))
	}
	if err := c.Apply(ctx, c.namespace, manifests); err != nil {
		return err
	}
	if err := c.each(ctx, func(ctx context.Context, i int) error { return c.write(ctx, i, c.endpoints) }); err != nil {
		return err
	}
	for i := range churnedServices {
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
			for i := w; i < churnedServices && err == nil; i += churners {
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

// churn writes until the context ends, each time other endpoints to a Service.
func (c *churning) churn(ctx context.Context) error {
	writers, failed := sync.WaitGroup{}, make(chan error, churners)
	for w := range churners {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for n := 0; ctx.Err() == nil; n++ {
				i := w + churners*(n%(churnedServices/churners))
				if err := c.write(ctx, i, someOf(c.endpoints, random)); err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				c.writes.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(churnPause):
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
