package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/test/kube"
)

// doctorArea covers "vicinity doctor" in a cluster with all parts of Vicinity.
func doctorArea() area {
	return area{
		name:  "doctor",
		setup: zones,
		promises: []promise{
			{name: "faults", keep: faultsFound, within: 6 * time.Minute, tier: inTest},
			{name: "parts-off", keep: partsOff, within: 4 * time.Minute},
			{name: "leftovers", keep: leftoversFound, within: 4 * time.Minute},
		},
	}
}

// examinedFinding has the parts of a finding that promises check.
type examinedFinding struct {
	ID     string
	Object struct{ Kind, Namespace, Name string }
	What   string
}

// name is the identifier with the object.
func (f *examinedFinding) name() string {
	object := f.Object.Name
	if f.Object.Namespace != "" {
		object = f.Object.Namespace + "/" + object
	}
	return f.ID + " " + f.Object.Kind + " " + object
}

// doctorUser has only the permissions that docs/reference/permissions.md lists for doctor.
const doctorUser = "doctor"

// allowDoctor gives the user the role of the document.
func (s *scene) allowDoctor(ctx context.Context) error {
	text, err := os.ReadFile(root + "/docs/reference/permissions.md")
	if err != nil {
		return err
	}
	role, err := documentedBlock(string(text), "yaml", "name: vicinity-doctor")
	if err != nil {
		return err
	}
	return s.Apply(ctx, "", role+`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vicinity-doctor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vicinity-doctor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: `+doctorUser+`}]
`)
}

// examine runs the command as that user. It returns an error if doctor may not read something, or
// if the exit code does not fit the findings.
func (s *scene) examine(ctx context.Context) ([]examinedFinding, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "vicinity"), "doctor", "-o", "json", "--as", doctorUser, "--kubeconfig", s.cluster.Kubeconfig())
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		return nil, err
	}
	var report struct {
		Findings []examinedFinding
		Problems int
		NotKnown []string
	}
	if err := json.Unmarshal(output, &report); err != nil {
		return nil, fmt.Errorf("doctor ends with exit code %d: %s: %w", code, &complaint, err)
	}
	if len(report.NotKnown) > 0 {
		return nil, fmt.Errorf("doctor may not read all: %s", strings.Join(report.NotKnown, "; "))
	}
	if (code == 1) != (report.Problems > 0) || code > 1 {
		return nil, fmt.Errorf("doctor found %d problems and ends with exit code %d", report.Problems, code)
	}
	return report.Findings, nil
}

// finds describes how the findings differ from the wanted ones; empty if they are the same.
func (s *scene) finds(ctx context.Context, wanted []string) (string, error) {
	found, err := s.examine(ctx)
	if err != nil {
		return "", err
	}
	var names, sentences []string
	for i := range found {
		names = append(names, found[i].name())
		sentences = append(sentences, found[i].What)
	}
	if slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(wanted))) {
		return "", nil
	}
	return fmt.Sprintf("it finds %q: %s", names, strings.Join(sentences, " ")), nil
}

// findsOnly waits until the findings are exactly the wanted ones. It calls before ahead of each
// look.
func (s *scene) findsOnly(ctx context.Context, before func(context.Context) error, wanted ...string) error {
	return kube.Wait(ctx, fmt.Sprintf("doctor to find %q", wanted), func(ctx context.Context) (string, error) {
		if before != nil {
			if err := before(ctx); err != nil {
				return "", err
			}
		}
		return s.finds(ctx, wanted)
	})
}

// clusterFault is a fault to inject: objects to create, or a command and the command that undoes
// it. Commands may run more than once.
type clusterFault struct {
	finding string
	objects string
	inject  string
	undo    string
	besides []string // other findings, which follow
}

// faultBatch has faults that do not hide each other.
type faultBatch struct {
	faults []clusterFault
	// unsettling says that components repair the faults, so that the commands run again before each
	// look.
	unsettling bool
}

// script combines the objects and the commands of the faults.
func (b faultBatch) script(verb string, command func(*clusterFault) string) string {
	objects, commands := "", ""
	for i := range b.faults {
		if f := &b.faults[i]; f.objects != "" {
			objects += "---\n" + f.objects + "\n"
		} else if c := command(f); c != "" {
			commands += c + "\n"
		}
	}
	if objects != "" {
		commands = "kubectl " + verb + " -f - <<'EOF'\n" + objects + "EOF\n" + commands
	}
	return commands
}

// injects and undoes return the commands for all faults.
func (b faultBatch) injects() string {
	return b.script("apply", func(f *clusterFault) string { return f.inject })
}

func (b faultBatch) undoes() string {
	return b.script("delete --ignore-not-found", func(f *clusterFault) string { return f.undo })
}

// findings returns the findings of all faults.
func (b faultBatch) findings() (all []string) {
	for i := range b.faults {
		all = append(append(all, b.faults[i].finding), b.faults[i].besides...)
	}
	return all
}

const (
	ownKubectl  = "kubectl -n vicinity-system "
	chartFolder = root + "/charts/vicinity"
)

// faultsOfNodes has faults of nodes, of other programs, of versions and of PodDisruptionBudgets.
func (s *scene) faultsOfNodes(chartVersion string) faultBatch {
	pdb := func(name, spec string) string {
		return fmt.Sprintf("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, s.namespace, spec)
	}
	const ofEcho = "{selector: {matchLabels: {app: echo}}, "
	return faultBatch{faults: []clusterFault{
		{
			finding: "node-without-zone Node zone-a-1", inject: "kubectl label node zone-a-1 " + corev1.LabelTopologyZone + "-",
			undo: "kubectl label node zone-a-1 --overwrite " + corev1.LabelTopologyZone + "=zone-a",
		},
		{finding: "kube-proxy-version DaemonSet kube-system/kube-proxy", objects: `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: old-kube-proxy}}
  template:
    metadata: {labels: {k8s-app: old-kube-proxy}}
    spec: {nodeSelector: {no-node: has-this}, containers: [{name: kube-proxy, image: "kube-proxy:v1.30.4"}]}`},
		{
			finding: "versions-differ DaemonSet vicinity-system/vicinity-proxy", inject: ownKubectl + "label daemonset vicinity-proxy --overwrite app.kubernetes.io/version=0.0.9",
			undo: ownKubectl + "label daemonset vicinity-proxy --overwrite app.kubernetes.io/version=" + chartVersion,
		},
		{
			finding: "pdbs-overlap Deployment " + s.namespace + "/echo",
			objects: pdb("one", ofEcho+"maxUnavailable: 1}") + "---\n" + pdb("two", ofEcho+"maxUnavailable: 1}"),
		},
	}}
}

// faultsOfServices has faults of Services, policies and budgets, and of the Leases of proxies.
func (s *scene) faultsOfServices() faultBatch {
	service := func(finding, name, meta, spec string) clusterFault {
		return clusterFault{finding: finding + " Service " + s.namespace + "/" + name, objects: fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, %s}
spec: {selector: {app: nothing}, ports: [{port: 80}], %s}`, name, s.namespace, meta, spec)}
	}
	budget := func(finding, name, maxUnavailable string) clusterFault {
		return clusterFault{finding: finding + " TopologyDisruptionBudget " + s.namespace + "/" + name, objects: fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: %s, namespace: %s}
spec: {selector: {matchLabels: {app: unused}}, maxUnavailable: %s}`, name, s.namespace, maxUnavailable)}
	}
	lease := func(finding, command string) clusterFault {
		return clusterFault{finding: finding, inject: ownKubectl + command}
	}
	return faultBatch{unsettling: true, faults: []clusterFault{
		service("service-part-ignored", "mistyped", "annotations: {endpointslice.kubernetes.io/same-zone: Nearby}", ""),
		{finding: "policy-matches-nothing RoutingPolicy " + s.namespace + "/unused", objects: fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: unused, namespace: %s}
spec: {selector: {matchLabels: {app: unused}}, mode: Prefer, level: Zone}`, s.namespace)},
		budget("budget-covers-nothing", "unused", "1"),
		lease("proxy-lease-missing Lease vicinity-system/vicinity-proxy-zone-a-1", "delete lease --ignore-not-found vicinity-proxy-zone-a-1"),
		lease("proxy-probe-fails Lease vicinity-system/vicinity-proxy-zone-a-2", "annotate lease vicinity-proxy-zone-a-2 --overwrite vicinity.dev/probe-failure='something else answers'"),
		lease("clock-of-node Node zone-b-1", `patch lease vicinity-proxy-zone-b-1 --type=merge -p '{"spec":{"renewTime":"'"$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%S.000000Z)"'"}}'`),
	}}
}

// faultsOfController has faults of the controller, its webhooks and CRDs.
func faultsOfController() faultBatch {
	return faultBatch{unsettling: true, faults: []clusterFault{
		{
			finding: "crd-old CustomResourceDefinition routingpolicies.vicinity.dev",
			inject:  `kubectl get crd routingpolicies.vicinity.dev -o json | sed 's/"services": {/"formerly": {/' | kubectl replace -f -`,
			undo:    "kubectl apply --server-side --force-conflicts -f " + chartFolder + "/crds/vicinity.dev_routingpolicies.yaml",
		},
		{
			finding: "webhook-missing ValidatingWebhookConfiguration vicinity",
			inject:  `f="$SCRATCH/validating.yaml"; [ -s "$f" ] || kubectl get validatingwebhookconfiguration vicinity -o yaml | grep -vE '^  (resourceVersion|uid|creationTimestamp):' >"$f"; kubectl delete --ignore-not-found validatingwebhookconfiguration vicinity`,
			undo:    `kubectl create -f "$SCRATCH/validating.yaml"`,
		},
		{
			finding: "controller-not-ready Deployment vicinity-system/vicinity-controller",
			// Without the delete, doctor would notice the leader's Lease half a minute later.
			inject: ownKubectl + "scale deployment vicinity-controller --replicas=0; " + ownKubectl + "delete lease --ignore-not-found vicinity-controller",
			undo:   ownKubectl + "scale deployment vicinity-controller --replicas=2; " + ownKubectl + "rollout status deployment/vicinity-controller",
			besides: []string{
				"leader-missing Lease vicinity-system/vicinity-controller", "webhook-without-endpoint Service vicinity-system/vicinity-webhook",
			},
		},
		{
			// The controller, which writes the authority, does not run.
			finding: "webhook-without-authority MutatingWebhookConfiguration vicinity",
			inject:  `kubectl patch mutatingwebhookconfiguration vicinity --type=json -p '[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":""}]'`,
		},
	}}
}

// faultsFound injects faults, several at a time. Doctor finds each by identifier and object, and
// nothing else. After they are undone it finds nothing.
func faultsFound(ctx context.Context, s *scene) (figure string, err error) {
	scratch := must(os.MkdirTemp("", "doctor-"))
	defer undo(&err, func() error { return os.RemoveAll(scratch) })
	check(s.allowDoctor(ctx))
	check(errors.Join(s.Apply(ctx, s.namespace, lab.EchoManifests("echo", 2)), s.WaitDeployment(ctx, s.namespace, "echo")))
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("in a healthy cluster: %w", err)
	}
	controller := must(s.AppsV1().Deployments(vicinityNamespace).Get(ctx, "vicinity-controller", metav1.GetOptions{}))
	version := controller.Labels["app.kubernetes.io/version"]
	found := 0
	for _, batch := range []faultBatch{s.faultsOfNodes(version), s.faultsOfServices(), faultsOfController()} {
		if err := s.findsFaults(ctx, batch, "SCRATCH="+scratch+"\n"); err != nil {
			return "", fmt.Errorf("after %d faults: %w", found, err)
		}
		found += len(batch.faults)
	}
	return fmt.Sprintf("%d faults found, and gone when undone; 0 false findings, 0 in the healthy cluster", found), nil
}

// faultTime limits the wait for findings to appear and to disappear. A new node has a minute to get
// a Lease.
const faultTime = 90 * time.Second

func (s *scene) findsFaults(ctx context.Context, batch faultBatch, setting string) (err error) {
	undone := false
	defer undo(&err, func() error {
		if undone {
			return nil
		}
		// Remaining faults would appear in the next promise too.
		return s.bash(context.WithoutCancel(ctx), setting+batch.undoes())
	})
	within, cancel := context.WithTimeout(ctx, faultTime)
	defer cancel()
	if err := s.bash(within, setting+batch.injects()); err != nil {
		return fmt.Errorf("injecting faults: %w", err)
	}
	var again func(context.Context) error
	if batch.unsettling {
		again = func(ctx context.Context) error { return s.bash(ctx, setting+batch.injects()) }
	}
	if err := s.findsOnly(within, again, batch.findings()...); err != nil {
		return err
	}
	after, stop := context.WithTimeout(ctx, faultTime)
	defer stop()
	if err := s.bash(after, setting+batch.undoes()); err != nil {
		return fmt.Errorf("undoing faults: %w", err)
	}
	undone = true
	if err := s.findsOnly(after, nil); err != nil {
		return fmt.Errorf("after %q were undone: %w", batch.findings(), err)
	}
	return nil
}

// sleepers returns a Deployment whose pods sleep.
func sleepers(name, annotations, pod string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, annotations: {%[2]s}}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {%[3]s terminationGracePeriodSeconds: 1, containers: [{name: main, image: lab/sleep}]}`, name, annotations, pod, replicas)
}

// partsOff writes what needs a part that is off, first keep-spread, and then the scheduling gate after rollouts were
// switched off. kubectl warns, doctor finds it, and pods at the gate start all the same.
func partsOff(ctx context.Context, s *scene) (figure string, err error) {
	check(s.allowDoctor(ctx))
	warned := must(s.warnings(ctx, sleepers("spread", "vicinity.dev/keep-spread: topology.kubernetes.io/zone", "", 0)))
	if !strings.Contains(warned, "Set rollouts.scaleDown=true") {
		return "", fmt.Errorf("the warning about keep-spread is %q", warned)
	}
	found := []string{"part-off Deployment " + s.namespace + "/spread"}
	check(s.findsOnly(ctx, nil, found...))
	defer undo(&err, func() error { return s.cluster.ChangeVicinity(context.WithoutCancel(ctx), "rollouts.enabled=true") })
	check(s.cluster.ChangeVicinity(ctx, "rollouts.enabled=false"))
	check(s.Apply(ctx, s.namespace, sleepers("gated", "", "schedulingGates: [{name: vicinity.dev/rollout}],", 1)))
	tries := 0
	check(kube.Wait(ctx, "a warning about the scheduling gate", func(ctx context.Context) (string, error) {
		tries++ // each write changes something
		output, err := s.kubectl(ctx, "", "annotate", "deployment", "gated", "--overwrite", fmt.Sprintf("try=%d", tries))
		if strings.Contains(output, "Set rollouts.enabled=true") {
			return "", err
		}
		return output, err
	}))
	check(s.WaitDeployment(ctx, s.namespace, "gated"))
	check(s.findsOnly(ctx, nil, append(found, "part-off Deployment "+s.namespace+"/gated")...))
	return "2 writes warned of by the value to set, and found by doctor; a pod left the gate", nil
}

// leftoversFound uninstalls Vicinity while a Service is routed and its zone is shifted. Doctor finds exactly the leftovers,
// cleanup brings the zone back, and doctor finds nothing after Vicinity is installed again.
func leftoversFound(ctx context.Context, s *scene) (figure string, err error) {
	check(s.allowDoctor(ctx))
	check(s.serve(ctx, lab.EchoManifests("echo", 6), 6))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	check(s.WaitHints(ctx, s.namespace, "echo", true))
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("before it is uninstalled: %w", err)
	}
	installed := false
	defer undo(&err, func() error {
		if installed {
			return nil
		}
		return installZones(context.WithoutCancel(ctx), s.cluster)
	})
	defer undo(&err, func() error { return s.unshift(ctx) })
	must(s.shift(ctx, "  for: 1h\n"))
	check(s.cluster.RemoveVicinity(ctx))
	left := []string{
		"leftover-services Service vicinity.dev/routed", "leftover-slices EndpointSlice vicinity.dev/routed", "leftover-objects CustomResourceDefinition vicinity",
		"leftover-objects Lease vicinity", "leftover-objects PodLocator vicinity", "service-without-controller Service " + s.namespace + "/echo",
	}
	check(s.findsOnly(ctx, nil, left...))
	if _, err := s.vicinity(ctx, "cleanup", "--yes", "--crds"); err != nil {
		return "", err
	}
	check(s.waitNoHints(ctx))
	check(s.waitAllUsed(ctx, echoes))
	check(s.findsOnly(ctx, nil, "not-installed Cluster cluster", "service-without-controller Service "+s.namespace+"/echo"))
	check(installZones(ctx, s.cluster))
	installed = true
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("after it is installed again: %w", err)
	}
	return fmt.Sprintf("%d kinds of leftovers found, and removed by vicinity cleanup", len(left)), nil
}
