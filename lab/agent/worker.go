package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// worker carries out what next says for one pod. All that changes happens in its own
// goroutine, to which others mail functions.
type worker struct {
	agent  *agent
	node   *node
	folder string
	ended  chan struct{}

	mu     sync.Mutex
	box    []func()
	signal chan struct{}

	// The rest belongs to run.
	ctx      context.Context
	pod      *corev1.Pod
	gone     bool
	r        *record
	slot     int
	begun    time.Time
	starting map[string]bool
	probes   map[string]context.CancelFunc
	hooks    map[string]context.CancelFunc // before containers are stopped
	busy     bool                          // with the pod's network
	removing bool                          // the pod's object
	failures int                           // in preparing the pod
	retry    time.Time
	finished bool
	volumes  volumes
	report   reporting

	// snap is what the kubelet API may look at.
	snap snapshot
}

// newWorker returns the worker of a pod that is new, or was saved by an earlier agent.
func newWorker(n *node, pod *corev1.Pod, s *saved) *worker {
	w := &worker{
		agent: n.agent, node: n, folder: n.agent.dir.Pod(string(pod.UID)),
		ended: make(chan struct{}), signal: make(chan struct{}, 1),
		pod: pod, begun: n.agent.now(),
		starting: map[string]bool{}, probes: map[string]context.CancelFunc{},
		hooks: map[string]context.CancelFunc{},
	}
	w.report.said = &pod.Status
	w.r = &record{Node: n.Name, Hosts: n.shape.NodeAddrs(n.Node), Started: w.begun}
	if s != nil {
		w.r, w.slot = s.record, s.slot
		if w.slot != 0 {
			n.slots.hold(w.slot)
		}
	}
	w.volumes = volumes{worker: w}
	return w
}

// mail has f called in the worker's goroutine.
func (w *worker) mail(f func()) {
	w.mu.Lock()
	w.box = append(w.box, f)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	defer close(w.ended)
	w.ctx = ctx
	if !w.take() {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-timer.C:
		}
		w.mu.Lock()
		mail := w.box
		w.box = nil
		w.mu.Unlock()
		for _, f := range mail {
			f()
		}
		// Behind a broken cable nothing is heard and nothing said.
		if w.node.stopped.Load() {
			continue
		}
		wake := w.work()
		if w.finished {
			w.clean()
			return
		}
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(wake.Sub(w.agent.now()), 0))
		}
	}
}

// take makes the pod's folder, and takes over what an earlier agent left running.
func (w *worker) take() bool {
	if err := os.MkdirAll(filepath.Join(w.folder, containersFolder), 0o700); err != nil {
		w.agent.log.Error("pod folder cannot be made", "pod", w.pod.Name, "error", err)
		return false
	}
	if err := writeJSON(filepath.Join(w.folder, podFile), w.pod); err != nil {
		w.agent.log.Error("pod cannot be noted", "pod", w.pod.Name, "error", err)
	}
	w.adopt()
	w.save()
	return true
}

// update takes in a new state of the pod's object.
func (w *worker) update(pod *corev1.Pod) {
	if older(pod, w.pod) {
		return
	}
	changed := pod.Generation != w.pod.Generation || pod.DeletionTimestamp != w.pod.DeletionTimestamp
	w.pod = pod
	if !w.report.busy {
		w.report.said = &pod.Status
	}
	if changed {
		if err := writeJSON(filepath.Join(w.folder, podFile), pod); err != nil {
			w.agent.log.Error("pod cannot be noted", "pod", pod.Name, "error", err)
		}
	}
}

// work does what is to be done now, and returns when to look again.
func (w *worker) work() time.Time {
	now := w.agent.now()
	for {
		s := next(w.pod, w.gone, w.r, now)
		if !w.perform(s, now) {
			wake := s.Wake
			earlier(&wake, w.tell(now))
			if now.Before(w.retry) {
				earlier(&wake, w.retry)
			}
			earlier(&wake, w.volumes.refresh(now))
			w.publish()
			return wake
		}
		w.save()
	}
}

// earlier sets t to other if that is earlier.
func earlier(t *time.Time, other time.Time) {
	if !other.IsZero() && (t.IsZero() || other.Before(*t)) {
		*t = other
	}
}

// perform carries a step out, or sets it going. It reports whether the record changed.
func (w *worker) perform(s step, now time.Time) bool {
	changed := false
	if s.Fail != nil {
		w.r.Failure = s.Fail
		return true
	}
	for _, name := range s.Kill {
		w.r.Containers[name].Stopping.Killed = true
		w.kill(w.r.Containers[name])
		changed = true
	}
	for name, deadline := range s.Stop {
		if w.r.Stopped.IsZero() {
			w.r.Stopped = now
		}
		w.stop(name, deadline, "Stopping container "+name)
		changed = true
	}
	for _, name := range s.Replace {
		w.r.Containers[name].Current.Replaced = true
		w.stop(name, now.Add(grace(w.pod)), fmt.Sprintf("Container %s definition changed, will be restarted", name))
		changed = true
	}
	if s.Network && !w.busy && !now.Before(w.retry) {
		w.busy = true
		w.prepare()
	}
	for _, name := range s.Start {
		if !w.starting[name] {
			w.starting[name] = true
			w.start(name)
		}
	}
	if len(w.starting) > 0 || w.busy {
		return changed
	}
	if s.Release {
		w.release()
	} else if s.Remove && !w.removing && w.report.settled() {
		w.remove()
	}
	if w.gone && w.r.Released && !w.r.anyRunning() {
		w.finished = true
	}
	return changed
}

// clean removes what is left of a pod.
func (w *worker) clean() {
	for _, cancel := range w.probes {
		cancel()
	}
	w.freeSlot()
	if err := os.RemoveAll(w.folder); err != nil {
		w.agent.log.Error("pod folder cannot be removed", "pod", w.pod.Name, "error", err)
	}
}

func (w *worker) freeSlot() {
	if w.slot != 0 {
		w.node.slots.free(w.slot)
		w.slot = 0
	}
}
