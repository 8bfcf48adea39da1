package cri_test

import (
	"bytes"
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/built"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// rig is a lab with kubelets.
type rig struct {
	t       *testing.T
	dir     state.Dir
	cluster *lab.Cluster
	client  *lab.Client
}

const patience = 2 * time.Minute

func live(t *testing.T) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a lab, which takes a while")
	}
	if _, err := built.Program("vicinity-lab", "vicinity-kubernetes"); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces, which needs root")
	}
	if err := fabric.Check(); err != nil {
		t.Skip(err)
	}
	s, err := shape.FromOptions(shape.Options{Name: "cri", Zones: []string{"a", "b"}, NodesPerZone: []int{1}, Proxy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, cluster: lab.Start(t, s)}
	r.dir = state.At(filepath.Dir(r.cluster.Kubeconfig()))
	if r.client, err = r.cluster.Client(); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait waits for a condition.
func (l *rig) wait(what string, met func(context.Context) (bool, string)) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
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
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pod creates a pod of a specification in YAML.
func (l *rig) pod(name, spec string) *corev1.Pod {
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

func (l *rig) get(name string) *corev1.Pod {
	l.t.Helper()
	pod, err := l.client.CoreV1().Pods("default").Get(l.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return pod
}

// until waits until a pod is as wanted, and returns it.
func (l *rig) until(name, what string, met func(*corev1.Pod) bool) *corev1.Pod {
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

func (l *rig) gone(name string) {
	l.t.Helper()
	l.wait(name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := l.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

func (l *rig) remove(name string, grace int64) {
	l.t.Helper()
	err := l.client.CoreV1().Pods("default").Delete(l.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *rig) logs(name string, o *corev1.PodLogOptions) string {
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
func (l *rig) mountsOnMachine() string {
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

func TestKubeletsRunPods(t *testing.T) {
	l := live(t)
	// They wait for kubelets, which look every few seconds, so they wait together.
	t.Run("pods", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"runs": l.testRuns, "mounts": l.testMounts, "ends": l.testEnds, "image": l.testImage,
			"user": l.testUser, "hooks": l.testHooks, "storage": l.testStorage,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("nodes", l.testNodes)
}

// with makes the lab report to a subtest.
func (l *rig) with(t *testing.T) *rig {
	other := *l
	other.t = t
	return &other
}

func (l *rig) testRuns(t *testing.T) {
	l = l.with(t)
	var slowest time.Duration
	watch, err := l.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=runs"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for range 2 {
		l.pod("runs", echoSpec)
		var bound time.Time
		for event := range watch.ResultChan() {
			pod := event.Object.(*corev1.Pod)
			if bound.IsZero() && pod.Spec.NodeName != "" {
				bound = time.Now()
			}
			if isReady(pod) {
				slowest = max(slowest, time.Since(bound))
				t.Logf("ready %v after it was bound", time.Since(bound).Round(time.Millisecond))
				break
			}
		}
		pod := l.get("runs")
		if len(pod.Status.PodIPs) != 2 || len(pod.Status.HostIPs) != 2 || pod.Status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("status is %+v", pod.Status)
		}
		l.wait("log", func(ctxt) (bool, string) {
			log := l.logs("runs", &corev1.PodLogOptions{})
			return strings.HasPrefix(log, "listening "), log
		})
		began := time.Now()
		l.remove("runs", 5)
		l.gone("runs")
		t.Logf("gone after %v", time.Since(began).Round(time.Millisecond))
		for event := range watch.ResultChan() {
			if event.Type == "DELETED" {
				break
			}
		}
	}
}

func (l *rig) testMounts(t *testing.T) {
	l = l.with(t)
	if _, err := l.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "green", "size": "9"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"word": "hush"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.pod("mounts", `
restartPolicy: Never
volumes:
- {name: scratch, emptyDir: {}}
- {name: settings, configMap: {name: settings}}
- {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
initContainers:
- name: first
  image: lab/sleep
  command: [sh, -c, "echo one > /scratch/file"]
  volumeMounts: [{name: scratch, mountPath: /scratch}]
containers:
- name: c
  image: lab/sleep
  command: [sh, -c]
  args:
  - |
    cat /scratch/file /etc/settings/color; echo; head -n 1 /info/labels
    echo $(COLOR) $WORD $NODE $LIMIT $size '$(UNKNOWN)'
    hostname; wc -c < /var/run/secrets/kubernetes.io/serviceaccount/token | grep -q '...' && echo token
    grep -c ' nsfs ' /proc/self/mountinfo; echo done > /dev/termination-log; exit 3
  env:
  - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
  - {name: WORD, valueFrom: {secretKeyRef: {name: secret, key: word}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
  envFrom: [{configMapRef: {name: settings}}]
  resources: {requests: {cpu: 250m}}
  volumeMounts: [{name: scratch, mountPath: /scratch}, {name: settings, mountPath: /etc/settings}, {name: info, mountPath: /info}]
`)
	pod := l.until("mounts", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	want := strings.Join([]string{"one", "green", `app="mounts"`, "green hush " + pod.Spec.NodeName + " 250 9 $(UNKNOWN)", "mounts", "token", "0"}, "\n")
	if got := l.logs("mounts", &corev1.PodLogOptions{}); got != want {
		t.Errorf("log is\n%s\nwant\n%s", got, want)
	}
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.ExitCode != 3 || ended.Reason != "Error" || ended.Message != "done\n" {
		t.Errorf("container ended %+v", ended)
	}
	if found := l.mountsOnMachine(); found != "" {
		t.Errorf("mounts on the machine:\n%s", found)
	}
	for _, path := range []string{"/scratch", "/info", "/etc/settings", "/run/secrets/kubernetes.io"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was made on the machine", path)
		}
	}
	l.remove("mounts", 0)
	l.gone("mounts")
}

func (l *rig) testEnds(t *testing.T) {
	l = l.with(t)
	l.pod("ends", `
containers:
- {name: c, image: lab/sleep, command: [sh, -c, "echo try; exit 1"]}
`)
	pod := l.until("ends", "backs off", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].RestartCount >= 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 1 {
		t.Errorf("last state is %+v", last)
	}
	if log := l.logs("ends", &corev1.PodLogOptions{Previous: true}); log != "try" {
		t.Errorf("previous log is %q", log)
	}
	l.remove("ends", 0)

	l.pod("stubborn", `
containers:
- {name: c, image: lab/sleep, command: [sh, -c, "trap '' TERM; echo up; while :; do sleep 0.1; done"]}
`)
	l.printed("stubborn", &corev1.PodLogOptions{})
	began := time.Now()
	l.remove("stubborn", 1)
	l.gone("stubborn")
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("a container that ignores the signal was gone after %v, before its grace was over", took)
	}

	l.pod("sick", `
containers:
- name: c
  image: lab/sleep
  command: [sh, -c, "sleep 1000"]
  livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 1}
terminationGracePeriodSeconds: 1
`)
	l.until("sick", "is restarted", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].RestartCount >= 1
	})
	l.remove("sick", 0)
}

// printed waits until a container says that it is up: its traps are set by then.
func (l *rig) printed(name string, o *corev1.PodLogOptions) {
	l.t.Helper()
	l.wait(name+" is up", func(ctxt) (bool, string) { log := l.logs(name, o); return log == "up", log })
}

func (l *rig) testImage(t *testing.T) {
	l = l.with(t)
	l.pod("image", "containers: [{name: c, image: 'docker.io/library/nginx:1.27'}]")
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
		l.until("image", reason, func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason
		})
	}
	l.wait("events", func(c ctxt) (bool, string) {
		list, err := l.client.CoreV1().Events("default").List(c, metav1.ListOptions{FieldSelector: "involvedObject.name=image"})
		if err != nil {
			return false, err.Error()
		}
		var reasons []string
		for _, e := range list.Items {
			reasons = append(reasons, e.Reason)
		}
		text := strings.Join(reasons, " ")
		return strings.Contains(text, "Pulling") && strings.Contains(text, "Failed") && strings.Contains(text, "BackOff"), text
	})
	l.remove("image", 0)
	l.gone("image")

	l.pod("changed", "restartPolicy: Never"+echoSpec)
	l.until("changed", "is ready", isReady)
	patch := `{"spec": {"containers": [{"name": "c", "image": "example.org/lab/echo:v2"}]}}`
	if _, err := l.client.CoreV1().Pods("default").Patch(t.Context(), "changed", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until("changed", "runs the other image", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0]
		if s.RestartCount == 0 && s.Image != "lab/echo" {
			t.Fatalf("the first attempt has image %q", s.Image)
		}
		return isReady(p) && s.RestartCount == 1 && s.Image == "example.org/lab/echo:v2"
	})
	l.remove("changed", 5)
	l.gone("changed")
}

func (l *rig) testUser(t *testing.T) {
	l = l.with(t)
	l.pod("user", `
securityContext: {runAsUser: 65532, runAsGroup: 65532, fsGroup: 2000}
containers:
- name: c
  image: lab/echo
  readinessProbe: {tcpSocket: {port: 8080}}
`)
	l.until("user", "ready", isReady)
	if out, err := l.exec("user", "id", "-G"); err != nil || out != "65532 2000" {
		t.Errorf("the user has groups %q, %v", out, err)
	}
	l.remove("user", 0)
	l.gone("user")
}

// A kubelet evicts a pod that has written more than its limit for ephemeral storage. /tmp
// counts, and a folder of the node does not.
func (l *rig) testStorage(t *testing.T) {
	l = l.with(t)
	for name, folder := range map[string]string{"above": "/tmp", "below": "/data"} {
		l.pod(name, `
restartPolicy: Never
terminationGracePeriodSeconds: 0
volumes: [{name: data, hostPath: {path: `+filepath.Join(t.TempDir(), "made", "by-the-runtime")+`}}]
containers:
- name: c
  image: lab/sleep
  command: [sh, -c, "for folder in / `+folder+`; do head -c 3145728 /dev/urandom > $folder/file; done; exec sleep 3600"]
  resources: {limits: {ephemeral-storage: 5Mi}}
  volumeMounts: [{name: data, mountPath: /data}]
`)
	}
	evicted := l.until("above", "is evicted", func(p *corev1.Pod) bool { return p.Status.Reason == "Evicted" })
	if evicted.Status.Phase != corev1.PodFailed || !strings.Contains(evicted.Status.Message, "ephemeral") {
		t.Errorf("the evicted pod is %s: %s", evicted.Status.Phase, evicted.Status.Message)
	}
	l.wait("storage of the other pod", func(c ctxt) (bool, string) {
		pod := l.get("below")
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("the pod that wrote less failed: %s", pod.Status.Message)
		}
		used, err := l.rootBytes(c, pod)
		return used >= 3<<20 && used < 4<<20, fmt.Sprint(used, err)
	})
	for _, name := range []string{"above", "below"} {
		l.remove(name, 0)
		l.gone(name)
	}
}

// rootBytes is what the first container of a pod has written, as its kubelet says.
func (l *rig) rootBytes(ctx context.Context, pod *corev1.Pod) (uint64, error) {
	text, err := l.client.CoreV1().RESTClient().Get().Resource("nodes").Name(pod.Spec.NodeName).SubResource("proxy").Suffix("stats/summary").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var summary struct {
		Pods []struct {
			PodRef     struct{ UID types.UID }
			Containers []struct{ Rootfs struct{ UsedBytes uint64 } }
		}
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return 0, err
	}
	for _, found := range summary.Pods {
		if found.PodRef.UID == pod.UID && len(found.Containers) > 0 {
			return found.Containers[0].Rootfs.UsedBytes, nil
		}
	}
	return 0, fmt.Errorf("the kubelet of %s has no numbers of pod %s", pod.Spec.NodeName, pod.Name)
}

func (l *rig) exec(name string, args ...string) (string, error) {
	l.t.Helper()
	request := l.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: args, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(l.client.Config(), "POST", request.URL())
	if err != nil {
		l.t.Fatal(err)
	}
	var out, failed bytes.Buffer
	err = executor.StreamWithContext(l.t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &failed})
	return strings.TrimSpace(out.String() + failed.String()), err
}

func (l *rig) testHooks(t *testing.T) {
	l = l.with(t)
	l.pod("hooks", `
volumes: [{name: v, emptyDir: {}}]
initContainers:
- name: beside
  image: lab/echo
  restartPolicy: Always
  startupProbe: {httpGet: {port: 8080, path: /}}
containers:
- name: c
  image: lab/sleep
  command: [sh, -c, "trap 'cat /v/*; exit 0' TERM; echo up; while :; do sleep 0.05; done"]
  volumeMounts: [{name: v, mountPath: /v}]
  lifecycle:
    postStart: {exec: {command: [sh, -c, "echo begun > /v/1"]}}
    preStop: {exec: {command: [sh, -c, "echo ending > /v/2"]}}
`)
	pod := l.until("hooks", "is ready", isReady)
	if s := pod.Status.InitContainerStatuses[0]; !s.Ready || s.Started == nil || !*s.Started {
		t.Errorf("the sidecar is %+v", s)
	}
	l.printed("hooks", &corev1.PodLogOptions{Container: "c"})
	log, err := l.client.CoreV1().Pods("default").GetLogs("hooks", &corev1.PodLogOptions{Container: "c", Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l.remove("hooks", 5)
	if got, err := io.ReadAll(log); err != nil || string(got) != "up\nbegun\nending\n" {
		t.Errorf("log is %q, %v", got, err)
	}
	l.gone("hooks")

	// A hook may use the grace up, and the container is asked to end all the same.
	l.pod("slow-hook", `
containers:
- name: c
  image: lab/sleep
  command: [sh, -c, "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"]
  lifecycle: {preStop: {sleep: {seconds: 100}}}
terminationGracePeriodSeconds: 200
`)
	l.printed("slow-hook", &corev1.PodLogOptions{})
	slow, err := l.client.CoreV1().Pods("default").GetLogs("slow-hook", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	l.remove("slow-hook", 1)
	if got, err := io.ReadAll(slow); err != nil || string(got) != "up\nasked\n" {
		t.Errorf("log is %q, %v", got, err)
	}
	l.gone("slow-hook")
}

// testNodes adds a node, and removes it with a pod.
func (l *rig) testNodes(t *testing.T) {
	l = l.with(t)
	node, err := l.cluster.AddNode(t.Context(), shape.Node{Zone: "b"})
	if err != nil {
		t.Fatal(err)
	}
	l.pod("left", "nodeName: "+node.Name+echoSpec)
	left := l.until("left", "is ready", isReady)
	namespace := shape.NamespacePath(shape.PodNamespace(l.cluster.Shape().Name, string(left.UID)))
	if _, err := os.Stat(namespace); err != nil {
		t.Error(err)
	}
	if err := l.cluster.RemoveNode(t.Context(), node.Name); err != nil {
		t.Fatal(err)
	}
	l.gone("left")
	if found := l.sandboxes(left); len(found) > 0 {
		t.Errorf("of its pod there is %q", found)
	}
	if _, err := os.Stat(namespace); !os.IsNotExist(err) {
		t.Errorf("its network namespace is left: %v", err)
	}
}

// sandboxes are the folders of the sandboxes of a pod.
func (l *rig) sandboxes(pod *corev1.Pod) []string {
	l.t.Helper()
	records, err := filepath.Glob(filepath.Join(l.dir.Pods(), "*", "sandbox.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	var found []string
	for _, record := range records {
		if text, err := os.ReadFile(record); err == nil && strings.Contains(string(text), string(pod.UID)) {
			found = append(found, filepath.Dir(record))
		}
	}
	return found
}
