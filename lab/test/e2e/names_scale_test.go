package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/test/kube"
)

const (
	crowdPerNode = 200
	// crowdRate limits the pods written per second. The controller's limit of requests is higher,
	// so that no PodLocator waits for it.
	crowdRate = 150
	crowdQPS  = 500 // of the controller; PodLocators get half
	// crowdWriters limits the concurrent writes of pods. Each waits for its PodLocator, so that a
	// slow machine makes fewer changes and no queue grows.
	crowdWriters = 20
	// delayBound limits the median time from an address to its PodLocator, also on a busy machine.
	delayBound = 2 * time.Second
)

// locatorsAtScale writes pods to an API server, replaces a fifth of them, and relabels a node. Each
// change costs at most one write of a PodLocator, and a restart costs none.
func locatorsAtScale(ctx context.Context, s *scene) (figure string, err error) {
	pods := 2000
	if soaking() {
		pods = 50000
	}
	c := must(newCrowd(ctx, s, pods))
	defer undo(&err, func() error { return c.close(context.WithoutCancel(ctx)) })
	check(c.start())
	begun := time.Now()
	check(c.write(crowdRate, pods, c.add))
	written := time.Since(begun)
	check(c.measureMemory())
	check(c.write(crowdRate/2, pods/5, c.replace))
	check(c.awaitRemoved())
	check(c.measureMemory())
	writes := must(c.locatorWrites(""))
	changes := pods + 2*(pods/5)
	if writes > float64(changes) {
		return "", fmt.Errorf("%d pods were added or removed with %.0f writes of PodLocators, more than one each", changes, writes)
	}
	check(c.relabel())
	restart := must(c.restart())
	p50, p99 := meter.Quantile(c.delays, 0.5), meter.Quantile(c.delays, 0.99)
	if p50 > delayBound {
		return "", fmt.Errorf("the median time from an address to its PodLocator is %v, more than %v", p50.Round(time.Millisecond), delayBound)
	}
	return fmt.Sprintf("%d pods in %.0f s and a fifth replaced: %.3f writes a change, address to PodLocator in %v, %v at p99, controller %d MiB; a node relabelled: %d writes; restarted in %.1f s without any",
		pods, written.Seconds(), writes/float64(changes), p50.Round(time.Millisecond), p99.Round(time.Millisecond), c.memory>>20, crowdPerNode, restart.Seconds()), nil
}

// crowd has pods in a lab without kubelets: the test writes their status.
type crowd struct {
	// ctx ends with the controller.
	ctx       context.Context
	lost      context.CancelCauseFunc
	cluster   *lab.Cluster
	api       kubernetes.Interface
	namespace string
	pods      int
	// folder has the controller's log, program is the path of its file, and metrics the address of
	// its metrics.
	folder, program string
	metrics         netip.AddrPort
	controller      *meter.Program
	memory          int64

	mu sync.Mutex
	// awaited has a channel for each pod that waits for its PodLocator; it receives the time when
	// the PodLocator is seen.
	awaited map[string]chan time.Time
	located int
	delays  []time.Duration
}

func newCrowd(ctx context.Context, s *scene, pods int) (c *crowd, err error) {
	wanted, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("crowd-%d", os.Getpid()), ControlPlaneOnly: true, SingleStack: true, Zones: []string{"a"}, NodesPerZone: []int{1},
	})
	if err != nil {
		return nil, err
	}
	c = &crowd{pods: pods, program: filepath.Join(filepath.Dir(s.options.Program), "vicinity-controller"), awaited: map[string]chan time.Time{}}
	c.ctx, c.lost = context.WithCancelCause(ctx)
	if c.cluster, err = lab.Up(ctx, wanted, s.options); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(context.WithoutCancel(ctx)))
		}
	}()
	if c.folder, err = os.MkdirTemp("", "vicinity-crowd-"); err != nil {
		return nil, err
	}
	client, err := c.cluster.Client()
	if err != nil {
		return nil, err
	}
	if err := client.ApplyCRDs(ctx); err != nil {
		return nil, err
	}
	if c.namespace, err = client.MakeNamespace(ctx, "crowd"); err != nil {
		return nil, err
	}
	config := client.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	for i := range pods / crowdPerNode {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: crowdNode(i), Labels: map[string]string{
			corev1.LabelHostname: crowdNode(i), corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelTopologyRegion: "here",
		}}}
		if _, err := c.api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return c, c.watch(client)
}

func crowdNode(i int) string { return fmt.Sprintf("crowd-%d", i) }

func crowdPod(i int) string { return fmt.Sprintf("pod-%d", i) }

// close stops the controller and removes the lab.
func (c *crowd) close(ctx context.Context) error {
	var err error
	if c.controller != nil {
		err = c.controller.Stop()
	}
	c.lost(nil)
	return errors.Join(err, lab.Down(ctx, c.cluster.Shape().Name, c.cluster.Options()), os.RemoveAll(c.folder))
}

// watch records PodLocators that are added and removed.
func (c *crowd) watch(client *lab.Client) error {
	watcher, err := metadata.NewForConfig(client.Config())
	if err != nil {
		return err
	}
	informer := metadatainformer.NewFilteredMetadataInformer(watcher, v1alpha1.GroupVersion.WithResource("podlocators"), c.namespace, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(func(object any) (any, error) {
		if l, ok := object.(*metav1.PartialObjectMetadata); ok {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, ResourceVersion: l.ResourceVersion}}, nil
		}
		return object, nil
	}); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			now := time.Now()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.located++
			if l, ok := object.(*metav1.PartialObjectMetadata); ok {
				if seen := c.awaited[l.Name]; seen != nil {
					seen <- now
					delete(c.awaited, l.Name)
				}
			}
		},
		DeleteFunc: func(any) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.located--
		},
	}); err != nil {
		return err
	}
	go informer.RunWithContext(c.ctx)
	if !cache.WaitForCacheSync(c.ctx.Done(), informer.HasSynced) {
		return context.Cause(c.ctx)
	}
	return nil
}

// start starts the controller, and waits until it has synced all pods and PodLocators.
func (c *crowd) start() error {
	health, err := meter.FreeAddress(c.ctx)
	if err != nil {
		return err
	}
	if c.metrics, err = meter.FreeAddress(c.ctx); err != nil {
		return err
	}
	c.controller, err = meter.Start("vicinity-controller", "", c.folder, c.lost, c.program,
		"--kubeconfig", c.cluster.Kubeconfig(), "--namespace", "vicinity-system", "--leader-elect=false", "--locators=all",
		"--kube-api-qps", strconv.Itoa(crowdQPS), "--kube-api-burst", strconv.Itoa(crowdQPS),
		"--metrics-bind-address", c.metrics.String(), "--health-probe-bind-address", health.String())
	if err != nil {
		return err
	}
	return kube.Wait(c.ctx, "the controller to know all pods", func(ctx context.Context) (string, error) {
		if _, err := meter.Page(ctx, nil, health, "/readyz"); err != nil {
			return err.Error(), nil // it still starts
		}
		return "", nil
	})
}

// sum adds up a metric of the controller over the series whose labels contain a text.
func (c *crowd) sum(metric, label string) (float64, error) {
	page, err := meter.Page(c.ctx, nil, c.metrics, "/metrics")
	if err != nil {
		return 0, err
	}
	return meter.SumMetric(strings.NewReader(page), metric, label)
}

func (c *crowd) locatorWrites(label string) (float64, error) {
	return c.sum("vicinity_locator_writes_total", label)
}

// measureMemory records the controller's highest memory.
func (c *crowd) measureMemory() error {
	held, err := c.controller.Memory()
	c.memory = max(c.memory, held)
	return err
}

// write calls do for so many pods, no faster than a rate.
func (c *crowd) write(rate float32, count int, do func(context.Context, int) error) error {
	pace := flowcontrol.NewTokenBucketRateLimiter(rate, 1)
	return meter.InParallel(c.ctx, crowdWriters, count, func(ctx context.Context, i int) error {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		return do(ctx, i)
	})
}

// add writes a pod as a scheduler and a kubelet do, first without an address, and waits for its PodLocator.
func (c *crowd) add(ctx context.Context, i int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: crowdPod(i), Labels: map[string]string{"app": "crowd"}},
		Spec: corev1.PodSpec{
			NodeName: crowdNode(i % (c.pods / crowdPerNode)), AutomountServiceAccountToken: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	if _, err := c.api.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	number := i % c.pods // a replacement has the old address
	ip := fmt.Sprintf("10.%d.%d.%d", number>>16, number>>8&0xff, number&0xff)
	seen := make(chan time.Time, 1)
	c.mu.Lock()
	c.awaited[pod.Name] = seen
	c.mu.Unlock()
	status := fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip)
	begun := time.Now()
	if _, err := c.api.CoreV1().Pods(c.namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("waiting for the PodLocator of %s: %w", pod.Name, context.Cause(ctx))
	case at := <-seen:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.delays = append(c.delays, at.Sub(begun))
		return nil
	}
}

// replace deletes a pod and adds another.
func (c *crowd) replace(ctx context.Context, i int) error {
	if err := c.api.CoreV1().Pods(c.namespace).Delete(ctx, crowdPod(i), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return err
	}
	return c.add(ctx, c.pods+i)
}

// awaitRemoved waits until the PodLocators of deleted pods are gone.
func (c *crowd) awaitRemoved() error {
	return kube.Wait(c.ctx, "the PodLocators of deleted pods to be gone", func(context.Context) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.located == c.pods {
			return "", nil
		}
		return fmt.Sprintf("%d exist for %d pods", c.located, c.pods), nil
	})
}

// relabel moves a node to another zone, which costs one write for each of its pods.
func (c *crowd) relabel() error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"elsewhere"}}}`, corev1.LabelTopologyZone)
	if _, err := c.api.CoreV1().Nodes().Patch(c.ctx, crowdNode(0), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	return kube.Wait(c.ctx, "the PodLocators of a relabelled node", func(context.Context) (string, error) {
		updates, err := c.locatorWrites(`operation="update"`)
		if err != nil {
			return "", err
		}
		if updates > crowdPerNode {
			return "", fmt.Errorf("relabelling a node with %d pods took %.0f writes", crowdPerNode, updates)
		}
		if updates < crowdPerNode {
			return fmt.Sprintf("%.0f of %d PodLocators are written", updates, crowdPerNode), nil
		}
		return "", nil
	})
}

// restart restarts the controller, which syncs all pods and must write nothing.
func (c *crowd) restart() (took time.Duration, err error) {
	stopped := c.controller
	c.controller = nil
	if err := stopped.Stop(); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := c.start(); err != nil {
		return 0, err
	}
	if err := kube.Wait(c.ctx, "a sync of each pod", func(context.Context) (string, error) {
		syncs, err := c.sum("vicinity_locator_syncs_total", "")
		if err != nil || syncs >= float64(c.pods) {
			return "", err
		}
		return fmt.Sprintf("%.0f of %d", syncs, c.pods), nil
	}); err != nil {
		return 0, err
	}
	took = time.Since(begun)
	writes, err := c.locatorWrites("")
	if err == nil && writes > 0 {
		err = fmt.Errorf("a restart took %.0f writes of PodLocators", writes)
	}
	return took, err
}
