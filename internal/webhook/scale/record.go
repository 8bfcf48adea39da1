package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/pacing"
)

const (
	// annotateAfter is how long the API server has to store a write that it has got an answer about.
	annotateAfter = 500 * time.Millisecond
	// annotateTime is how long to wait for that write to be seen, and annotateEvery how often to look. One that is not seen was refused
	// elsewhere, or has conflicted.
	annotateTime, annotateEvery = 5 * time.Second, 500 * time.Millisecond
	// adoptEvery is how often the leader looks for records that nobody follows any more.
	adoptEvery = 5 * time.Second
)

// record is what is wanted of a workload whose scale was written.
type record struct {
	Request   types.UID   `json:"request"` // so that two records of a workload never read the same
	Kind      pacing.Kind `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	UID       types.UID   `json:"uid"`
	// Replicas are those that the write gives the workload. What is wanted counts once it has them.
	Replicas int32 `json:"replicas"`
	// Wanted is nil if nothing more is.
	Wanted *int32 `json:"wanted,omitempty"`
}

// errNotStored says that the write, which a record is about, is not stored.
var errNotStored = errors.New("its write is not stored")

// records are in a ConfigMap from before the answer to a write until the workload says what is wanted of it. A process that ends
// in between loses nothing: the leader goes on with what is left.
type records struct {
	live   client.Reader
	writer client.Writer
	object types.NamespacedName
	clock  clock.Clock
	log    logr.Logger
	// seen are records that the leader has seen, as they are stored, and since when.
	seen map[types.UID]observation
}

type observation struct {
	text  string
	since time.Time
}

func newRecords(live client.Reader, writer client.Writer, namespace string, log logr.Logger) *records {
	return &records{
		live: live, writer: writer, object: types.NamespacedName{Namespace: namespace, Name: v1alpha1.ConfigMapScaleDowns},
		clock: clock.RealClock{}, log: log, seen: map[types.UID]observation{},
	}
}

// storeAndFollow stores a record and has the workload say what is wanted later.
func (r *records) storeAndFollow(ctx context.Context, what record) error {
	text, err := r.store(ctx, what)
	if err == nil {
		go r.follow(what.UID, text)
	}
	return err
}

// store stores a record, in place of an older one of the workload.
func (r *records) store(ctx context.Context, what record) (text string, err error) {
	encoded, err := json.Marshal(what)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"data": map[types.UID]string{what.UID: string(encoded)}})
	if err != nil {
		return "", err
	}
	if err := r.patch(ctx, types.MergePatchType, body); err != nil {
		return "", fmt.Errorf("storing what is wanted of %s %s/%s in ConfigMap %s: %w", what.Kind, what.Namespace, what.Name, r.object, err)
	}
	return string(encoded), nil
}

// follow has the workload say what is wanted of it, once the write is stored.
func (r *records) follow(uid types.UID, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), annotateTime)
	defer cancel()
	r.clock.Sleep(annotateAfter)
	var last error
	err := wait.PollUntilContextCancel(ctx, annotateEvery, true, func(ctx context.Context) (done bool, _ error) {
		done, last = r.annotate(ctx, uid, text)
		return done, nil
	})
	if err != nil {
		r.log.Info("The scale-down is not noted yet: the leader looks after it", "record", text, "error", fmt.Sprint(last))
	}
}

// annotate writes the annotations of a workload by its record, and removes that. It reports whether that is done.
func (r *records) annotate(ctx context.Context, uid types.UID, text string) (done bool, err error) {
	var what record
	if err := json.Unmarshal([]byte(text), &what); err != nil || what.UID != uid {
		r.log.Info("A record of a scale-down makes no sense, and is removed", "record", text)
		return true, r.remove(ctx, uid, text)
	}
	w, err := pacing.Read(ctx, r.live, what.Kind, types.NamespacedName{Namespace: what.Namespace, Name: what.Name})
	if err != nil {
		return false, err
	}
	if w != nil && w.Object.GetUID() == uid && w.Replicas != what.Replicas {
		return false, fmt.Errorf("%w: %s has %d replicas, and was given %d", errNotStored, w, w.Replicas, what.Replicas)
	}
	all, err := r.stored(ctx)
	switch {
	case err != nil:
		return false, err
	case all[string(uid)] != text: // another process was quicker, or a newer one counts
		return true, nil
	case w == nil || w.Object.GetUID() != uid:
		return true, r.remove(ctx, uid, text)
	}
	values := map[string]*string{v1alpha1.AnnotationWantedReplicas: nil, v1alpha1.AnnotationPacedReplicas: nil}
	if what.Wanted != nil && *what.Wanted < what.Replicas {
		values[v1alpha1.AnnotationWantedReplicas] = new(strconv.Itoa(int(*what.Wanted)))
		values[v1alpha1.AnnotationPacedReplicas] = new(strconv.Itoa(int(what.Replicas)))
	}
	if _, err := pacing.Note(ctx, r.writer, *w, values); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("writing what is wanted of %s: %w", w, err)
	}
	return true, r.remove(ctx, uid, text)
}

// remove removes a record, unless a newer one is in its place.
func (r *records) remove(ctx context.Context, uid types.UID, text string) error {
	path := "/data/" + string(uid)
	body, err := json.Marshal([]operation{{"test", path, text}, {"remove", path, nil}})
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
		if err := r.adopt(ctx); err != nil && ctx.Err() == nil {
			r.log.Error(err, "Scale-downs whose process has ended are not looked after; the next look follows")
		}
	}, adoptEvery)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *records) NeedLeaderElection() bool { return true }

// adopt goes on with records that are older than whoever made them follows them, by the clock of this process.
func (r *records) adopt(ctx context.Context) error {
	all, err := r.stored(ctx)
	if err != nil {
		return err
	}
	var failed []error
	now, known := r.clock.Now(), r.seen
	r.seen = map[types.UID]observation{}
	for key, text := range all {
		uid := types.UID(key)
		was, found := known[uid]
		if !found || was.text != text {
			r.seen[uid] = observation{text, now}
			continue
		}
		r.seen[uid] = was
		if now.Sub(was.since) < annotateTime {
			continue
		}
		_, err := r.annotate(ctx, uid, text)
		if errors.Is(err, errNotStored) {
			r.log.Info("A scale-down does not go on", "record", text, "error", err.Error())
			err = r.remove(ctx, uid, text)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
