package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/pacing"
)

const (
	// noteAfter is how long the API server has to store a write that it has got an answer about.
	noteAfter = 500 * time.Millisecond
	// noteTime is how long to wait for that write to be seen. One that is not was refused elsewhere, or has conflicted.
	noteTime = 5 * time.Second
)

// note is what is wanted of a workload whose scale was written, nil if nothing more. It counts once the workload has so many
// replicas.
type note struct {
	workload pacing.Workload
	replicas int32
	wanted   *int32
}

// notes write what is wanted after the writes that want it. Those under way are written before the process ends.
type notes struct {
	live   client.Reader
	writer client.Writer
	log    logr.Logger
	work   sync.WaitGroup

	mu sync.Mutex
	// newest counts the notes of each workload, of which only the last one counts.
	newest map[types.UID]int
}

func newNotes(live client.Reader, writer client.Writer, log logr.Logger) *notes {
	return &notes{live: live, writer: writer, log: log, newest: map[types.UID]int{}}
}

// Start implements manager.Runnable.
func (n *notes) Start(ctx context.Context) error {
	<-ctx.Done()
	n.work.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (n *notes) NeedLeaderElection() bool { return false }

func (n *notes) note(what note) {
	uid := what.workload.Object.GetUID()
	n.mu.Lock()
	n.newest[uid]++
	turn := n.newest[uid]
	n.mu.Unlock()
	n.work.Go(func() {
		if err := n.write(what, turn); err != nil {
			n.log.Error(err, "Wanted replicas are not noted, and the scale-down does not go on", "workload", what.workload.String())
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.newest[uid] == turn {
			delete(n.newest, uid)
		}
	})
}

func (n *notes) isNewest(what note, turn int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest[what.workload.Object.GetUID()] == turn
}

func (n *notes) write(what note, turn int) error {
	ctx, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	var last error
	time.Sleep(noteAfter)
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if !n.isNewest(what, turn) {
			return true, nil
		}
		var done bool
		done, last = n.try(ctx, what)
		return done, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// try writes a note, and reports whether it is done.
func (n *notes) try(ctx context.Context, what note) (bool, error) {
	w, err := pacing.Read(ctx, n.live, what.workload.Kind, client.ObjectKeyFromObject(what.workload.Object))
	switch {
	case err != nil:
		return false, err
	case w == nil || w.Object.GetUID() != what.workload.Object.GetUID():
		return true, nil
	case w.Replicas != what.replicas:
		return false, fmt.Errorf("it has %d replicas, and was given %d", w.Replicas, what.replicas)
	}
	values := map[string]*string{v1alpha1.AnnotationWantedReplicas: nil, v1alpha1.AnnotationPacedReplicas: nil}
	if what.wanted != nil && *what.wanted < what.replicas {
		values[v1alpha1.AnnotationWantedReplicas] = new(strconv.Itoa(int(*what.wanted)))
		values[v1alpha1.AnnotationPacedReplicas] = new(strconv.Itoa(int(what.replicas)))
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": w.Object.GetUID(), "resourceVersion": w.Object.GetResourceVersion(), "annotations": values,
	}})
	if err != nil {
		return false, err
	}
	switch err := n.writer.Patch(ctx, w.Object, client.RawPatch(types.MergePatchType, body)); {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("writing what is wanted of %s: %w", what.workload, err)
	}
	return true, nil
}
