package watcher

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// An absent resource is listed again until the API has it. With Empty, nothing is logged before.
func TestOptional(t *testing.T) {
	for name, empty := range map[string]runtime.Object{"with the error": nil, "with an empty list": &corev1.PodList{}} {
		t.Run(name, func(t *testing.T) {
			lists, absent, errors := 0, 0, 0
			watched := make(chan struct{})
			inner := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if lists++; lists <= 2 {
						return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")
					}
					return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					close(watched)
					return watch.NewFake(), nil
				},
			}
			source := &Optional{ListerWatcher: ListFirst{inner}, Lacks: apierrors.IsNotFound, Absent: func(error) { absent++ }, Empty: empty}
			var replaced []int
			store := &Store[*corev1.Pod]{Replace: func(list []*corev1.Pod, _ string) { replaced = append(replaced, len(list)) }}
			ctx, stop := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
				if strings.Contains(line, "Failed to watch") {
					errors++
				}
			}, funcr.Options{})))
			options := cache.ReflectorOptions{Backoff: &wait.Backoff{Duration: time.Millisecond, Steps: 1}}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				Reflector("pods", source, store, options).RunWithContext(ctx)
			}()
			<-watched
			stop()
			<-ended
			wantReplaced, wantErrors := []int{1}, 2
			if empty != nil {
				wantReplaced, wantErrors = []int{0, 0, 1}, 0
			}
			if absent != 1 || lists != 3 || errors != wantErrors || !slices.Equal(replaced, wantReplaced) {
				t.Errorf("absent %d times, %d lists, %d errors logged, replaced by lists of %v", absent, lists, errors, replaced)
			}
		})
	}
}

// While the API lacks the resource, the pause before the next list doubles from Again up to MostAgain. A list ends it.
func TestOptionalWaitsLonger(t *testing.T) {
	const again, most = 10 * time.Second, 35 * time.Second
	for name, empty := range map[string]runtime.Object{"with the error": nil, "with an empty list": &corev1.PodList{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				absent := true
				source := &Optional{
					ListerWatcher: ListFirst{&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						if absent {
							return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")
						}
						return &corev1.PodList{}, nil
					}}},
					Lacks: apierrors.IsNotFound, Empty: empty, Again: again, MostAgain: most,
				}
				pause := func() time.Duration {
					began := time.Now()
					_, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
					if (err == nil) != (empty != nil || !absent) {
						t.Errorf("the list fails with %v", err)
					}
					if empty != nil && absent {
						if _, err := source.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
							t.Errorf("the watch of an absent resource ends with %v", err)
						}
					}
					return time.Since(began)
				}
				for i, want := range []time.Duration{again, 2 * again, most, most} {
					if got := pause(); got != want {
						t.Errorf("pause %d is %s, want %s", i, got, want)
					}
				}
				absent = false
				if got := pause(); got != 0 {
					t.Errorf("the pause after a list is %s, want none", got)
				}
				absent = true
				if got := pause(); got != again {
					t.Errorf("the first pause after a list is %s, want %s", got, again)
				}
			})
		})
	}
}
