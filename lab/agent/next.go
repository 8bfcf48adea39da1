package agent

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// minGrace is what a container gets to end if its pre-stop hook, or containers that end
// before it, used up the pod's grace period.
const minGrace = 2 * time.Second

type step struct {
	// Network asks for the pod's network.
	Network bool
	// Start lists containers to start.
	Start []string
	// Stop lists containers to stop, with the deadline to kill them at; Kill those to kill
	// now.
	Stop map[string]time.Time
	Kill []string
	// Replace lists containers to restart because their image has changed.
	Replace []string
	// Fail fails the pod as a whole.
	Fail *reason
	// Release frees the network: nothing of the pod runs or will run.
	Release bool
	// Remove deletes the pod's object: the pod was deleted and all of it has ended.
	Remove bool
	// Wake is when to decide again if nothing happens before; zero means never.
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

// next decides what to do for a pod. gone means that its object does not exist any more.
func next(pod *corev1.Pod, gone bool, r *record, now time.Time) step {
	var s step
	deleted := gone || pod.DeletionTimestamp != nil
	if limit := pod.Spec.ActiveDeadlineSeconds; limit != nil && !deleted && r.Failure == nil && !hasReachedEnd(pod, r) {
		if at := r.Started.Add(seconds(*limit)); now.Before(at) {
			s.wakeAt(at)
		} else {
			s.Fail = &reason{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}
			return s
		}
	}
	for name, c := range r.Containers {
		if !c.isRunning() || c.Stopping == nil || c.Stopping.Killed {
			continue
		}
		if at := c.Stopping.killAt(); now.Before(at) {
			s.wakeAt(at)
		} else {
			s.Kill = append(s.Kill, name)
		}
	}
	switch {
	case deleted || hasReachedEnd(pod, r):
		stopAll(pod, r, now, &s)
		if !r.anyRunning() {
			s.Release = !r.Released
			s.Remove = deleted && r.Released && !gone
		}
	case r.Network == "":
		s.Network = true
	default:
		findReplaced(pod, r, &s)
		startEphemeral(pod, r, now, &s)
		if !startInit(pod, r, now, &s) {
			break
		}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			if shouldStart(pod, c, false, r.Containers[c.Name]) {
				startWhenDue(c.Name, r.Containers[c.Name], now, &s)
			}
		}
	}
	return s
}

// findReplaced finds containers whose image has changed since they started. Init containers
// that run to their end are left alone.
func findReplaced(pod *corev1.Pod, r *record, s *step) {
	check := func(spec *corev1.Container) {
		c := r.Containers[spec.Name]
		// Records of earlier versions have no image.
		if c.isRunning() && c.Stopping == nil && c.Current.Image != "" && c.Current.Image != spec.Image {
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

func startEphemeral(pod *corev1.Pod, r *record, now time.Time, s *step) {
	for _, c := range ephemeralContainers(pod) {
		if have := r.Containers[c.Name]; have == nil || have.Current == nil {
			startWhenDue(c.Name, have, now, s)
		}
	}
}

// startInit starts the next init container, and sidecars that ended. It reports whether the
// main containers may start.
func startInit(pod *corev1.Pod, r *record, now time.Time, s *step) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		have := r.Containers[c.Name]
		if shouldStart(pod, c, true, have) {
			startWhenDue(c.Name, have, now, s)
		}
		if !isInitDone(c, have) && !anyMainStarted(pod, r) {
			return false
		}
	}
	return true
}

// isInitDone reports whether what comes after an init container may start.
func isInitDone(c *corev1.Container, have *container) bool {
	if isSidecar(c) {
		return have.isRunning() && have.Started
	}
	return have.hasEnded() && have.Current.ExitCode == 0
}

// anyMainStarted reports whether any main container was ever started. From then on a
// sidecar that ends does not block the others.
func anyMainStarted(pod *corev1.Pod, r *record) bool {
	for i := range pod.Spec.Containers {
		if c := r.Containers[pod.Spec.Containers[i].Name]; c != nil && c.Current != nil {
			return true
		}
	}
	return false
}

// shouldStart reports whether a container must run and does not.
func shouldStart(pod *corev1.Pod, c *corev1.Container, init bool, have *container) bool {
	if have == nil || have.Current == nil {
		return true
	}
	return have.hasEnded() && shouldRestart(pod, c, init, have.Current)
}

func startWhenDue(name string, have *container, now time.Time, s *step) {
	if have != nil && now.Before(have.NextStart) {
		s.wakeAt(have.NextStart)
		return
	}
	s.Start = append(s.Start, name)
}

// stopAll stops the main containers, and once they have ended the sidecars in reverse
// order.
func stopAll(pod *corev1.Pod, r *record, now time.Time, s *step) {
	since := r.Stopped
	if since.IsZero() {
		since = now
	}
	deadline := since.Add(gracePeriod(pod))
	running := false
	for _, c := range slices.Concat(pod.Spec.Containers, ephemeralContainers(pod)) {
		running = stopOne(c.Name, r, deadline, s) || running
	}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0 && !running; i-- {
		c := &pod.Spec.InitContainers[i]
		if isSidecar(c) && deadline.Before(now.Add(minGrace)) && gracePeriod(pod) > 0 {
			running = stopOne(c.Name, r, now.Add(minGrace), s)
		} else {
			running = stopOne(c.Name, r, deadline, s)
		}
	}
}

// stopOne stops a container by the deadline, unless it is already being stopped by an
// earlier one. It reports whether the container runs.
func stopOne(name string, r *record, deadline time.Time, s *step) bool {
	c := r.Containers[name]
	if !c.isRunning() {
		return false
	}
	if c.Stopping == nil || (deadline.Before(c.Stopping.Deadline) && !c.Stopping.Killed) {
		s.stop(name, deadline)
	}
	return true
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return seconds(*pod.DeletionGracePeriodSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return seconds(*pod.Spec.TerminationGracePeriodSeconds)
	default:
		return 30 * time.Second
	}
}

// hasReachedEnd reports whether a pod has reached its end: it failed as a whole, an init container
// failed for good, or every container has ended and none will restart.
func hasReachedEnd(pod *corev1.Pod, r *record) bool {
	if r.Failure != nil || podFinished(pod) {
		return true
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		have := r.Containers[c.Name]
		if have.hasEnded() && !isSidecar(c) && have.Current.ExitCode != 0 && !shouldRestart(pod, c, true, have.Current) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		have := r.Containers[c.Name]
		if !have.hasEnded() || shouldRestart(pod, c, false, have.Current) {
			return false
		}
	}
	return true
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func backOffMessage(pod *corev1.Pod, name string, wait time.Duration) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, name, pod.Name, pod.Namespace, pod.UID)
}
