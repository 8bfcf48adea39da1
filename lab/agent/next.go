package agent

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// leastGrace is what a container gets to end after its pre-stop hook, or after those
// that end before it, used the pod's grace up.
const leastGrace = 2 * time.Second

// step is what there is to do for a pod now.
type step struct {
	// Network: give the pod its network.
	Network bool
	// Start these containers.
	Start []string
	// Stop these, to be killed at their deadline; Kill these at once.
	Stop map[string]time.Time
	Kill []string
	// Replace these, which run another image than they are to.
	Replace []string
	// Fail the pod as a whole.
	Fail *reason
	// Release the network: nothing of the pod runs, and nothing will.
	Release bool
	// Remove the pod's object: it was to be deleted, and all of it ended.
	Remove bool
	// Wake is when to ask again if nothing happens before; zero: never.
	Wake time.Time
}

func (s *step) wakeAt(t time.Time) {
	if s.Wake.IsZero() || t.Before(s.Wake) {
		s.Wake = t
	}
}

func (s *step) stop(name string, deadline time.Time) {
	if s.Stop == nil {
		s.Stop = map[string]time.Time{}
	}
	s.Stop[name] = deadline
}

// next decides what to do for a pod. gone says that its object is no more.
func next(pod *corev1.Pod, gone bool, r *record, now time.Time) step {
	var s step
	deleted := gone || pod.DeletionTimestamp != nil
	if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil && !deleted && r.Failure == nil && !isOver(pod, r) {
		if at := r.Started.Add(seconds(*limit)); now.Before(at) {
			s.wakeAt(at)
		} else {
			s.Fail = &reason{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}
			return s
		}
	}
	for name, c := range r.Containers {
		if !c.running() || c.Stopping == nil || c.Stopping.Killed {
			continue
		}
		if at := c.Stopping.kill(); now.Before(at) {
			s.wakeAt(at)
		} else {
			s.Kill = append(s.Kill, name)
		}
	}
	switch {
	case deleted || isOver(pod, r):
		stopAll(pod, r, now, &s)
		if !r.anyRunning() {
			s.Release = !r.Released
			s.Remove = deleted && r.Released && !gone
		}
	case r.Network == "":
		s.Network = true
	default:
		replace(pod, r, &s)
		startEphemeral(pod, r, now, &s)
		if !startInit(pod, r, now, &s) {
			break
		}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if want(pod, c, false, r.Containers[c.Name]) {
				startAt(c.Name, r.Containers[c.Name], now, &s)
			}
		}
	}
	return s
}

// replace finds the containers whose image was changed since they were started. Init
// containers that are to end do so, and are not run again.
func replace(pod *corev1.Pod, r *record, s *step) {
	check := func(spec *corev1.Container) {
		c := r.Containers[spec.Name]
		// A record of an earlier version names no image.
		if c.running() && c.Stopping == nil && c.Current.Image != "" && c.Current.Image != spec.Image {
			s.Replace = append(s.Replace, spec.Name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if isSidecar(&pod.Spec.InitContainers[i]) {
			check(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		check(&pod.Spec.Containers[i])
	}
}

// startEphemeral starts the containers that were added to the pod, each once, whatever
// the others do.
func startEphemeral(pod *corev1.Pod, r *record, now time.Time, s *step) {
	for _, c := range ephemeral(pod) {
		if have := r.Containers[c.Name]; have == nil || have.Current == nil {
			startAt(c.Name, have, now, s)
		}
	}
}

// startInit starts the init container whose turn it is, and sidecars that ended. It
// reports whether the containers may start.
func startInit(pod *corev1.Pod, r *record, now time.Time, s *step) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		have := r.Containers[c.Name]
		if want(pod, c, true, have) {
			startAt(c.Name, have, now, s)
		}
		if !initDone(c, have) && !mainsBegan(pod, r) {
			return false
		}
	}
	return true
}

// initDone reports whether what comes after an init container may start.
func initDone(c *corev1.Container, have *container) bool {
	if isSidecar(c) {
		return have.running() && have.Started
	}
	return have.ended() && have.Current.ExitCode == 0
}

// mainsBegan reports whether a container of the pod was ever started: from then on a
// sidecar that ends holds nothing up.
func mainsBegan(pod *corev1.Pod, r *record) bool {
	for i := range pod.Spec.Containers {
		if c := r.Containers[pod.Spec.Containers[i].Name]; c != nil && c.Current != nil {
			return true
		}
	}
	return false
}

// want reports whether a container shall run and does not.
func want(pod *corev1.Pod, c *corev1.Container, init bool, have *container) bool {
	if have == nil || have.Current == nil {
		return true
	}
	return have.ended() && restarts(pod, c, init, have.Current)
}

func startAt(name string, have *container, now time.Time, s *step) {
	if have != nil && now.Before(have.NextStart) {
		s.wakeAt(have.NextStart)
		return
	}
	s.Start = append(s.Start, name)
}

// stopAll stops the containers, and when they ended the sidecars, the last one first.
func stopAll(pod *corev1.Pod, r *record, now time.Time, s *step) {
	since := r.Stopped
	if since.IsZero() {
		since = now
	}
	deadline := since.Add(grace(pod))
	running := false
	for _, c := range slices.Concat(pod.Spec.Containers, ephemeral(pod)) {
		running = stopOne(c.Name, r, deadline, s) || running
	}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0 && !running; i-- {
		c := &pod.Spec.InitContainers[i]
		if isSidecar(c) && deadline.Before(now.Add(leastGrace)) && grace(pod) > 0 {
			running = stopOne(c.Name, r, now.Add(leastGrace), s)
		} else {
			running = stopOne(c.Name, r, deadline, s)
		}
	}
}

// stopOne stops a container by the deadline unless it was told so before; a second,
// shorter deadline counts. It reports whether the container runs.
func stopOne(name string, r *record, deadline time.Time, s *step) bool {
	c := r.Containers[name]
	if !c.running() {
		return false
	}
	if c.Stopping == nil || (deadline.Before(c.Stopping.Deadline) && !c.Stopping.Killed) {
		s.stop(name, deadline)
	}
	return true
}

// grace is how long a pod's containers have to end.
func grace(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return seconds(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return 30 * time.Second
	}
}

// isOver reports whether a pod came to its end: it failed as a whole, an init container
// failed for good, or every container ended and none will start again.
func isOver(pod *corev1.Pod, r *record) bool {
	if r.Failure != nil || podOver(pod) {
		return true
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		have := r.Containers[c.Name]
		if have.ended() && !isSidecar(c) && have.Current.ExitCode != 0 && !restarts(pod, c, true, have.Current) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		have := r.Containers[c.Name]
		if !have.ended() || restarts(pod, c, false, have.Current) {
			return false
		}
	}
	return true
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// backOffMessage is what a container says that waits for its next attempt.
func backOffMessage(pod *corev1.Pod, name string, wait time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, name, pod.Name, pod.Namespace, pod.UID)
}
