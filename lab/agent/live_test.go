package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// startPatience is how long a lab may take on a machine that is busy.
const startPatience = 3 * time.Minute

// lab is a control plane, a fabric and an agent, of real processes.
type lab struct {
	t      *testing.T
	dir    state.Dir
	shape  shape.Shape
	config *rest.Config
	client kubernetes.Interface
	agent  *process.Process
	// patience is how long a condition may take to come about.
	patience time.Duration
}

func live(t *testing.T, o shape.Options) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, which takes a while")
	}
	program, err := filepath.Abs("../../bin/vicinity-kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not built; make kubernetes builds it", program)
	}
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces, which needs root")
	}
	if err := fabric.Check(); err != nil {
		t.Skip(err)
	}
	s, err := shape.FromOptions(o)
	if err != nil {
		t.Fatal(err)
	}
	// Thousands of leases cannot be renewed every few seconds.
	if slow := time.Duration(o.FakeNodes) * time.Second / maxRenewals; slow > s.Timing.LeaseRenewal.Duration {
		s.Timing.MonitorGrace.Duration = 4 * slow
	}
	ctx, cancel := context.WithTimeout(t.Context(), startPatience)
	defer cancel()
	dir, err := state.Create(t.TempDir(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, shape: s, patience: time.Minute}
	if o.FakeNodes > 0 {
		l.patience += time.Duration(*fakePods) * time.Second / 100
	}
	t.Cleanup(l.down)
	if _, err := fabric.Up(s); err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.FreePort(ctx, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(state.Lab{Shape: s, Port: port}); err != nil {
		t.Fatal(err)
	}
	c, err := controlplane.New(controlplane.Config{
		Dir: dir, Shape: s, Port: port, Program: program, Gateway: []string{os.Args[0], gatewayArgument, dir.Path()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if l.config, err = clientcmd.BuildConfigFromFlags("", dir.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	l.config.QPS = -1
	l.client = kubernetes.NewForConfigOrDie(l.config)
	l.startAgent()
	l.wait("nodes are ready", func(ctx context.Context) (bool, string) {
		list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		ready := 0
		for _, n := range list.Items {
			// Fakes get their pods without the scheduler, which minds taints.
			if nodeReady(&n) && (o.FakeNodes > 0 || len(n.Spec.Taints) == 0) {
				ready++
			}
		}
		want := len(s.Nodes()) + s.FakeNodes
		return ready == want, fmt.Sprintf("%d of %d", ready, want)
	})
	l.wait("the default service account", func(ctx context.Context) (bool, string) {
		_, err := l.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return l
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (l *lab) startAgent() {
	l.t.Helper()
	p, err := process.Start(l.dir, process.Spec{
		Name: "agent", Args: []string{os.Args[0], agentArgument, l.dir.Path()},
		Namespace: shape.FabricNamespace(l.shape.Name),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.agent = p
}

func (l *lab) down() {
	if text, err := os.ReadFile(l.dir.Log("agent")); err == nil && (l.t.Failed() || testing.Verbose()) {
		l.t.Logf("agent.log:\n%s", text[max(0, len(text)-6000):])
	}
	if err := process.StopAll(l.dir); err != nil {
		l.t.Error(err)
	}
	if err := fabric.Down(l.shape.Name); err != nil {
		l.t.Error(err)
	}
}

// wait waits for a condition.
func (l *lab) wait(what string, met func(context.Context) (bool, string)) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), l.patience)
	defer cancel()
	last := ""
	for {
		ok, now := met(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = now
		}
		select {
		case <-ctx.Done():
			l.t.Fatalf("waiting for %s: %s", what, last)
		case <-time.After(l.patience / 3000):
		}
	}
}

// pod creates a pod of a specification in YAML.
func (l *lab) pod(name, spec string) *corev1.Pod {
	l.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		l.t.Fatal(err)
	}
	made, err := l.client.CoreV1().Pods("default").Create(l.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return made
}

func (l *lab) get(name string) *corev1.Pod {
	l.t.Helper()
	pod, err := l.client.CoreV1().Pods("default").Get(l.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return pod
}

// until waits until a pod is as wanted, and returns it.
func (l *lab) until(name, what string, met func(*corev1.Pod) bool) *corev1.Pod {
	l.t.Helper()
	var pod *corev1.Pod
	l.wait(name+" "+what, func(context.Context) (bool, string) {
		pod = l.get(name)
		text, err := yaml.Marshal(pod.Status)
		if err != nil {
			l.t.Fatal(err)
		}
		return met(pod), string(text)
	})
	return pod
}

func (l *lab) gone(name string) {
	l.t.Helper()
	l.wait(name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := l.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func (l *lab) remove(name string, grace int64) {
	l.t.Helper()
	err := l.client.CoreV1().Pods("default").Delete(l.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) logs(name string, o *corev1.PodLogOptions) string {
	l.t.Helper()
	stream, err := l.client.CoreV1().Pods("default").GetLogs(name, o).Stream(l.t.Context())
	if err != nil {
		return err.Error()
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// mountsOnMachine are the mounts below the state folder that others than containers see.
func (l *lab) mountsOnMachine() string {
	l.t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	var found strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, l.dir.Path()) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// ctxt is short for what conditions are asked with.
type ctxt = context.Context

const echoSpec = `
containers:
- name: c
  image: lab/echo
  readinessProbe: {tcpSocket: {port: 8080}}
`

func TestAgent(t *testing.T) {
	l := live(t, shape.Options{Name: "test-agent", Zones: []string{"a", "b"}, NodesPerZone: []int{1}})
	t.Run("runs", l.testRuns)
	t.Run("mounts", l.testMounts)
	t.Run("ends", l.testEnds)
	t.Run("image", l.testImage)
	t.Run("user", l.testUser)
	t.Run("exec", l.testExec)
	t.Run("adopts", l.testAdopts)
	t.Run("hooks", l.testHooks)
	t.Run("node", l.testNode)
	t.Run("nodes", l.testNodes)
}

// with makes the lab report to a subtest.
func (l *lab) with(t *testing.T) *lab {
	other := *l
	other.t = t
	return &other
}
