package evictions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/test/kube"
)

// Updater updates a StatefulSet.
type Updater string

// The updaters.
const (
	// ByRollout is a DomainRollout, a zone at a time.
	ByRollout Updater = "vicinity"
	// ByNative is the StatefulSet's own rolling update, a pod at a time, and ByNativeMax the same with
	// as many pods at a time as a zone has.
	ByNative    Updater = "native"
	ByNativeMax Updater = "native-max"
	// ByEvictor is a controller of the test that ignores zones, and evicts every pod that budgets
	// allow.
	ByEvictor Updater = "evictor"
)

// UpdateOptions describe the update of a StatefulSet that is spread over three zones.
type UpdateOptions struct {
	By        Updater
	Pods      int
	StartTime time.Duration
	// Within, if not zero, ends the measurement early.
	Within time.Duration
}

// UpdateFigures are the results of an update.
type UpdateFigures struct {
	UpdateOptions
	Took    time.Duration
	Updated int // fewer than all if it ended early
	Waves   Waves
	// Calls are the requests about pods and their updaters, as the API server counts them.
	Calls float64
}

// Whole is the time for all pods, at the measured pace.
func (f UpdateFigures) Whole() time.Duration {
	return f.Took * time.Duration(f.Pods) / time.Duration(max(1, f.Updated))
}

// CallsPerPod is the number of requests per updated pod.
func (f UpdateFigures) CallsPerPod() float64 { return f.Calls / float64(max(1, f.Updated)) }

const fleet = "fleet"

func (o UpdateOptions) manifests() string {
	strategy, more := "{type: OnDelete}", ByZone(fleet, "app", fleet, `maxUnavailable: "100%"`, "maxUnavailableDomains: 1")
	switch o.By {
	case ByRollout:
		more += rollout
	case ByNative:
		strategy, more = "{type: RollingUpdate}", ""
	case ByNativeMax:
		strategy, more = fmt.Sprintf("{type: RollingUpdate, rollingUpdate: {maxUnavailable: %d}}", o.Pods/3), ""
	}
	return strings.NewReplacer("$NAME", fleet, "$REPLICAS", strconv.Itoa(o.Pods), "$STRATEGY", strategy, "$LABELS", "", "$START_TIME", o.StartTime.String()).
		Replace(statefulSet + podTemplate + more)
}

// Update makes a StatefulSet, updates it and removes it.
func (f *Field) Update(ctx context.Context, o UpdateOptions) (figures UpdateFigures, err error) {
	figures.UpdateOptions = o
	if err := f.Apply(ctx, f.Namespace, o.manifests()); err != nil {
		return figures, err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, f.Delete(ctx, f.Namespace, o.manifests()), f.noPods(ctx))
	}()
	old, err := f.fleetReady(ctx, o.Pods)
	if err != nil {
		return figures, err
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return figures, err
	}
	defer h.Stop()
	before, err := f.requests(ctx)
	if err != nil {
		return figures, err
	}
	begun := time.Now()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"example.com/version":%q}}}}}`, begun.Format(time.RFC3339Nano))
	if _, err := f.AppsV1().StatefulSets(f.Namespace).Patch(ctx, fleet, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return figures, err
	}
	limited, cancel := context.WithCancel(ctx)
	if o.Within > 0 {
		limited, cancel = context.WithTimeout(ctx, o.Within)
	}
	defer cancel()
	var evictor sync.WaitGroup
	if o.By == ByEvictor {
		evictor.Go(func() { f.evictOld(limited, h, old) })
	}
	// Reading the history costs no counted request.
	err = kube.Wait(limited, "all pods to be updated", func(context.Context) (string, error) {
		if figures.Updated = h.healthyBut(old); figures.Updated < o.Pods {
			return fmt.Sprintf("%d of %d are", figures.Updated, o.Pods), nil
		}
		return "", nil
	})
	figures.Took = time.Since(begun)
	cancel()
	evictor.Wait()
	if err != nil && (o.Within == 0 || ctx.Err() != nil) {
		return figures, err
	}
	after, err := f.requests(ctx)
	if err != nil {
		return figures, err
	}
	figures.Calls = after - before
	figures.Waves = h.Waves(map[string]string{"app": fleet}, Domains(f.Shape))
	return figures, nil
}

// fleetReady waits until all pods are ready and their updater has seen that, and returns their
// revision.
func (f *Field) fleetReady(ctx context.Context, pods int) (revision string, err error) {
	err = kube.Wait(ctx, "all pods to be ready", func(ctx context.Context) (string, error) {
		set, err := f.AppsV1().StatefulSets(f.Namespace).Get(ctx, fleet, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		revision = set.Status.UpdateRevision
		if set.Status.ReadyReplicas != int32(pods) || revision == "" {
			return fmt.Sprintf("%d of %d are", set.Status.ReadyReplicas, pods), nil
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	return revision, f.AtRest(ctx)
}

func (f *Field) noPods(ctx context.Context) error {
	return kube.Wait(ctx, "the pods to be deleted", func(ctx context.Context) (string, error) {
		list, err := f.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + fleet})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d remain", len(list.Items)), nil
	})
}

// counted are the resources whose requests are counted, without nodes, their Leases and other
// unrelated ones.
var counted = []string{"pods", "statefulsets", "controllerrevisions", "domainrollouts", "topologydisruptionbudgets", "events"}

// requests returns the API server's number of requests about these resources, except watches, which
// are few.
func (f *Field) requests(ctx context.Context) (total float64, err error) {
	text, err := f.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	var lines bytes.Buffer
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("apiserver_request_total{")) && !bytes.Contains(line, []byte(`verb="WATCH"`)) {
			lines.Write(line)
		}
	}
	for _, resource := range counted {
		n, err := meter.SumMetric(bytes.NewReader(lines.Bytes()), "apiserver_request_total", `resource="`+resource+`"`)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// healthyBut counts the healthy pods of the StatefulSet with another revision.
func (h *History) healthyBut(revision string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.current {
		if p.healthy() && p.labels["app"] == fleet && p.labels["controller-revision-hash"] != revision {
			n++
		}
	}
	return n
}

// anyOf returns a random healthy pod of a revision that may accepts.
func (h *History) anyOf(revision string, may func(pod) bool) (pod, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.current { // in random order
		if p.healthy() && p.labels["app"] == fleet && p.labels["controller-revision-hash"] == revision && may(p) {
			return p, true
		}
	}
	return pod{}, false
}

const (
	// Limits of the evictor's pause for a zone after a refusal.
	leastPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// evictOld evicts the pods of a revision in any order, until the context ends. After a refusal it
// pauses for the pod's zone. The pause doubles with each refusal and is shortened at random.
func (f *Field) evictOld(ctx context.Context, h *History, revision string) {
	zones := Domains(f.Shape)
	asked := map[types.UID]bool{}
	pauses, until := map[string]time.Duration{}, map[string]time.Time{}
	tick := time.NewTicker(leastPause)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		p, found := h.anyOf(revision, func(p pod) bool { return !asked[p.uid] && now.After(until[zones[p.node]]) })
		if !found {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			continue
		}
		zone := zones[p.node]
		switch err := f.Evict(ctx, p.name, &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.uid))}); {
		case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			asked[p.uid], pauses[zone] = true, 0
		default:
			pauses[zone] = min(max(2*pauses[zone], leastPause), mostPause)
			until[zone] = now.Add(pauses[zone]/2 + rand.N(pauses[zone]/2))
		}
	}
}
