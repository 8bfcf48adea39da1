package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

const (
	// lookEvery is the interval at which the leader looks at records. It skips a record at the first look: the API server needs a moment
	// to store the write after the webhook's answer.
	lookEvery = time.Second
	// storeTimeout is how long a write may take to be stored. After that it was refused elsewhere, or has conflicted.
	// It also bounds each attempt to annotate a workload, because webhooks of other owners may be slow.
	storeTimeout = 15 * time.Second
	// maxAttempts bounds the concurrent attempts, and longestBackoff the wait after repeated failures.
	maxAttempts    = 10
	longestBackoff = time.Minute
)

// record has the wanted replicas of a workload whose scale was written.
type record struct {
	Request   types.UID   `json:"request"` // makes records of a workload unique
	Kind      pacing.Kind `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	UID       types.UID   `json:"uid"`
	// Replicas is the number in the write. The record counts once the workload has it.
	Replicas int32 `json:"replicas"`
	// Wanted is nil if the scale-down ends.
	Wanted *int32 `json:"wanted,omitempty"`
}

// errNotStored reports that the write of a record is not stored.
var errNotStored = errors.New("the write is not stored")

// records are stored in a ConfigMap before the answer to a write, until the leader has annotated the workload. So a process that ends in
// between loses nothing.
type records struct {
	live   client.Reader
	writer client.Writer
	object types.NamespacedName
	clock  clock.Clock
	log    logr.Logger
	// seen are the records that the leader has seen, and attempts its running attempts.
	seen     map[types.UID]*observation
	attempts errgroup.Group
}

// observation is a stored record, and since when the leader has seen it.
type observation struct {
	text  string
	since time.Time
	busy  atomic.Bool // an attempt is running, and owns the backoff
	// backoff spaces failed attempts.
	backoff shell.Backoff
}

func newRecords(live client.Reader, writer client.Writer, namespace string, log logr.Logger) *records {
	r := &records{
		live: live, writer: writer, object: types.NamespacedName{Namespace: namespace, Name: v1alpha1.ConfigMapScaleDowns},
		clock: clock.RealClock{}, log: log,
	}
	r.attempts.SetLimit(maxAttempts)
	return r
}

// store stores a record. It replaces an older one of the workload.
func (r *records) store(ctx context.Context, what record) error {
	encoded, err := json.Marshal(what)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"data": map[types.UID]string{what.UID: string(encoded)}})
	if err != nil {
		return err
	}
	if err := r.patch(ctx, types.MergePatchType, body); err != nil {
		return fmt.Errorf("storing the wanted replicas of %s %s/%s in ConfigMap %s: %w", what.Kind, what.Namespace, what.Name, r.object, err)
	}
	return nil
}

// annotate writes the annotations of a workload by its record, and removes the record.
func (r *records) annotate(ctx context.Context, uid types.UID, text string) error {
	var what record
	if err := json.Unmarshal([]byte(text), &what); err != nil || what.UID != uid {
		r.log.Info("Removing an unreadable record of a scale-down", "record", text)
		return r.remove(ctx, uid, text)
	}
	w, err := pacing.Read(ctx, r.live, what.Kind, types.NamespacedName{Namespace: what.Namespace, Name: what.Name})
	if err != nil {
		return err
	}
	if w != nil && w.Object.GetUID() == uid && w.Replicas != what.Replicas {
		return fmt.Errorf("%w: %s has %d replicas instead of %d", errNotStored, w, w.Replicas, what.Replicas)
	}
	all, err := r.stored(ctx)
	switch {
	case err != nil:
		return err
	case all[string(uid)] != text: // another process was faster, or a newer record exists
		return nil
	case w == nil || w.Object.GetUID() != uid:
		return r.remove(ctx, uid, text)
	}
	values := map[string]*string{v1alpha1.AnnotationWantedReplicas: nil, v1alpha1.AnnotationPacedReplicas: nil}
	if what.Wanted != nil && *what.Wanted < what.Replicas {
		values[v1alpha1.AnnotationWantedReplicas] = new(strconv.Itoa(int(*what.Wanted)))
		values[v1alpha1.AnnotationPacedReplicas] = new(strconv.Itoa(int(what.Replicas)))
	}
	if _, err := pacing.Annotate(ctx, r.writer, *w, values); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the wanted replicas of %s: %w", w, err)
	}
	return r.remove(ctx, uid, text)
}

// remove removes a record, unless a newer one has replaced it.
func (r *records) remove(ctx context.Context, uid types.UID, text string) error {
	path := shell.Pointer("data", string(uid))
	body, err := json.Marshal([]shell.Operation{shell.Test(path, text), shell.Remove(path)})
	if err != nil {
		return err
	}
	if err := r.patch(ctx, types.JSONPatchType, body); err != nil {
		if all, unread := r.stored(ctx); unread == nil && all[string(uid)] != text {
			return nil
		}
		return fmt.Errorf("removing a record of ConfigMap %s: %w", r.object, err)
	}
	return nil
}

func (r *records) patch(ctx context.Context, kind types.PatchType, body []byte) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.object.Namespace, Name: r.object.Name}}
	return r.writer.Patch(ctx, object, client.RawPatch(kind, body))
}

func (r *records) stored(ctx context.Context) (map[string]string, error) {
	object := &corev1.ConfigMap{}
	if err := r.live.Get(ctx, r.object, object); err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", r.object, err)
	}
	return object.Data, nil
}

// Start implements manager.Runnable.
func (r *records) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.look(ctx); err != nil && ctx.Err() == nil {
			r.log.Error(err, "Cannot read the records of scale-downs; trying again")
		}
	}, lookEvery)
	return r.attempts.Wait()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *records) NeedLeaderElection() bool { return true }

// look starts an attempt for each record that is neither new nor waiting. It does not wait for attempts, so that no record delays
// another.
func (r *records) look(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := r.stored(reading)
	if err != nil {
		return err
	}
	now, known := r.clock.Now(), r.seen
	r.seen = make(map[types.UID]*observation, len(all))
	for key, text := range all {
		uid := types.UID(key)
		o := known[uid]
		if o == nil || o.text != text {
			r.seen[uid] = &observation{text: text, since: now}
			continue
		}
		r.seen[uid] = o
		if o.busy.Load() || o.backoff.Wait(now) > 0 {
			continue
		}
		o.busy.Store(true)
		begun := r.attempts.TryGo(func() error {
			defer o.busy.Store(false)
			r.attempt(ctx, uid, o)
			return nil
		})
		if !begun { // the next look may have room
			o.busy.Store(false)
		}
	}
	return nil
}

// attempt annotates the workload of a record. After each failure the next attempt waits longer.
func (r *records) attempt(ctx context.Context, uid types.UID, o *observation) {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := r.annotate(bounded, uid, o.text)
	if errors.Is(err, errNotStored) {
		if r.clock.Since(o.since) < storeTimeout {
			return
		}
		r.log.Info("A scale-down stops", "record", o.text, "error", err.Error())
		err = r.remove(bounded, uid, o.text)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	o.backoff.Fail(r.clock.Now(), lookEvery, longestBackoff)
	if !apierrors.IsConflict(err) {
		r.log.Error(err, "Cannot annotate the workload of a scale-down; trying again", "record", o.text)
	}
}
