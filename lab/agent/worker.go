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

// worker carries out the steps for one pod. Its state changes only in its own goroutine, to
// which others post functions.
type worker struct {
	agent  *agent
	node   *node
	folder string
	ended  chan struct{}

	mu      sync.Mutex
	mailbox []func()
	signal  chan struct{}

	// The rest belongs to run.
	ctx      context.Context
	pod      *corev1.Pod
	gone     bool
	record   *record
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

	// snap is what the kubelet API reads.
	snap snapshot
}

// newWorker returns the worker of a pod that is new, or that an earlier agent recorded.
func newWorker(n *node, pod *corev1.Pod, s *saved) *worker {
	w := &worker{
		agent: n.agent, node: n, folder: n.agent.State.Pod(string(pod.UID)),
		ended: make(chan struct{}), signal: make(chan struct{}, 1),
		pod: pod, begun: n.agent.now(),
		starting: map[string]bool{}, probes: map[string]context.CancelFunc{},
		hooks: map[string]context.CancelFunc{},
	}
	w.report.reported = &pod.Status
	w.record = &record{Node: n.Name, Hosts: n.shape.NodeAddrs(n.Node), Started: w.begun}
	if s != nil {
		w.record, w.slot = s.record, s.slot
		if w.slot != 0 {
			n.slots.hold(w.slot)
		}
	}
	w.volumes = volumes{worker: w}
	return w
}

// post calls f in the worker's goroutine.
func (w *worker) post(f func()) {
	w.mu.Lock()
	w.mailbox = append(w.mailbox, f)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	defer close(w.ended)
	w.ctx = ctx
	if !w.takeOver() {
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
		mail := w.mailbox
		w.mailbox = nil
		w.mu.Unlock()
		for _, f := range mail {
			f()
		}
		// A stopped node neither acts nor reports.
		if w.node.stopped.Load() {
			continue
		}
		wake := w.work()
		if w.finished {
			w.cleanUp()
			return
		}
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(wake.Sub(w.agent.now()), 0))
		}
	}
}

// takeOver makes the pod's folder, and adopts what an earlier agent left running.
func (w *worker) takeOver() bool {
	if err := os.MkdirAll(filepath.Join(w.folder, containersFolder), 0o700); err != nil {
		w.agent.Log.Error("pod folder cannot be made", "pod", w.pod.Name, "error", err)
		return false
	}
	if err := writeJSON(filepath.Join(w.folder, podFile), w.pod); err != nil {
		w.agent.Log.Error("pod cannot be noted", "pod", w.pod.Name, "error", err)
	}
	w.adopt()
	w.save()
	return true
}

func (w *worker) update(pod *corev1.Pod) {
	if isOlder(pod, w.pod) {
		return
	}
	changed := pod.Generation != w.pod.Generation || pod.DeletionTimestamp != w.pod.DeletionTimestamp
	w.pod = pod
	if !w.report.busy {
		w.report.reported = &pod.Status
	}
	if changed {
		if err := writeJSON(filepath.Join(w.folder, podFile), pod); err != nil {
			w.agent.Log.Error("pod cannot be noted", "pod", pod.Name, "error", err)
		}
	}
}

// work does what has to be done now, and returns when to look again.
func (w *worker) work() time.Time {
	now := w.agent.now()
	for {
		s := next(w.pod, w.gone, w.record, now)
		if !w.perform(s, now) {
			wake := s.Wake
			setEarlier(&wake, w.reportStatus(now))
			if now.Before(w.retry) {
				setEarlier(&wake, w.retry)
			}
			setEarlier(&wake, w.volumes.refresh(now))
			w.publish()
			return wake
		}
		w.save()
	}
}

func setEarlier(t *time.Time, other time.Time) {
	if !other.IsZero() && (t.IsZero() || other.Before(*t)) {
		*t = other
	}
}

// perform carries out a step, or starts to. It reports whether the record has changed.
func (w *worker) perform(s step, now time.Time) bool {
	changed := false
	if s.Fail != nil {
		w.record.Failure = s.Fail
		return true
	}
	for _, name := range s.Kill {
		w.record.Containers[name].Stopping.Killed = true
		w.kill(w.record.Containers[name])
		changed = true
	}
	for name, deadline := range s.Stop {
		if w.record.Stopped.IsZero() {
			w.record.Stopped = now
		}
		w.stop(name, deadline, "Stopping container "+name)
		changed = true
	}
	for _, name := range s.Replace {
		w.record.Containers[name].Current.Replaced = true
		w.stop(name, now.Add(gracePeriod(w.pod)), fmt.Sprintf("Container %s definition changed, will be restarted", name))
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
		w.releaseNetwork()
	} else if s.Remove && !w.removing && w.report.isSettled() {
		w.deleteObject()
	}
	if w.gone && w.record.Released && !w.record.anyRunning() {
		w.finished = true
	}
	return changed
}

func (w *worker) cleanUp() {
	for _, cancel := range w.probes {
		cancel()
	}
	w.freeSlot()
	if err := os.RemoveAll(w.folder); err != nil {
		w.agent.Log.Error("pod folder cannot be removed", "pod", w.pod.Name, "error", err)
	}
}

func (w *worker) freeSlot() {
	if w.slot != 0 {
		w.node.slots.free(w.slot)
		w.slot = 0
	}
}
