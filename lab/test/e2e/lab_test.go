package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/test/kube"
)

// labArea covers the promises of docs/lab.md to users of the lab.
func labArea() area {
	return area{
		name:  "lab",
		setup: ownLabs,
		promises: []promise{
			{name: "up-and-down", keep: upAndDown, within: 10 * time.Minute, alone: true},
			{name: "scale", keep: scale, within: 6 * time.Minute, alone: true},
			{name: "documentation", keep: documentation("docs/lab.md"), within: 5 * time.Minute, alone: true},
			{name: "try", keep: documentation("docs/try.md"), within: 10 * time.Minute, alone: true},
		},
	}
}

// Most promises run these pods: two endpoints in each zone, and a client on each node.
const (
	echoes  = 6
	clients = 6
)

// deploy runs an echo Service and clients, and waits until it answers.
func (s *scene) deploy(ctx context.Context, spec ...string) error {
	return s.serve(ctx, lab.EchoManifests("echo", echoes, spec...), echoes)
}

// serve runs an echo Service from manifests, and clients, and waits until it has its endpoints and
// answers.
func (s *scene) serve(ctx context.Context, manifests string, endpoints int) error {
	if err := s.Apply(ctx, s.namespace, manifests+"---\n"+lab.ClientManifests("client", clients)); err != nil {
		return err
	}
	if err := s.WaitDeployment(ctx, s.namespace, "client"); err != nil {
		return err
	}
	if err := s.WaitEndpoints(ctx, s.namespace, "echo", endpoints); err != nil {
		return err
	}
	return s.waitSettled(ctx)
}

// waitSettled waits until the Service answers all clients, because proxies need a moment.
func (s *scene) waitSettled(ctx context.Context) error {
	return kube.Wait(ctx, "the Service to answer", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200, Duration: 250 * time.Millisecond}})
		if err != nil {
			return "", err
		}
		return failures(result), nil
	})
}

// waitAllUsed waits until the clients of each node reach all endpoints, because proxies learn of them
// at different times.
func (s *scene) waitAllUsed(ctx context.Context, endpoints int) error {
	return kube.Wait(ctx, "all endpoints to be used from every node", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 600, Duration: time.Second}})
		if err != nil {
			return "", err
		}
		used := map[string]int{}
		for _, flow := range result.Flows {
			used[flow.Node]++
		}
		for node, number := range used {
			if number < endpoints {
				return fmt.Sprintf("%s uses %d of %d endpoints", node, number, endpoints), nil
			}
		}
		return failures(result), nil
	})
}

// load sends requests to the echo Service of the scene.
func (s *scene) load(ctx context.Context, o lab.LoadOptions) (load.Result, error) {
	o.Namespace, o.Service, o.Plan.Patient = s.namespace, "echo", true
	return s.cluster.Load(ctx, o)
}

// planLoad plans load to the echo Service with a generous timeout of answers.
func (s *scene) planLoad(ctx context.Context, o lab.LoadOptions) (lab.LoadJob, error) {
	o.Namespace, o.Service, o.Plan.Patient = s.namespace, "echo", true
	o.Plan.Timeout = cmp.Or(o.Plan.Timeout, replyTimeout)
	return s.cluster.PlanLoad(ctx, o)
}

// planLoadOf plans load to another Service of the scene with the same pods as the echo Service.
func (s *scene) planLoadOf(ctx context.Context, service string, plan load.Plan) (lab.LoadJob, error) {
	plan.Timeout, plan.Patient = cmp.Or(plan.Timeout, replyTimeout), true
	job, err := s.cluster.PlanLoad(ctx, lab.LoadOptions{Namespace: s.namespace, Service: service, Plan: plan})
	job.Plan.Service = "" // pods name the echo Service in their answers
	return job, err
}

// flawless sends load and returns an error if a request fails.
func (s *scene) flawless(ctx context.Context, o lab.LoadOptions) (load.Result, error) {
	job, err := s.planLoad(ctx, o)
	if err != nil {
		return load.Result{}, err
	}
	return flawlessly(job.Run(ctx, load.Watch{}))
}

// flawlessly adds an error if the result has failures.
func flawlessly(result load.Result, err error) (load.Result, error) {
	if err != nil {
		return result, err
	}
	if text := failures(result); text != "" {
		return result, errors.New(text)
	}
	return result, nil
}

// underway is load that is being sent.
type underway struct {
	enough, ended chan struct{}
	result        load.Result
	err           error
}

// start begins to send, until the plan's duration is over, the context ends, or end is called.
func start(ctx context.Context, job lab.LoadJob, answered *atomic.Int64) *underway {
	u := &underway{enough: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(u.ended)
		u.result, u.err = job.Run(ctx, load.Watch{Enough: u.enough, Answered: answered})
	}()
	return u
}

// wait waits until the load has ended.
func (u *underway) wait() (load.Result, error) {
	<-u.ended
	return u.result, u.err
}

// end stops sending, and waits for the outstanding answers.
func (u *underway) end() (load.Result, error) {
	close(u.enough)
	return u.wait()
}

// replyTimeout is the timeout of answers. A slow machine delays them for seconds.
const replyTimeout = 10 * time.Second

// failures describes the failures of a result; empty if it has none. Too few requests count as a
// failure.
func failures(r load.Result) string {
	if r.Failed() == 0 && r.Answered > 0 {
		return cmp.Or(unsent(r), outage(r))
	}
	text := fmt.Sprintf("%d of %d requests failed", r.Failed(), r.Due)
	if unsent := r.Unsent.Total(); unsent > 0 {
		text += fmt.Sprintf(" (%d were not sent)", unsent)
	}
	if len(r.Examples) > 0 {
		var from []string
		for _, f := range r.Failures {
			from = append(from, fmt.Sprintf("%d of %s %s", f.Count, f.From, f.Kind))
		}
		first := r.Examples[0]
		text += fmt.Sprintf(": %s; the first %.1f s into the load of %.1f s, after a wait of %.2f s, from %s to %s: %s: %s", strings.Join(from, " and "),
			first.Time.Sub(r.Start).Seconds(), r.End.Sub(r.Start).Seconds(), first.After.Seconds(), first.From.Pod, first.Target, first.Kind, first.Error)
	}
	return text
}

// sent returns the number of requests that were sent.
func sent(r load.Result) int64 { return r.Due - r.Unsent.Total() }

// unsent describes that over 5 % of the requests were not sent, so that the result proves little;
// otherwise it is empty.
func unsent(r load.Result) string {
	if 20*r.Unsent.Total() <= r.Due {
		return ""
	}
	return fmt.Sprintf("%d of %d requests were not sent, because this machine has no free port or file", r.Unsent.Total(), r.Due)
}

// outage describes that too many connections needed TCP to send a packet again; otherwise it is
// empty. TCP hides outages of seconds: it repeats the first packet of a connection after 1, 3 and 7
// seconds.
func outage(r load.Result) string {
	if r.Resent <= max(2, r.Connections/2000) {
		return ""
	}
	return fmt.Sprintf("TCP had to send again on %d of %d connections, because no answer came; the slowest request took %.1f s",
		r.Resent, r.Connections, r.Latency().Max().Seconds())
}

// heavyPlan suffices to measure shares: a share of a third has a standard deviation of one point.
func heavyPlan() load.Plan { return load.Plan{Rate: 1000, Duration: 2500 * time.Millisecond} }

// lightPlan suffices to see that something works.
func lightPlan() load.Plan { return load.Plan{Rate: 400, Duration: time.Second} }

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// points returns the difference of two shares in percentage points.
func points(a, b float64) float64 { return 100 * math.Abs(a-b) }

// waitInZone waits until all traffic stays in its zone.
func (s *scene) waitInZone(ctx context.Context) error {
	o := lab.LoadOptions{Plan: load.Plan{Rate: 400, Duration: 250 * time.Millisecond}}
	return kube.Wait(ctx, "traffic to stay in its zone", func(ctx context.Context) (string, error) {
		result, err := s.load(ctx, o)
		if err != nil {
			return "", err
		}
		if result.InZone() < 1 {
			return fmt.Sprintf("%.0f %% stays", 100*result.InZone()), nil
		}
		return "", nil
	})
}

// during sends traffic while do runs, and returns its result. With a duration in the plan, traffic
// goes on to its end; otherwise it ends after do.
func (s *scene) during(ctx context.Context, o lab.LoadOptions, do func(context.Context) error) (result load.Result, err error) {
	endless := o.Plan.Duration == 0
	if endless {
		o.Plan.Duration = longest
	}
	// The load is planned before do, which may stop the API server.
	job, err := s.planLoad(ctx, o)
	if err != nil {
		return load.Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sending := start(ctx, job, nil)
	if err := do(ctx); err != nil {
		return load.Result{}, err
	}
	if endless {
		return flawlessly(sending.end())
	}
	return flawlessly(sending.wait())
}

func (s *scene) scale(ctx context.Context, name string, replicas int32) error {
	return s.scaleIn(ctx, s.namespace, name, replicas)
}

// scaleIn scales by a patch, without a read: the Deployment may change in between.
func (s *scene) scaleIn(ctx context.Context, namespace, name string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := s.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "scale"); err != nil {
		return err
	}
	return s.WaitDeployment(ctx, namespace, name)
}

// waitLeasesRenewed waits until all nodes of a zone have renewed their Leases.
func (s *scene) waitLeasesRenewed(ctx context.Context, name string) error {
	begun := time.Now()
	zone, _ := s.cluster.Shape().Zone(name)
	return kube.Wait(ctx, "the nodes of "+name+" to renew their Leases", func(ctx context.Context) (string, error) {
		for _, node := range zone.Nodes {
			lease, err := s.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(begun) {
				return node.Name + " is silent", nil
			}
		}
		return "", nil
	})
}

// soaking reports whether promises run in their long forms, at full scale, as in "make soak".
func soaking() bool { return os.Getenv("E2E_SOAK") != "" }

// inMakeTest reports whether only the promises of "make test" run.
func inMakeTest() bool { return os.Getenv("E2E_TIER") == string(inTest) }

// scale brings up a lab with many nodes without network, and as many pods as the project promises
// to support.
func scale(ctx context.Context, s *scene) (figure string, err error) {
	nodes, deployments, each := 200, 2, 250
	if soaking() {
		nodes, deployments, each = 5000, 10, 5000
	}
	wanted := must(shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("scale-%d", os.Getpid()), ControlPlaneOnly: true, FakeNodes: nodes,
	}))
	begun := time.Now()
	cluster := must(lab.Up(ctx, wanted, s.options))
	defer undo(&err, func() error { return lab.Down(context.WithoutCancel(ctx), wanted.Name, s.options) })
	up := time.Since(begun)
	client := must(cluster.Client())
	begun = time.Now()
	check(client.Apply(ctx, metav1.NamespaceDefault, crowds(deployments, each)))
	ready := func(ctx context.Context) (string, error) {
		list, err := client.AppsV1().Deployments(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		return missingPods(list.Items, deployments*each), nil
	}
	check(kube.Wait(ctx, "all pods to be ready", ready))
	took := time.Since(begun)
	status := must(cluster.Status(ctx))
	return fmt.Sprintf("%d nodes ready after %.0f s, %d pods after another %.0f s, %d MiB in total",
		nodes, up.Seconds(), deployments*each, took.Seconds(), status.Memory>>20), nil
}

// missingPods describes the pods that are not ready; empty if all are.
func missingPods(deployments []appsv1.Deployment, want int) string {
	var there, ready int
	for _, d := range deployments {
		there += int(d.Status.Replicas)
		ready += int(d.Status.ReadyReplicas)
	}
	if ready == want {
		return ""
	}
	return fmt.Sprintf("%d of %d pods exist, %d are ready", there, want, ready)
}

// crowds returns Deployments on the nodes without network.
func crowds(deployments, replicas int) string {
	var b strings.Builder
	for i := range deployments {
		fmt.Fprintf(&b, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd-%[1]d}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: crowd-%[1]d}}
  template:
    metadata: {labels: {app: crowd-%[1]d}}
    spec:
      nodeSelector: {%[3]s: "true"}
      containers: [{name: sleep, image: lab/sleep}]
`, i, replicas, shape.LabelFake)
	}
	return b.String()
}

// upAndDown kills up without warning, and then brings the same lab up and down. Afterwards no trace
// of the lab may be left on the machine.
func upAndDown(ctx context.Context, s *scene) (figure string, err error) {
	const most = time.Minute
	program := second{options: s.options, name: fmt.Sprintf("second-%d", os.Getpid())}
	before := must(program.machine())
	defer undo(&err, func() error { return program.run(context.WithoutCancel(ctx), "down") })
	check(program.killUp(ctx))
	begun := time.Now()
	check(program.run(ctx, "up"))
	took := time.Since(begun)
	check(program.run(ctx, "down"))
	check(program.gone(before))
	if took > most {
		return "", fmt.Errorf("up took %.1f s; at most %.0f are allowed", took.Seconds(), most.Seconds())
	}
	return fmt.Sprintf("up in %.1f s after a killed up, and nothing left after down", took.Seconds()), nil
}

// second is a second lab, beside the one of the area.
type second struct {
	options lab.Options
	name    string
}

func (p second) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.options.Program, args...)
	cmd.Args = append(cmd.Args, "--name", p.name)
	// The lab must ignore the user's HTTP proxy.
	cmd.Env = append(os.Environ(), "HTTP_PROXY=http://192.0.2.1:1", "HTTPS_PROXY=http://192.0.2.1:1", "VICINITY_LAB_DIR="+p.options.Root)
	return cmd
}

func (p second) run(ctx context.Context, args ...string) error {
	output, err := p.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("vicinity lab %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

// killUp kills up without warning, as soon as it starts the API server.
func (p second) killUp(ctx context.Context) error {
	cmd := p.command(ctx, "up")
	if err := cmd.Start(); err != nil {
		return err
	}
	path := filepath.Join(p.options.Root, p.name, "run", "kube-apiserver.json")
	err := kube.Wait(ctx, path, func(context.Context) (string, error) {
		_, err := os.Stat(path)
		return "", err
	})
	err = errors.Join(err, cmd.Process.Kill())
	if cmd.Wait() == nil {
		return errors.Join(err, errors.New("up ended before it could be killed"))
	}
	return err
}

// machine lists everything that a lab could leave on the machine: links of the host, mounts, and
// files beside the folders of labs.
func (p second) machine() ([]string, error) {
	var found []string
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		found = append(found, "link "+link.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		found = append(found, "mount "+strings.TrimSpace(line))
	}
	entries, err := os.ReadDir(p.options.Root)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		found = append(found, "file "+entry.Name())
	}
	slices.Sort(found)
	return found, nil
}

// gone returns an error if the lab left a trace, or if the machine has changed. Pods of another lab
// may come and go meanwhile.
func (p second) gone(before []string) error {
	traces, err := tracesOf(p.name, p.options.Root)
	if err != nil {
		return err
	}
	if len(traces) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(traces, ", "))
	}
	after, err := p.machine()
	if err != nil {
		return err
	}
	for _, now := range after {
		if !slices.Contains(before, now) && !strings.Contains(now, "/netns/") {
			return fmt.Errorf("left behind: %s", now)
		}
	}
	return nil
}

// tracesOf returns all network namespaces, processes and files of a lab on this machine.
func tracesOf(name, root string) ([]string, error) {
	namespaces, err := fabric.Namespaces(name)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, name)
	pids, err := process.Strays(state.At(folder), namespaces...)
	if err != nil {
		return nil, err
	}
	var traces []string
	for _, namespace := range namespaces {
		traces = append(traces, "network namespace "+namespace)
	}
	for _, pid := range pids {
		if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(command) > 0 {
			traces = append(traces, fmt.Sprintf("process %d %q", pid, command))
		}
	}
	if _, err := os.Lstat(folder); err == nil {
		traces = append(traces, "folder "+folder)
	}
	return traces, nil
}
