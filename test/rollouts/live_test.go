// Package rollouts_test runs DomainRollouts with real commands of vicinity and kubectl, the rollout
// controller, and Kubernetes' own controllers.
package rollouts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/cli"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	rolloutcontroller "vicinity.dev/vicinity/internal/rollout/controller"
	"vicinity.dev/vicinity/test/built"
	"vicinity.dev/vicinity/test/kube"
	"vicinity.dev/vicinity/test/rig"
)

const hall = "example.com/hall"

// cluster is a control plane with two nodes in each of the halls a and b.
type cluster struct {
	rig.ControlPlane
	api        client.Client
	namespace  string
	documented string
}

// run runs the controller of rollouts until the test ends.
func (c *cluster) run() {
	c.Helper()
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	reservation.CacheOptions(&cached)
	rolloutcontroller.CacheOptions(&cached)
	mgr, err := manager.New(c.Config(), manager.Options{Scheme: c.api.Scheme(), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	evicts := requester.New(c.Interface, func() bool { return false })
	if err := rolloutcontroller.Add(ctx, mgr, evicts, rolloutcontroller.Options{Workers: 2}); err != nil {
		c.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(func() {
		cancel()
		ended.Wait()
	})
}

// result is the output and exit code of a command.
type result struct {
	command, out, errs string
	code               int
}

func (r result) String() string {
	return fmt.Sprintf("$ %s\n%s%s(exit %d)", r.command, r.out, r.errs, r.code)
}

// kubectl runs the real kubectl.
func (c *cluster) kubectl(line string) result {
	c.Helper()
	program, err := built.Program("kubectl")
	if err != nil {
		c.Fatal(err)
	}
	r := result{command: "kubectl " + line}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(c.Context(), program, append(strings.Fields(line), "--namespace="+c.namespace, "--kubeconfig="+c.Kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else if err != nil {
		c.Fatal(err)
	}
	r.out, r.errs = out.String(), errs.String()
	return r
}

// vicinity runs "vicinity rollout".
func (c *cluster) vicinity(line string) result {
	c.Helper()
	var out, errs bytes.Buffer
	words := strings.Fields(line)
	args := append([]string{"rollout", words[0], "--namespace=" + c.namespace, "--kubeconfig=" + c.Kubeconfig}, words[1:]...)
	code := cli.Main(c.Context(), args, nil, &out, &errs)
	return result{"vicinity rollout " + line, out.String(), errs.String(), code}
}

// readDocumentation is the text of the documentation about kubectl.
func readDocumentation(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/rollouts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## kubectl rollout beside it\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("docs/rollouts.md has no section about kubectl")
	}
	return section
}

// expect fails unless a command ends with a code and prints some words.
func (c *cluster) expect(r result, code int, words ...string) {
	c.Helper()
	for _, word := range words {
		if r.code != code || !strings.Contains(r.out+r.errs, word) {
			c.Fatalf("want exit %d and %q of\n%s", code, word, r)
		}
	}
}

// waitStatus reads the status until it has some words.
func (c *cluster) waitStatus(words string) {
	c.Helper()
	c.Await(fmt.Sprintf("%q", words), func(context.Context) (string, error) {
		r := c.vicinity("status db")
		if !strings.Contains(r.out, words) {
			return r.String(), nil
		}
		return "", nil
	})
}

// expectDocumented is expect for words that must also be in the documentation.
func (c *cluster) expectDocumented(r result, code int, words ...string) {
	c.Helper()
	c.expect(r, code, words...)
	for _, word := range words {
		if !strings.Contains(c.documented, "`"+word+"`") {
			c.Errorf("docs/rollouts.md lacks `%s`", word)
		}
	}
}

func TestCommandsAtRollouts(t *testing.T) {
	c := &cluster{
		ControlPlane: rig.Start(t),
		namespace:    metav1.NamespaceDefault, documented: readDocumentation(t),
	}
	log.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.api, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	c.Label(hall, map[string]string{"fake-1": "a", "fake-2": "b", "fake-3": "a", "fake-4": "b"})
	c.run()
	for kind := range workloads {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c.withNamespace(t, strings.ToLower(kind)).testUpdates(kind)
		})
	}
}

// withNamespace returns the cluster for a test in its own namespace.
func (c *cluster) withNamespace(t *testing.T, namespace string) *cluster {
	t.Helper()
	inner := *c
	inner.ControlPlane = c.For(t)
	var err error
	if inner.namespace, err = c.MakeNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return &inner
}

const (
	pausesBefore = `pauses before domain "b"`
	notDone      = "has not ended within"
)

// testUpdates updates a workload and undoes updates, as users do.
func (c *cluster) testUpdates(kind string) {
	target := strings.ToLower(kind) + "/db"
	c.Make(c.namespace, strings.ReplaceAll(rolloutManifest, "KIND", kind))
	c.waitStatus(fmt.Sprintf("there is no %s db in namespace %s; make it", kind, c.namespace))
	c.expect(c.vicinity("status db --watch --timeout 2m"), 1, "is invalid: there is no "+kind)
	c.Make(c.namespace, strings.ReplaceAll(workloads[kind], "HALL", hall))
	c.expect(c.vicinity("status db --watch --timeout 2m"), 0, "Complete", "4 of 4 pods updated, 4 healthy")
	c.kubectlStatus(target, 0)

	// A restart is an update by domain.
	c.expect(c.kubectl("rollout restart "+target), 0, "restarted")
	c.waitPaused("one")
	c.expect(c.vicinity("status db"), 0, "phase: Paused", pausesBefore)
	c.kubectlStatus(target, 1)
	c.kubectlPauses(target)
	c.expect(c.vicinity("status db --watch --timeout 1s"), 1, notDone, pausesBefore)
	c.expect(c.vicinity("resume db"), 0, `goes on with domain "b"`)
	c.expect(c.vicinity("status db --watch --timeout 2m"), 0, "Complete")
	c.kubectlStatus(target, 0)
	c.expect(c.kubectl("rollout history "+target), 0, "\n1 ", "\n2 ")

	// Undo before the rollout is complete rolls back; the next one updates.
	c.expect(c.kubectl("set image "+target+" c=two"), 0, "updated")
	c.waitPaused("two")
	c.expect(c.kubectl("rollout undo "+target), 0, "rolled back")
	c.waitComplete("one", rolledBack)
	c.expect(c.kubectl("rollout undo "+target), 0, "rolled back")
	c.waitPaused("two")

	c.expect(c.vicinity("pause db"), 0, "is paused: no more pods are evicted")
	if !c.read().Spec.Paused {
		c.Error("spec.paused is not true")
	}
	c.expect(c.vicinity("resume db"), 0, "is no longer paused; it "+pausesBefore)
	if d := c.read(); d.Spec.Paused || d.Spec.Approved != nil && d.Spec.Approved.Revision == d.Status.Revision {
		c.Errorf("the spec after resume is %+v", d.Spec)
	}
	c.expect(c.vicinity("abort db"), 0, "is aborted", "2 of 4 pods updated")
	c.expect(c.vicinity("status db --watch --timeout 2m"), 1, "was aborted (spec.stop); pods stay as they are")
	c.expectImages("two", "one")

	// For kubectl, the previous revision is the one that was written last.
	c.expect(c.kubectl("set image "+target+" c=three"), 0, "updated")
	c.waitPaused("three")
	c.expect(c.kubectl("rollout undo "+target+" --dry-run=client"), 0, "two")
	c.expect(c.vicinity("rollback db"), 0, "is written to "+kind+" db")
	c.expect(c.vicinity("status db --watch --timeout 2m"), 0, "Complete")
	c.waitComplete("one", rolledBack)
	before := c.uids()
	c.expect(c.kubectl("rollout undo "+target), 0, "rolled back")
	c.waitComplete("one", func(events []string) bool {
		return len(events) > 2 && slices.Equal(events[len(events)-3:], []string{"RolloutBegan", "RollbackBegan", "RolloutComplete"})
	})
	if after := c.uids(); !slices.Equal(before, after) {
		c.Errorf("a revision that was rolled back at once has replaced pods: %v, want %v", after, before)
	}
	c.expect(c.kubectl(`patch dr db --type=merge -p {"spec":{"stop":null}}`), 0, "patched")
	c.expect(c.kubectl("rollout undo "+target), 0, "rolled back")
	c.waitPaused("three")
	if kind == v1alpha1.KindDeployment {
		c.pausedDeployment(target)
	}
}

// kubectlStatus expects an exit code of kubectl rollout status: 0 if the rollout is complete.
func (c *cluster) kubectlStatus(target string, code int) {
	c.Helper()
	r := c.kubectl("rollout status " + target + " --timeout=1s")
	switch {
	case target != "deployment/db":
		c.expectDocumented(r, 1, "rollout status is only available for RollingUpdate strategy type")
	case code == 0:
		c.expectDocumented(c.kubectl("rollout status "+target+" --timeout=1m"), 0, "successfully rolled out")
	default:
		c.expectDocumented(r, code, "2 old replicas are pending termination...")
	}
}

// kubectlPauses pauses the workload while its rollout waits, and resumes it.
func (c *cluster) kubectlPauses(target string) {
	c.Helper()
	pause, resume := "rollout pause "+target, "rollout resume "+target
	if target != "deployment/db" {
		c.expectDocumented(c.kubectl(pause), 1, "pausing is not supported")
		c.expectDocumented(c.kubectl(resume), 1, "resuming is not supported")
		return
	}
	c.expect(c.kubectl(pause), 0, "paused")
	c.waitStatus(`Deployment db is paused: it updates no pods before "kubectl rollout resume deployment/db -n ` + c.namespace)
	c.expect(c.kubectl(resume), 0, "resumed")
}

// pausedDeployment pauses a Deployment while a domain is updated, and then changes its template.
func (c *cluster) pausedDeployment(target string) {
	c.expect(c.kubectl("rollout pause "+target), 0, "paused")
	c.expect(c.vicinity("resume db"), 0, `goes on with domain "b"`)
	c.Await("a pod that does not go", func(context.Context) (string, error) {
		d := c.read()
		if d.Status.Phase != v1alpha1.PhaseProgressing || !strings.Contains(d.Status.WaitingFor, "to go") {
			return fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor), nil
		}
		return "", nil
	})
	c.waitStatus("Deployment db is paused: it updates no pods")
	c.expectDocumented(c.kubectl("rollout restart "+target), 1, "can't restart paused deployment (run rollout resume first)")
	c.expect(c.kubectl("set image "+target+" c=four"), 0, "updated")
	c.expect(c.vicinity("status db --watch --timeout 2s"), 1, "its new template is not rolled out before", notDone)
	c.expect(c.kubectl("rollout resume "+target), 0, "resumed")
	c.expect(c.vicinity("status db --watch --timeout 2m"), 0, "Complete")
	c.expectImages("four", "four")

	// A complete rollout has not ended while no revision has the template.
	c.expect(c.kubectl("rollout pause "+target), 0, "paused")
	c.waitStatus("Deployment db is paused: it updates no pods")
	c.expect(c.vicinity("status db --watch --timeout 2m"), 0, "Complete")
	c.expect(c.kubectl("set image "+target+" c=five"), 0, "updated")
	c.expect(c.vicinity("status db --watch --timeout 2s"), 1, "its new template is not rolled out before", notDone)
}

func (c *cluster) read() *v1alpha1.DomainRollout {
	c.Helper()
	d := &v1alpha1.DomainRollout{}
	if err := c.api.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: "db"}, d); err != nil {
		c.Fatal(err)
	}
	return d
}

func (c *cluster) pods() []corev1.Pod {
	c.Helper()
	list, err := c.CoreV1().Pods(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" }) // pending pods
}

func (c *cluster) uids() (uids []string) {
	for _, pod := range c.pods() {
		uids = append(uids, string(pod.UID))
	}
	slices.Sort(uids)
	return uids
}

// missing names the pods that do not have the image of their hall.
func (c *cluster) missing(a, b string) string {
	pods, inB := c.pods(), c.nodesInB()
	good, found := 0, ""
	for i := range pods {
		pod, in, image := &pods[i], "a", a
		if slices.Contains(inB, pod.Spec.NodeName) {
			in, image = "b", b
		}
		ready := pod.DeletionTimestamp == nil && kube.PodReady(pod)
		if ready && pod.Spec.Containers[0].Image == image {
			good++
		}
		found += fmt.Sprintf("\n%s in hall %s has image %s, ready: %t", pod.Name, in, pod.Spec.Containers[0].Image, ready)
	}
	if good == 4 && len(pods) == 4 {
		return ""
	}
	return fmt.Sprintf("4 ready pods of image %s in hall a or %s in hall b, but%s", a, b, found)
}

// nodesInB returns the nodes in hall b.
func (c *cluster) nodesInB() (names []string) {
	nodes, err := c.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{LabelSelector: hall + "=b"})
	if err != nil {
		c.Fatal(err)
	}
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}

func (c *cluster) expectImages(a, b string) {
	c.Helper()
	if missing := c.missing(a, b); missing != "" {
		c.Error(missing)
	}
}

// waitPaused waits until the rollout of an image pauses before hall b, which has image one.
func (c *cluster) waitPaused(image string) {
	c.Helper()
	c.Await("a pause before hall b", func(context.Context) (string, error) {
		d := c.read()
		if d.Status.Phase != v1alpha1.PhasePaused || !strings.Contains(d.Status.WaitingFor, pausesBefore) {
			return fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor), nil
		}
		return c.missing(image, "one"), nil
	})
}

func rolledBack(events []string) bool { return slices.Contains(events, "RollbackBegan") }

// waitComplete waits until the rollout is complete and its events fit.
func (c *cluster) waitComplete(image string, after func(events []string) bool) {
	c.Helper()
	c.Await("the image "+image, func(context.Context) (string, error) {
		d := c.read()
		var events []string
		for i := range d.Status.History {
			events = append(events, d.Status.History[i].Event)
		}
		if d.Status.Phase != v1alpha1.PhaseComplete || !after(events) {
			return fmt.Sprintf("%s: %s, after %v", d.Status.Phase, d.Status.WaitingFor, events), nil
		}
		return c.missing(image, image), nil
	})
}

const rolloutManifest = `
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: db}
spec:
  targetRef: {kind: KIND, name: db}
  topologyKey: ` + hall + `
  pauseBefore: [b]
`

var workloads = map[string]string{
	v1alpha1.KindStatefulSet: `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 4
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  serviceName: db
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "one"}]
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: HALL, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}
      tolerations: [{operator: Exists}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: HALL, operator: Exists}]}]}}}
`,
	v1alpha1.KindDaemonSet: `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "one"}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: HALL, operator: Exists}]}]}}}
`,
	v1alpha1.KindDeployment: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  replicas: 4
  selector: {matchLabels: {app: db}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      schedulingGates: [{name: vicinity.dev/rollout}]
      containers: [{name: c, image: "one"}]
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: HALL, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: db}}}
      tolerations: [{operator: Exists}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: HALL, operator: Exists}]}]}}}
`,
}
