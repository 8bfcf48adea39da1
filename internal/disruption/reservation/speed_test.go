package reservation

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// instantServer stores statuses without using time of this process.
type instantServer struct {
	client.Client
	takes         time.Duration
	writes, lists atomic.Int64
	budgets       []metav1.PartialObjectMetadata

	mu     sync.Mutex
	stored map[string]int // versions
}

func (s *instantServer) Status() client.SubResourceWriter { return instantStatus{server: s} }

func (s *instantServer) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	time.Sleep(s.takes)
	s.lists.Add(1)
	if found, ok := list.(*metav1.PartialObjectMetadataList); ok {
		found.Items = s.budgets
	}
	return nil
}

type instantStatus struct {
	client.SubResourceWriter
	server *instantServer
}

func (w instantStatus) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	s := w.server
	time.Sleep(s.takes)
	s.writes.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.stored[object.GetName()]
	if version > 0 && object.GetResourceVersion() != strconv.Itoa(version) {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
	}
	version = max(version, 1000) + 1
	s.stored[object.GetName()] = version
	object.SetResourceVersion(strconv.Itoa(version))
	return nil
}

// BenchmarkAdmit admits evictions of 10,000 pods of a namespace, 200 at a time, under one budget and under 100. Pods return at once, and
// a write takes as long as at an API server.
func BenchmarkAdmit(b *testing.B) {
	const pods, together, writeTime = 10_000, 200, 2 * time.Millisecond
	for _, budgets := range []int{1, 100} {
		b.Run(fmt.Sprintf("budgets=%d", budgets), func(b *testing.B) {
			s := newServer(b)
			r := s.replica()
			fast := &instantServer{takes: writeTime, stored: map[string]int{}}
			for i := range budgets {
				budget := aBudget(fmt.Sprint(i), int32(together+pods))
				budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}
				budget.ResourceVersion = ""
				if err := s.Create(b.Context(), budget); err != nil {
					b.Fatal(err)
				}
				budget = s.budget(budget.Name)
				r.sees(budget)
				fast.budgets = append(fast.budgets, metav1.PartialObjectMetadata{ObjectMeta: budget.ObjectMeta})
			}
			r.client, r.lists.client = fast, fast
			var version atomic.Int64
			version.Store(pods)
			replace := func(i int) {
				v := int(version.Add(1))
				pod := aPod(i, v)
				pod.UID, pod.Labels["app"] = types.UID(strconv.Itoa(v)), fmt.Sprint(i%budgets)
				r.sees(pod)
			}
			for i := range pods {
				replace(i)
			}
			var next atomic.Int64
			var work sync.WaitGroup
			b.ResetTimer()
			for range together {
				work.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						i := int(n) % pods
						pod := r.CachedPod(types.NamespacedName{Namespace: shop, Name: fmt.Sprintf("web-%d", i)})
						r.want(pod, fmt.Sprint(n), true)
						r.misses(pod, int(version.Add(1)))
						replace(i)
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "evictions/s")
			b.ReportMetric(float64(fast.writes.Load())/float64(b.N), "writes/eviction")
			b.ReportMetric(float64(fast.lists.Load())/float64(b.N), "lists/eviction")
		})
	}
}
