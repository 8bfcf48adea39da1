package agent

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/shape"
)

const startTimeout = 30 * time.Second

// prepare makes the pod's volumes and its network. A failure is retried.
func (w *worker) prepare() {
	pod := w.pod
	var err error
	if !pod.Spec.HostNetwork && w.slot == 0 {
		if w.slot, err = w.node.slots.take(); err == nil {
			w.record.Addresses = w.node.shape.PodAddrs(w.node.Node, w.slot)
		}
	}
	r := *w.record
	go func() {
		cause := "FailedCreatePodSandBox"
		if err == nil {
			err = w.makeNetwork(pod, &r)
		}
		if err == nil {
			if err = w.volumes.prepare(w.ctx, pod, &r); err != nil {
				cause = "FailedMount"
			}
		}
		w.post(func() { w.prepareDone(cause, err) })
	}()
}

func (w *worker) prepareDone(cause string, err error) {
	w.busy = false
	if err == nil {
		w.record.Network = string(w.pod.UID)
		w.save()
		return
	}
	w.failures++
	w.retry = w.agent.now().Add(min(time.Duration(w.failures)*500*time.Millisecond, 10*time.Second))
	if w.ctx.Err() == nil && !w.gone {
		w.node.events.Eventf(w.pod, corev1.EventTypeWarning, cause, "%s", err)
	}
}

func (w *worker) makeNetwork(pod *corev1.Pod, r *record) error {
	if pod.Spec.HostNetwork {
		return nil
	}
	f, err := w.node.fabric()
	if err != nil {
		return err
	}
	// Remove what an earlier try may have made.
	if err := errors.Join(w.node.closePorts(pod), f.RemovePod(w.node.Name, string(pod.UID))); err != nil {
		return err
	}
	if _, err := f.AddPod(w.node.Name, string(pod.UID), r.Addresses); err != nil {
		return err
	}
	return w.node.openPorts(pod, r.Addresses)
}

func (w *worker) namespace(pod *corev1.Pod) string {
	if pod.Spec.HostNetwork {
		return w.node.namespace()
	}
	return shape.PodNamespace(w.node.shape.Name, string(pod.UID))
}

type launch struct {
	pod     *corev1.Pod
	spec    *corev1.Container
	record  record
	attempt *attempt
	folder  string
}

type refusal struct {
	reason
	// image means that the image is the cause, which has its own back-off.
	image bool
}

func (r *refusal) Error() string { return r.Message }

func (w *worker) start(name string) {
	spec := findContainer(w.pod, name)
	c := w.record.container(name)
	number := 0
	if c.Current != nil {
		number = c.Current.Number + 1
	}
	l := launch{
		pod: w.pod, spec: spec, record: *w.record,
		attempt: &attempt{Number: number, ID: attemptID(w.pod.UID, name, number), Image: spec.Image},
		folder:  w.attemptFolder(name, number),
	}
	go func() {
		w.agent.starts <- struct{}{}
		b, keeper, err := w.launch(w.ctx, &l)
		<-w.agent.starts
		w.post(func() { w.startDone(&l, b, keeper, err) })
	}()
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	for c := range allContainers(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func allContainers(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers, ephemeralContainers(pod)} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// ephemeralContainers are those added to a running pod, as by kubectl debug. They run once,
// and do not affect the pod's phase.
func ephemeralContainers(pod *corev1.Pod) []corev1.Container {
	var list []corev1.Container
	for i := range pod.Spec.EphemeralContainers {
		list = append(list, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return list
}

func (w *worker) attemptFolder(name string, number int) string {
	return filepath.Join(w.folder, containersFolder, name, strconv.Itoa(number))
}

func (w *worker) launch(ctx context.Context, l *launch) (startReport, *exec.Cmd, error) {
	program, err := w.agent.Images.Resolve(l.spec.Image)
	if err != nil {
		return startReport{}, nil, &refusal{reason: reason{"ErrImagePull", err.Error()}, image: true}
	}
	env, err := w.environment(ctx, l)
	if err != nil {
		return startReport{}, nil, &refusal{reason: reason{"CreateContainerConfigError", err.Error()}}
	}
	if err := os.RemoveAll(l.folder); err != nil {
		return startReport{}, nil, err
	}
	if err := os.MkdirAll(l.folder, 0o700); err != nil {
		return startReport{}, nil, err
	}
	mounts, err := w.volumes.mounts(l)
	if err != nil {
		return startReport{}, nil, &refusal{reason: reason{"CreateContainerConfigError", err.Error()}}
	}
	program, image := mountProgram(program)
	mounts = append(mounts, image)
	spec := containerSpec{
		Image:    l.spec.Image,
		Args:     arguments(program, l.spec, env),
		Env:      append(env.list(), w.agent.marker),
		Dir:      l.spec.WorkingDir,
		Network:  shape.NamespacePath(w.namespace(l.pod)),
		Hostname: hostname(l.pod),
		Mounts:   mounts,
		Log:      w.logPath(l.spec.Name, l.attempt.Number),
		Input:    l.spec.Stdin,
		Terminal: l.spec.TTY,
	}
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	spec.User, spec.Group = userAndGroup(l.pod, l.spec)
	if spec.Forbidden, err = droppedCapabilities(l.spec); err != nil {
		return startReport{}, nil, &refusal{reason: reason{"CreateContainerConfigError", err.Error()}}
	}
	if err := writeJSON(filepath.Join(l.folder, specFile), spec); err != nil {
		return startReport{}, nil, err
	}
	return w.agent.startKeeper(l.folder)
}

// arguments returns the command line of a container. Its command replaces the image's.
func arguments(program []string, spec *corev1.Container, env *environment) []string {
	args := program
	if len(spec.Command) > 0 {
		args = nil
		for _, arg := range spec.Command {
			args = append(args, expand(arg, env.lookup))
		}
	}
	args = args[:len(args):len(args)]
	for _, arg := range spec.Args {
		args = append(args, expand(arg, env.lookup))
	}
	return args
}

func hostname(pod *corev1.Pod) string {
	switch {
	case pod.Spec.HostNetwork:
		return pod.Spec.NodeName
	case pod.Spec.Hostname != "":
		return pod.Spec.Hostname
	default:
		return pod.Name[:min(len(pod.Name), 63)]
	}
}

// userAndGroup returns the user and group of a container; nil means the agent's.
func userAndGroup(pod *corev1.Pod, spec *corev1.Container) (user, group *uint32) {
	var own corev1.SecurityContext
	var shared corev1.PodSecurityContext
	if spec.SecurityContext != nil {
		own = *spec.SecurityContext
	}
	if pod.Spec.SecurityContext != nil {
		shared = *pod.Spec.SecurityContext
	}
	return asUint32(cmp.Or(own.RunAsUser, shared.RunAsUser)), asUint32(cmp.Or(own.RunAsGroup, shared.RunAsGroup))
}

func asUint32(id *int64) *uint32 {
	if id == nil {
		return nil
	}
	return new(uint32(*id))
}

// startKeeper starts a keeper for a folder and returns its report. The keeper has a session
// of its own and survives the agent.
func (a *agent) startKeeper(folder string) (startReport, *exec.Cmd, error) {
	r, pipe, err := os.Pipe()
	if err != nil {
		return startReport{}, nil, err
	}
	defer r.Close()
	cmd := exec.Command(a.Keeper[0], append(slices.Clone(a.Keeper[1:]), folder)...)
	// One thread is enough: it copies lines.
	cmd.Env = append(os.Environ(), a.marker, "GOMAXPROCS=1", "GOGC=50")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = pipe.Close()
	if err != nil {
		return startReport{}, nil, fmt.Errorf("starting the keeper: %w", err)
	}
	if err := r.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return startReport{}, cmd, err
	}
	var b startReport
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &b)
	}
	if err != nil {
		return startReport{}, cmd, errors.Join(fmt.Errorf("the keeper did not report: %w", err), killKeeper(cmd.Process))
	}
	return b, cmd, nil
}

// killKeeper kills a keeper that did not report, and what it may have started.
func killKeeper(keeper *os.Process) error {
	// Paused first, so that it starts nothing in the meantime.
	if err := keeper.Signal(syscall.SIGSTOP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", keeper.Pid))
	failed := []error{err}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread ended
		}
		for _, child := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(child)
			if err == nil {
				err = killContainer(pid)
			}
			failed = append(failed, err)
		}
	}
	if err := keeper.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (w *worker) startDone(l *launch, b startReport, keeper *exec.Cmd, err error) {
	now := w.agent.now()
	name := l.spec.Name
	delete(w.starting, name)
	c := w.record.container(name)
	var refused *refusal
	if errors.As(err, &refused) {
		w.startRefused(l, c, refused)
		return
	}
	w.recordEvent(l.spec, corev1.EventTypeNormal, "Pulled",
		fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", l.spec.Image))
	c.Previous, c.Current = c.Current, l.attempt
	c.Waiting, c.Stopping, c.Started, c.Passing, c.Refusals = nil, nil, false, false, 0
	a := l.attempt
	w.prune(name, a.Number-2)
	if err == nil && b.Error != "" {
		err = errors.New(b.Error)
	}
	if err != nil {
		if keeper != nil {
			go func() { _ = keeper.Wait() }()
		}
		a.Ended, a.ExitCode, a.Outcome, a.Message = now, startFailed, "StartError", err.Error()
		w.agent.backoff.note(c)
		w.recordEvent(l.spec, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		w.save()
		return
	}
	w.recordEvent(l.spec, corev1.EventTypeNormal, "Created", "Container created")
	a.Process, a.Keeper, a.Input, a.Begun = b.Process, b.Keeper, b.Input, b.At
	w.recordEvent(l.spec, corev1.EventTypeNormal, "Started", "Container started")
	w.save()
	w.follow(name, a, keeper)
	w.runPostStart(l.spec, c)
}

// prune removes an attempt that cannot be asked for any more, with its log.
func (w *worker) prune(name string, number int) {
	if number < 0 {
		return
	}
	log := w.logPath(name, number)
	for _, path := range []string{w.attemptFolder(name, number), log, olderLog(log)} {
		if err := os.RemoveAll(path); err != nil {
			w.agent.Log.Error("attempt cannot be removed", "pod", w.pod.Name, "container", name, "error", err)
		}
	}
}

func (w *worker) startRefused(l *launch, c *container, why *refusal) {
	c.Waiting = &why.reason
	w.agent.backoff.refuse(c, why.image, w.agent.now())
	if !why.image {
		w.recordEvent(l.spec, corev1.EventTypeWarning, "Failed", "Error: "+why.Message)
		return
	}
	image := l.spec.Image
	w.recordEvent(l.spec, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", image))
	w.recordEvent(l.spec, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", image, why.Message))
	w.recordEvent(l.spec, corev1.EventTypeWarning, "Failed", "Error: ErrImagePull")
	waiting := c.Waiting
	time.AfterFunc(time.Second, func() {
		w.post(func() {
			if c.Waiting != waiting {
				return
			}
			c.Waiting = &reason{"ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, why.Message)}
			w.recordEvent(l.spec, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", image))
			w.recordEvent(l.spec, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
		})
	})
}

// attemptID identifies an attempt by 64 digits, as container runtimes do.
func attemptID(pod uid, name string, number int) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", pod, name, number)))
}
