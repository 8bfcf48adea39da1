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

// stop asks a container to end by a deadline, after its pre-stop hook. A second call moves
// the deadline.
func (w *worker) stop(name string, deadline time.Time, message string) {
	c, now := w.record.Containers[name], w.agent.now()
	again := c.Stopping != nil
	c.Stopping = &stopping{Deadline: deadline}
	if again {
		if cancel := w.hooks[name]; cancel != nil {
			if deadline.After(now) {
				c.Stopping.Least = deadline.Add(minGrace)
			}
			time.AfterFunc(deadline.Sub(now), cancel)
		}
		return
	}
	spec := findContainer(w.pod, name)
	w.recordEvent(spec, corev1.EventTypeNormal, "Killing", message)
	if cancel := w.probes[name+"/"+livenessProbe]; cancel != nil {
		cancel()
	}
	if spec.Lifecycle == nil || spec.Lifecycle.PreStop == nil || !deadline.After(now) {
		w.signalContainer(c.Current.Process, stopSignal(spec))
		return
	}
	a, call := c.Current, w.newHookCall(spec, c.Current)
	call.handler = spec.Lifecycle.PreStop
	ctx, cancel := context.WithTimeout(w.ctx, deadline.Sub(now))
	w.hooks[name] = cancel
	c.Stopping.Least = deadline.Add(minGrace)
	go func() {
		defer cancel()
		err := w.runHook(ctx, call)
		w.post(func() { w.preStopDone(spec, a, err) })
	}()
}

// preStopDone handles the end of a pre-stop hook, and asks the container to end.
func (w *worker) preStopDone(spec *corev1.Container, a *attempt, err error) {
	delete(w.hooks, spec.Name)
	if err != nil {
		w.recordEvent(spec, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	c := w.record.Containers[spec.Name]
	if c.Current != a || !c.isRunning() || c.Stopping == nil || c.Stopping.Killed {
		return
	}
	if !c.Stopping.Least.IsZero() {
		c.Stopping.Least = w.agent.now().Add(minGrace)
	}
	w.save()
	w.signalContainer(a.Process, stopSignal(spec))
}

func (w *worker) signalContainer(p processID, s unix.Signal) {
	if err := p.signal(s); err != nil && !errors.Is(err, unix.ESRCH) {
		w.agent.Log.Error("container cannot be signalled", "pid", p.ID, "signal", s, "error", err)
	}
}

func stopSignal(spec *corev1.Container) unix.Signal {
	if spec.Lifecycle != nil && spec.Lifecycle.StopSignal != nil {
		if s := unix.SignalNum(string(*spec.Lifecycle.StopSignal)); s != 0 {
			return s
		}
	}
	return unix.SIGTERM
}

func (w *worker) kill(c *container) {
	if err := c.Current.Process.killGroup(); err != nil && !errors.Is(err, unix.ESRCH) {
		w.agent.Log.Error("container cannot be killed", "pid", c.Current.Process.ID, "error", err)
	}
}

// follow waits for the end of an attempt's keeper, which records how the container ended.
// cmd is nil if an earlier agent started the keeper.
func (w *worker) follow(name string, a *attempt, cmd *exec.Cmd) {
	folder := w.attemptFolder(name, a.Number)
	w.agent.exits.watch(a.Keeper, func() {
		if cmd != nil {
			// The keeper's own exit says nothing about the container.
			_ = cmd.Wait()
		}
		e, err := readExit(folder, a)
		w.post(func() { w.attemptEnded(name, a, e, err) })
	})
}

// readExit reads how a container ended whose keeper has ended.
func readExit(folder string, a *attempt) (exitReport, error) {
	var e exitReport
	err := readJSON(filepath.Join(folder, endFile), &e)
	if err == nil {
		return e, nil
	}
	// Without its keeper a container has neither log nor exit code: kill it.
	if a.Process.isAlive() {
		if killed := killContainer(a.Process.ID); killed != nil {
			err = errors.Join(err, killed)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return exitReport{At: time.Now(), ExitCode: 137}, err
}

func (w *worker) attemptEnded(name string, a *attempt, e exitReport, err error) {
	c := w.record.Containers[name]
	if c == nil || c.Current != a || !a.Ended.IsZero() {
		return
	}
	if err != nil {
		w.agent.Log.Error("end of a container cannot be read", "pod", w.pod.Name, "container", name, "error", err)
	}
	for _, kind := range []string{startupProbe, readinessProbe, livenessProbe} {
		if cancel := w.probes[name+"/"+kind]; cancel != nil {
			cancel()
			delete(w.probes, name+"/"+kind)
		}
	}
	spec := findContainer(w.pod, name)
	a.Ended, a.ExitCode = e.At, e.ExitCode
	a.Message = w.terminationMessage(spec, a)
	c.Passing = false
	w.agent.backoff.note(c)
	w.save()
	final := w.gone || w.pod.DeletionTimestamp != nil || hasReachedEnd(w.pod, w.record)
	if !final && w.agent.now().Before(c.NextStart) {
		w.recordEvent(spec, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, w.pod.Name, w.pod.Namespace, w.pod.UID))
	}
}

func (w *worker) terminationMessage(spec *corev1.Container, a *attempt) string {
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

func (w *worker) releaseNetwork() {
	w.busy = true
	for key, cancel := range w.probes {
		cancel()
		delete(w.probes, key)
	}
	pod, had := w.pod, w.slot != 0
	go func() {
		var err error
		// Even if the node was removed: the pod has a namespace of its own.
		if had {
			var f network
			if f, err = w.node.fabric(); err == nil {
				err = errors.Join(w.node.closePorts(pod), f.RemovePod(w.node.Name, string(pod.UID)))
			}
		}
		w.post(func() {
			w.busy = false
			if err != nil {
				w.agent.Log.Error("pod network cannot be removed", "pod", pod.Name, "error", err)
			}
			w.freeSlot()
			w.record.Released = true
			w.save()
		})
	}()
}

func (w *worker) deleteObject() {
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
			w.agent.Log.Error("pod cannot be removed", "pod", pod.Name, "error", err)
		}
		time.AfterFunc(time.Second, func() { w.post(func() { w.removing = false }) })
	}()
}

// deletePod deletes a pod's object at once, unless another pod has its name by now.
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

func (w *worker) recordEvent(spec *corev1.Container, kind, cause, message string) {
	field := fmt.Sprintf("spec.containers{%s}", spec.Name)
	named := func(c corev1.Container) bool { return c.Name == spec.Name }
	if slices.ContainsFunc(w.pod.Spec.InitContainers, named) {
		field = fmt.Sprintf("spec.initContainers{%s}", spec.Name)
	} else if slices.ContainsFunc(ephemeralContainers(w.pod), named) {
		field = fmt.Sprintf("spec.ephemeralContainers{%s}", spec.Name)
	}
	w.node.events.Event(&corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: w.pod.Namespace, Name: w.pod.Name,
		UID: w.pod.UID, ResourceVersion: w.pod.ResourceVersion, FieldPath: field,
	}, kind, cause, message)
}
