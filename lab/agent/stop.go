package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stop asks a container to end by a deadline, after its pre-stop hook. Told again, it
// moves the deadline.
func (w *worker) stop(name string, deadline time.Time, message string) {
	c, now := w.r.Containers[name], w.agent.now()
	again := c.Stopping != nil
	c.Stopping = &stopping{Deadline: deadline}
	if again {
		if cancel := w.hooks[name]; cancel != nil {
			if deadline.After(now) {
				c.Stopping.Least = deadline.Add(leastGrace)
			}
			time.AfterFunc(deadline.Sub(now), cancel)
		}
		return
	}
	spec := findContainer(w.pod, name)
	w.event(spec, corev1.EventTypeNormal, "Killing", message)
	if cancel := w.probes[name+"/"+livenessProbe]; cancel != nil {
		cancel()
	}
	if spec.Lifecycle == nil || spec.Lifecycle.PreStop == nil || !deadline.After(now) {
		w.signalContainer(c.Current.Process, stopSignal(spec))
		return
	}
	a, call := c.Current, w.call(spec, c.Current)
	call.handler = spec.Lifecycle.PreStop
	ctx, cancel := context.WithTimeout(w.ctx, deadline.Sub(now))
	w.hooks[name] = cancel
	c.Stopping.Least = deadline.Add(leastGrace)
	go func() {
		defer cancel()
		err := w.hook(ctx, call)
		w.mail(func() { w.stopHooked(spec, a, err) })
	}()
}

// stopHooked takes in that the pre-stop hook of a container is over, and asks it to end.
func (w *worker) stopHooked(spec *corev1.Container, a *attempt, err error) {
	delete(w.hooks, spec.Name)
	if err != nil {
		w.event(spec, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	c := w.r.Containers[spec.Name]
	if c.Current != a || !c.running() || c.Stopping == nil || c.Stopping.Killed {
		return
	}
	if !c.Stopping.Least.IsZero() {
		c.Stopping.Least = w.agent.now().Add(leastGrace)
	}
	w.save()
	w.signalContainer(a.Process, stopSignal(spec))
}

func (w *worker) signalContainer(p process, s unix.Signal) {
	if err := p.signal(s); err != nil && !errors.Is(err, unix.ESRCH) {
		w.agent.log.Error("container cannot be signalled", "pid", p.ID, "signal", s, "error", err)
	}
}

// stopSignal is the signal that asks a container to end.
func stopSignal(spec *corev1.Container) unix.Signal {
	if spec.Lifecycle != nil && spec.Lifecycle.StopSignal != nil {
		if s := unix.SignalNum(string(*spec.Lifecycle.StopSignal)); s != 0 {
			return s
		}
	}
	return unix.SIGTERM
}

// kill ends a container at once.
func (w *worker) kill(c *container) {
	if err := c.Current.Process.killGroup(); err != nil && !errors.Is(err, unix.ESRCH) {
		w.agent.log.Error("container cannot be killed", "pid", c.Current.Process.ID, "error", err)
	}
}

// follow waits for the end of an attempt's keeper, which notes how the container ended.
// cmd is nil if another agent started it.
func (w *worker) follow(name string, a *attempt, cmd *exec.Cmd) {
	folder := w.attemptFolder(name, a.Number)
	w.agent.exits.watch(a.Keeper, func() {
		if cmd != nil {
			// How the keeper ended says nothing of its container.
			_ = cmd.Wait()
		}
		e, err := readEnd(folder, a)
		w.mail(func() { w.over(name, a, e, err) })
	})
}

// readEnd reads how a container ended whose keeper is gone.
func readEnd(folder string, a *attempt) (end, error) {
	var e end
	err := readJSON(filepath.Join(folder, endFile), &e)
	if err == nil {
		return e, nil
	}
	// Without its keeper a container has no log and no exit code.
	if a.Process.alive() {
		if killed := endContainer(a.Process.ID); killed != nil {
			err = errors.Join(err, killed)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return end{At: time.Now(), ExitCode: 137}, err
}

// over takes in that an attempt ended.
func (w *worker) over(name string, a *attempt, e end, err error) {
	c := w.r.Containers[name]
	if c == nil || c.Current != a || !a.Ended.IsZero() {
		return
	}
	if err != nil {
		w.agent.log.Error("end of a container cannot be read", "pod", w.pod.Name, "container", name, "error", err)
	}
	for _, kind := range []string{startupProbe, readinessProbe, livenessProbe} {
		if cancel := w.probes[name+"/"+kind]; cancel != nil {
			cancel()
			delete(w.probes, name+"/"+kind)
		}
	}
	spec := findContainer(w.pod, name)
	a.Ended, a.ExitCode = e.At, e.ExitCode
	a.Message = w.lastWords(spec, a)
	c.Passing = false
	w.agent.backoff.note(c)
	w.save()
	final := w.gone || w.pod.DeletionTimestamp != nil || isOver(w.pod, w.r)
	if !final && w.agent.now().Before(c.NextStart) {
		w.event(spec, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, w.pod.Name, w.pod.Namespace, w.pod.UID))
	}
}

// lastWords is a container's termination message.
func (w *worker) lastWords(spec *corev1.Container, a *attempt) string {
	const most = 4096
	data, err := os.ReadFile(filepath.Join(w.attemptFolder(spec.Name, a.Number), terminationFile))
	text := strings.TrimSpace(string(data[:min(len(data), most)]))
	if err == nil && text != "" || spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || a.ExitCode == 0 {
		return text
	}
	return logTail(w.logPath(spec.Name, a.Number), most/2)
}

func (w *worker) logPath(name string, number int) string {
	return w.attemptFolder(name, number) + ".log"
}

// release gives the pod's network back.
func (w *worker) release() {
	w.busy = true
	for key, cancel := range w.probes {
		cancel()
		delete(w.probes, key)
	}
	pod, had := w.pod, w.slot != 0
	go func() {
		var err error
		// Also when the node left the lab: the pod's namespace is not in the node's.
		if had {
			var f network
			if f, err = w.node.fabric(); err == nil {
				err = errors.Join(w.node.closePorts(pod), f.RemovePod(w.node.Name, string(pod.UID)))
			}
		}
		w.mail(func() {
			w.busy = false
			if err != nil {
				w.agent.log.Error("pod network cannot be removed", "pod", pod.Name, "error", err)
			}
			w.freeSlot()
			w.r.Released = true
			w.save()
		})
	}()
}

// remove deletes the pod's object: all of it ended.
func (w *worker) remove() {
	w.removing = true
	pod := w.pod
	go func() {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		defer cancel()
		err := w.agent.deletePod(ctx, pod.Namespace, pod.Name, pod.UID)
		if err == nil {
			return // the watch says the rest
		}
		if w.ctx.Err() == nil {
			w.agent.log.Error("pod cannot be removed", "pod", pod.Name, "error", err)
		}
		time.AfterFunc(time.Second, func() { w.mail(func() { w.removing = false }) })
	}()
}

// deletePod removes a pod's object at once, unless another has its name by now.
func (a *agent) deletePod(ctx context.Context, namespace, name string, id uid) error {
	now := int64(0)
	err := a.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      &metav1.Preconditions{UID: &id},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// event tells about a container, as the API's events do.
func (w *worker) event(spec *corev1.Container, kind, cause, message string) {
	field := fmt.Sprintf("spec.containers{%s}", spec.Name)
	named := func(c corev1.Container) bool { return c.Name == spec.Name }
	if slices.ContainsFunc(w.pod.Spec.InitContainers, named) {
		field = fmt.Sprintf("spec.initContainers{%s}", spec.Name)
	} else if slices.ContainsFunc(ephemeral(w.pod), named) {
		field = fmt.Sprintf("spec.ephemeralContainers{%s}", spec.Name)
	}
	w.node.events.Event(&corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: w.pod.Namespace, Name: w.pod.Name,
		UID: w.pod.UID, ResourceVersion: w.pod.ResourceVersion, FieldPath: field,
	}, kind, cause, message)
}
