package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// run makes a pod of a specification in YAML, and waits until it is as wanted.
func (s *scene) run(ctx context.Context, name, spec string, met func(*corev1.Pod) bool) error {
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  terminationGracePeriodSeconds: 0\n", name)
	for line := range strings.Lines(strings.TrimSpace(spec)) {
		manifest += "  " + line
	}
	if err := s.Apply(ctx, s.namespace, manifest); err != nil {
		return err
	}
	_, err := s.until(ctx, name, met)
	return err
}

// until waits until a pod is as wanted.
func (s *scene) until(ctx context.Context, name string, met func(*corev1.Pod) bool) (pod *corev1.Pod, err error) {
	err = kube.Wait(ctx, "pod "+name+" to be as wanted", func(ctx context.Context) (string, error) {
		var err error
		if pod, err = s.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return "", err
		}
		if met(pod) {
			return "", nil
		}
		return fmt.Sprintf("its phase is %s, its containers are %+v", pod.Status.Phase, pod.Status.ContainerStatuses), nil
	})
	return pod, err
}

// exec runs a command in a pod and returns what it prints, errors last.
func (s *scene) exec(ctx context.Context, o lab.ExecOptions) (string, error) {
	var out, failed bytes.Buffer
	o.Namespace, o.Stdout = s.namespace, &out
	if !o.TTY {
		o.Stderr = &failed
	}
	err := s.Exec(ctx, o)
	return strings.TrimSpace(out.String() + failed.String()), err
}

// execAttachForward tries exec, attach and port forwarding.
func execAttachForward(ctx context.Context, s *scene) (string, error) {
	err := s.run(ctx, "talker", `
restartPolicy: Never
containers:
- {name: echo, image: lab/echo, readinessProbe: {tcpSocket: {port: 8081}}}
- {name: once, image: lab/sleep, command: [cat], stdin: true, stdinOnce: true}
- {name: shell, image: lab/sleep, command: [sh], stdin: true, tty: true}
`, kube.PodReady)
	if err != nil {
		return "", err
	}
	for _, check := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"exec with input", s.execWithInput},
		{"exec with a terminal", s.execWithTerminal},
		{"attach", s.attaches},
		{"an ephemeral container", s.debugs},
		{"port forwarding", s.forwards},
	} {
		if err := check.do(ctx); err != nil {
			return "", fmt.Errorf("%s: %w", check.name, err)
		}
	}
	return "a file of 1 MiB by exec, terminals with sizes, attach, debug, port-forward", nil
}

// execWithInput sends a file into a container, as kubectl cp does, and reads it there.
func (s *scene) execWithInput(ctx context.Context) error {
	file := make([]byte, 1<<20)
	if _, err := rand.Read(file); err != nil {
		return err
	}
	write := lab.ExecOptions{Pod: "talker", Container: "echo", Command: []string{"sh", "-c", "cat > /dev/shm/file; exit 7"}, Stdin: bytes.NewReader(file)}
	_, err := s.exec(ctx, write)
	if exit, ok := errors.AsType[*lab.ExitError](err); !ok || exit.Code != 7 {
		return errors.Join(err, errors.New("exec does not say the exit code 7"))
	}
	var read bytes.Buffer
	err = s.Exec(ctx, lab.ExecOptions{Namespace: s.namespace, Pod: "talker", Container: "echo", Command: []string{"cat", "/dev/shm/file"}, Stdout: &read})
	if err == nil && !bytes.Equal(file, read.Bytes()) {
		err = fmt.Errorf("of %d bytes written %d are read", len(file), read.Len())
	}
	return err
}

func (s *scene) execWithTerminal(ctx context.Context) error {
	sizes := make(chan lab.TerminalSize, 1)
	sizes <- lab.TerminalSize{Width: 100, Height: 40}
	close(sizes)
	// The size comes after the command began.
	text, err := s.exec(ctx, lab.ExecOptions{
		Pod: "talker", Container: "echo", TTY: true, Resize: sizes, Stdin: strings.NewReader(""),
		Command: []string{"sh", "-c", `until [ "$(stty size)" = "40 100" ]; do sleep 0.02; done; echo $TERM`},
	})
	if err == nil && text != "xterm" {
		err = fmt.Errorf("the terminal is %q", text)
	}
	return err
}

// attach connects with a container that runs, and returns what it prints.
func (s *scene) attach(ctx context.Context, container string, tty bool, input io.Reader) (string, error) {
	request := s.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name("talker").SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{Container: container, Stdin: true, Stdout: true, Stderr: !tty, TTY: tty}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.Config(), http.MethodGet, request.URL().String())
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	o := remotecommand.StreamOptions{Stdin: input, Stdout: &out, Tty: tty}
	if !tty {
		o.Stderr = io.Discard
	}
	err = executor.StreamWithContext(ctx, o)
	return out.String(), err
}

func (s *scene) attaches(ctx context.Context) error {
	text, err := s.attach(ctx, "once", false, strings.NewReader("hello\n"))
	if err != nil || text != "hello\n" {
		return errors.Join(err, fmt.Errorf("cat says %q", text))
	}
	text, err = s.attach(ctx, "shell", true, strings.NewReader("tty -s && echo $((40+2)); exit\n"))
	if err != nil || !strings.Contains(text, "\n42\r\n") {
		return errors.Join(err, fmt.Errorf("a shell says %q", text))
	}
	_, err = s.until(ctx, "talker", func(pod *corev1.Pod) bool {
		return exitCode(pod.Status.ContainerStatuses, "once") == 0 && exitCode(pod.Status.ContainerStatuses, "shell") == 0
	})
	return err
}

// exitCode is that of a container that ended, or -1.
func exitCode(statuses []corev1.ContainerStatus, name string) int32 {
	for _, status := range statuses {
		if status.Name == name && status.State.Terminated != nil {
			return status.State.Terminated.ExitCode
		}
	}
	return -1
}

// debugs adds a container that sees the processes of another one to the pod that runs, as
// kubectl debug does.
func (s *scene) debugs(ctx context.Context) error {
	api := s.CoreV1().Pods(s.namespace)
	pod, err := api.Get(ctx, "talker", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "lab/sleep", Command: []string{"sh", "-c", "hostname; cat /proc/1/comm; exit 4"},
	}, TargetContainerName: "echo"}}
	if _, err := api.UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pod, err = s.until(ctx, pod.Name, func(pod *corev1.Pod) bool {
		return exitCode(pod.Status.EphemeralContainerStatuses, "debugger") == 4
	})
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("the pod is %s after it", pod.Status.Phase)
	}
	var log bytes.Buffer
	err = s.Logs(ctx, &log, lab.LogOptions{Namespace: s.namespace, Pod: pod.Name, Container: "debugger"})
	if err == nil && log.String() != pod.Name+"\nvicinity-lab\n" {
		err = fmt.Errorf("its log is %q", &log)
	}
	return err
}

// forwards sends a request to a forwarded port, and closes its side before the answer
// comes.
func (s *scene) forwards(ctx context.Context) error {
	transport, upgrader, err := spdy.RoundTripperFor(s.Config())
	if err != nil {
		return err
	}
	at := s.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name("talker").SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:8081"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer close(stop)
	select {
	case <-ready:
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	if err != nil {
		return err
	}
	return answers(conn, "talker")
}

// answers asks an echo by TCP or UDP, and closes the connection.
func answers(conn net.Conn, pod string) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "question\n"); err != nil {
		return err
	}
	if half, ok := conn.(*net.TCPConn); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, strconv.Quote(pod)) {
		err = fmt.Errorf("the answer is %q", line)
	}
	return err
}

// probes has gRPC probes of all kinds succeed and fail.
func probes(ctx context.Context, s *scene) (string, error) {
	err := s.run(ctx, "probed", `
containers:
- name: echo
  image: lab/echo
  args: [--grpc-port=8083, --drain=0s]
  startupProbe: {grpc: {port: 8083}, periodSeconds: 1, timeoutSeconds: 10}
  readinessProbe: {grpc: {port: 8083, service: ready}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}
  livenessProbe: {grpc: {port: 8083, service: live}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}
`, kube.PodReady)
	if err != nil {
		return "", err
	}
	unready := func(pod *corev1.Pod) bool { return !kube.PodReady(pod) }
	restarted := func(pod *corev1.Pod) bool {
		return kube.PodReady(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1
	}
	begun := time.Now()
	for _, step := range []struct {
		control, value string
		met            func(*corev1.Pod) bool
	}{{"ready", "false", unready}, {"ready", "true", kube.PodReady}, {"live", "false", restarted}} {
		err := s.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("pods").Name("probed:8080").
			SubResource("proxy").Suffix("control").Param(step.control, step.value).Do(ctx).Error()
		if err != nil {
			return "", err
		}
		if _, err := s.until(ctx, "probed", step.met); err != nil {
			return "", fmt.Errorf("after it was told that %s is %s: %w", step.control, step.value, err)
		}
	}
	return fmt.Sprintf("unready, ready and restarted by gRPC in %.1f s", time.Since(begun).Seconds()), nil
}

// volumesUpdate changes the objects behind the files of a running pod.
func volumesUpdate(ctx context.Context, s *scene) (string, error) {
	objects := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {value: %[1]s}\n---\n"+
			"apiVersion: v1\nkind: Secret\nmetadata: {name: secret}\nstringData: {value: %[1]s}\n", value)
	}
	if err := s.Apply(ctx, s.namespace, objects("old")); err != nil {
		return "", err
	}
	err := s.run(ctx, "reader", `
volumes:
- {name: settings, configMap: {name: settings}}
- {name: both, projected: {sources: [{secret: {name: secret}}, {downwardAPI: {items: [{path: label, fieldRef: {fieldPath: "metadata.labels['value']"}}]}}]}}
containers:
- name: sleep
  image: lab/sleep
  volumeMounts: [{name: settings, mountPath: /settings}, {name: both, mountPath: /both}]
`, kube.PodReady)
	if err != nil {
		return "", err
	}
	read := func(ctx context.Context) (string, error) {
		return s.exec(ctx, lab.ExecOptions{Pod: "reader", Command: []string{"sh", "-c", "echo $(cat /settings/value /both/value /both/label)"}})
	}
	if text, err := read(ctx); err != nil || text != "oldold" {
		return "", errors.Join(err, fmt.Errorf("at first the files say %q", text))
	}
	begun := time.Now()
	if err := s.Apply(ctx, s.namespace, objects("new")); err != nil {
		return "", err
	}
	_, err = s.CoreV1().Pods(s.namespace).Patch(ctx, "reader", types.MergePatchType, []byte(`{"metadata":{"labels":{"value":"new"}}}`), metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "the files to be new", func(ctx context.Context) (string, error) {
		text, err := read(ctx)
		if err == nil && text != "newnewnew" {
			err = fmt.Errorf("they say %q", text)
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ConfigMap, Secret and label in a running pod after %.1f s", time.Since(begun).Seconds()), nil
}

// another is the scene in a lab of its own.
func (s *scene) another(ctx context.Context, program second, args ...string) (*scene, error) {
	if err := program.run(ctx, append([]string{"up", "--vicinity=false"}, args...)...); err != nil {
		return nil, err
	}
	cluster, err := lab.Open(program.name, program.options)
	if err != nil {
		return nil, err
	}
	client, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	return &scene{Client: client, cluster: cluster, namespace: metav1.NamespaceDefault, options: program.options}, nil
}

// containers are those of the echo pods and the clients, with what a restart changes.
func (s *scene) containers(ctx context.Context) ([]string, error) {
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app in (echo, client)"})
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %s %s %d", pods.Items[i].Name, pods.Items[i].UID, c.ContainerID, c.RestartCount))
		}
	}
	slices.Sort(all)
	return all, nil
}

// runtimeKilled kills the runtime and the kubelet of a node under load: they find their pods again, and run new ones.
func runtimeKilled(ctx context.Context, s *scene) (string, error) {
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	before, err := s.containers(ctx)
	if err != nil {
		return "", err
	}
	node := s.inhabited()[0].Nodes[0].Name
	result, err := s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200}}, func(ctx context.Context) error {
		for _, change := range []func(context.Context, string) error{s.cluster.KillComponent, s.cluster.StartComponent} {
			for _, component := range []string{"runtime", "kubelet-" + node} {
				if err := change(ctx, component); err != nil {
					return err
				}
			}
		}
		if err := s.run(ctx, "later", "nodeName: "+node+"\ncontainers: [{name: sleep, image: lab/sleep}]", kube.PodReady); err != nil {
			return fmt.Errorf("after they started again: %w", err)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	after, err := s.containers(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Equal(before, after) {
		return "", fmt.Errorf("pods were restarted: before %q, after %q", before, after)
	}
	return fmt.Sprintf("%d pods found again by the runtime and a kubelet that were killed, none restarted; %d requests during it, 0 failed", len(before), result.Answered), nil
}

// highAvailability kills each API server in turn, and pauses one: the cluster works by the other.
func highAvailability(ctx context.Context, s *scene) (figure string, err error) {
	program := s.second()
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	s, err = s.another(ctx, program, "--ha", "--zones", "a", "--nodes-per-zone", "1")
	if err != nil {
		return "", err
	}
	var slowest time.Duration
	for _, loss := range []struct {
		name, server string
		lose, regain func(context.Context, string) error
	}{
		{"killed", "kube-apiserver", s.cluster.KillComponent, s.cluster.StartComponent},
		{"killed", "kube-apiserver-2", s.cluster.KillComponent, s.cluster.StartComponent},
		{"paused", "kube-apiserver", s.cluster.PauseComponent, s.cluster.ResumeComponent},
	} {
		if err := loss.lose(ctx, loss.server); err != nil {
			return "", err
		}
		begun := time.Now()
		// Connections to the one that is lost break once. A paused one accepts new ones until the gateway leaves it out.
		err := kube.Wait(ctx, "the other API server", func(ctx context.Context) (string, error) {
			return "", s.run(ctx, loss.name+"-"+loss.server, "containers: [{name: sleep, image: lab/sleep}]", kube.PodReady)
		})
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", loss.server, loss.name, err)
		}
		slowest = max(slowest, time.Since(begun))
		if err := loss.regain(ctx, loss.server); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("a pod was ready at most %.1f s after either API server was killed, and one paused", slowest.Seconds()), nil
}

// unprivileged is the number of a user without rights.
const unprivileged = 65534

// controlPlaneOnly brings a control plane up without root, with nodes and pods as objects only.
func controlPlaneOnly(ctx context.Context, s *scene) (figure string, err error) {
	program := s.second()
	// The programs may be in a folder that other users cannot read.
	folder, err := os.MkdirTemp("", "vicinity-unprivileged-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chown(folder, unprivileged, unprivileged); err != nil {
		return "", err
	}
	if program.options.Program, err = copyPrograms(ctx, program.options.Program, folder); err != nil {
		return "", err
	}
	program.options.Root = filepath.Join(folder, "labs")
	run := func(ctx context.Context, args ...string) (string, error) {
		cmd := program.command(ctx, args...)
		cmd.Dir, cmd.Env = folder, append(cmd.Env, "HOME="+folder)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("vicinity lab %s: %w: %s", strings.Join(args, " "), err, text)
		}
		return string(text), err
	}
	begun := time.Now()
	text, err := run(ctx, "up", "--control-plane-only")
	defer func() {
		_, failed := run(context.WithoutCancel(ctx), "down")
		traces, missed := lab.Traces(program.name, program.options)
		if len(traces) > 0 {
			missed = fmt.Errorf("left behind: %s", strings.Join(traces, ", "))
		}
		err = errors.Join(err, failed, missed)
	}()
	if err != nil {
		return "", err
	}
	took := time.Since(begun)
	if !strings.Contains(text, "no network") {
		return "", fmt.Errorf("up does not say that there is no network: %s", text)
	}
	cluster, err := lab.Open(program.name, program.options)
	if err != nil {
		return "", err
	}
	client, err := cluster.Client()
	if err != nil {
		return "", err
	}
	if err := client.Apply(ctx, metav1.NamespaceDefault, lab.EchoManifests("echo", echoes)); err != nil {
		return "", err
	}
	if err := client.WaitDeployment(ctx, metav1.NamespaceDefault, "echo"); err != nil {
		return "", err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	err = client.Logs(ctx, io.Discard, lab.LogOptions{Namespace: metav1.NamespaceDefault, Pod: pods.Items[0].Name})
	if err == nil || !strings.Contains(err.Error(), "this node has no network") {
		return "", errors.Join(err, errors.New("asked for a log, the node does not say that it has no network"))
	}
	return fmt.Sprintf("up without root in %.1f s, %d pods ready, down leaves nothing", took.Seconds(), len(pods.Items)), nil
}

// copyPrograms copies the programs to where all users can run them.
func copyPrograms(ctx context.Context, program, folder string) (string, error) {
	kubernetes, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(program), "vicinity-kubernetes"))
	if err != nil {
		return "", err
	}
	for name, path := range map[string]string{"vicinity-lab": program, "vicinity-kubernetes": kubernetes} {
		if err := command(ctx, "cp", path, filepath.Join(folder, name)); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, "vicinity-lab"), nil
}
