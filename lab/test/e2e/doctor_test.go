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

	"vicinity.dev/vicinity/charts"
	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
)

// doctorArea is what "vicinity doctor" finds in a cluster that has all parts of Vicinity.
func doctorArea() area {
	return area{
		name:  "doctor",
		setup: zones,
		promises: []promise{
			{name: "faults", keep: faultsFound, within: 6 * time.Minute, tier: inTest},
			{name: "leftovers", keep: leftoversFound, within: 4 * time.Minute},
		},
	}
}

// examinedFinding is what a promise looks at of a finding.
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

// doctorUser may do what docs/reference/permissions.md says that doctor asks for, and nothing else.
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

// examine runs the command as that user. It is an error if anything may not be read, or if the exit code does not
// fit what was found.
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

// finds says how what doctor finds differs from what is wanted. It is empty if it does not.
func (s *scene) finds(ctx context.Context, wanted []string) (string, error) {
	found, err := s.examine(ctx)
	if err != nil {
		return "", err
	}
	var names, said []string
	for i := range found {
		names = append(names, found[i].name())
		said = append(said, found[i].What)
	}
	if slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(wanted))) {
		return "", nil
	}
	return fmt.Sprintf("it finds %q: %s", names, strings.Join(said, " ")), nil
}

// findsOnly waits until doctor finds these and nothing else. Before each look it does what is given.
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

// clusterFault is something wrong that is done to a cluster and undone again by commands. Both may be run more than once.
type clusterFault struct {
	finding    string
	inject     string
	undo       string
	besides    []string // other findings, which follow
	unsettling bool     // components write over what is injected, so that it is injected again while it is looked for
}

// aDocument makes a command of objects.
func aDocument(verb, objects string) string {
	return "kubectl " + verb + " -f - <<'EOF'\n" + objects + "\nEOF"
}

// objectFault is a fault that is an object of the promise's namespace, or of another that it says.
func objectFault(finding, objects string) clusterFault {
	return clusterFault{finding: finding, inject: aDocument("apply", objects), undo: aDocument("delete --ignore-not-found", objects)}
}

// clusterFaults are those that doctor finds, in a namespace, with Vicinity of a version.
func clusterFaults(namespace, chartVersion string) []clusterFault {
	service := func(finding, name, meta, spec string) clusterFault {
		return objectFault(finding+" Service "+namespace+"/"+name, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, %s}
spec: {selector: {app: nothing}, ports: [{port: 80}], %s}`, name, namespace, meta, spec))
	}
	const prefer = "annotations: {endpointslice.kubernetes.io/same-zone: Prefer}"
	budget := func(finding, name, spec string) clusterFault {
		return objectFault(finding+" TopologyDisruptionBudget "+namespace+"/"+name, fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: %s, namespace: %s}
spec: %s`, name, namespace, spec))
	}
	pdb := func(name, spec string) string {
		return fmt.Sprintf("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %s, namespace: %s}\nspec: %s\n---\n", name, namespace, spec)
	}
	settings := func(finding, name, key, text string) clusterFault {
		return objectFault(finding+" ConfigMap kube-system/"+name, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: kube-system}\ndata: {%s: %q}", name, key, text))
	}
	const own = "kubectl -n vicinity-system "
	return []clusterFault{
		{
			finding: "node-without-zone Node zone-a-1", inject: "kubectl label node zone-a-1 topology.kubernetes.io/zone-",
			undo: "kubectl label node zone-a-1 --overwrite topology.kubernetes.io/zone=zone-a",
		},
		{
			finding: "zone-in-two-regions Zone zone-b", inject: "kubectl label node zone-b-1 --overwrite topology.kubernetes.io/region=elsewhere",
			undo: "kubectl label node zone-b-1 --overwrite topology.kubernetes.io/region=local",
		},
		{
			finding: "zones-look-alike Zone zone-c", inject: "kubectl label node zone-c-2 --overwrite topology.kubernetes.io/zone=Zone_C",
			undo: "kubectl label node zone-c-2 --overwrite topology.kubernetes.io/zone=zone-c",
		},
		settings("kube-proxy-gate-off", "kube-proxy", "config.conf", "featureGates: {TopologyAwareHints: false}\n"),
		settings("kube-proxy-ipvs", "kube-proxy", "config.conf", "mode: ipvs\n"),
		settings("cilium-ignores-hints", "cilium-config", "kube-proxy-replacement", "true"),
		settings("antrea-ignores-hints", "antrea-config", "antrea-agent.conf", "featureGates: {TopologyAwareHints: false}\n"),
		objectFault("kube-proxy-version DaemonSet kube-system/kube-proxy", `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: old-kube-proxy}}
  template:
    metadata: {labels: {k8s-app: old-kube-proxy}}
    spec: {nodeSelector: {no-node: has-this}, containers: [{name: kube-proxy, image: "kube-proxy:v1.30.4"}]}`),
		{
			finding: "versions-differ DaemonSet vicinity-system/vicinity-proxy", inject: own + "label daemonset vicinity-proxy --overwrite app.kubernetes.io/version=0.0.9",
			undo: own + "label daemonset vicinity-proxy --overwrite app.kubernetes.io/version=" + chartVersion,
		},
		{
			finding: "program-version-differs Deployment vicinity-system/vicinity-controller", inject: own + "label deployment vicinity-controller --overwrite helm.sh/chart=vicinity-9.9.9",
			undo: own + "label deployment vicinity-controller --overwrite helm.sh/chart=vicinity-" + chartVersion,
		},
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
			finding: "proxy-probe-fails Lease vicinity-system/vicinity-proxy-zone-a-2", inject: own + "annotate lease vicinity-proxy-zone-a-2 --overwrite vicinity.dev/probe-failure='something else answers'",
			undo: "true", unsettling: true,
		},
		{
			finding: "clock-of-node Node zone-b-1",
			inject:  own + `patch lease vicinity-proxy-zone-b-1 --type=merge -p '{"spec":{"renewTime":"'"$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%S.000000Z)"'"}}'`,
			undo:    "true", unsettling: true,
		},
		service("service-part-ignored", "mistyped", "annotations: {endpointslice.kubernetes.io/same-zone: Nearby}", ""),
		service("service-not-routable", "local", prefer, "internalTrafficPolicy: Local"),
		service("service-members-hidden", "ring", prefer, "clusterIP: None, publishNotReadyAddresses: true"),
		objectFault("service-left-alone Service kube-system/left", "apiVersion: v1\nkind: Service\nmetadata: {name: left, namespace: kube-system, "+prefer+"}\nspec: {ports: [{port: 80}]}"),
		objectFault("policy-matches-nothing RoutingPolicy "+namespace+"/nobody", fmt.Sprintf(`
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: nobody, namespace: %s}
spec: {selector: {matchLabels: {app: nobody}}, mode: Prefer, level: Zone}`, namespace)),
		budget("budget-blocks-for-ever", "never", "{selector: {matchLabels: {app: nobody}}, maxUnavailable: 0}"),
		budget("budget-covers-nothing", "nobody", "{selector: {matchLabels: {app: nobody}}, maxUnavailable: 1}"),
		objectFault("pdb-blocks-for-ever PodDisruptionBudget "+namespace+"/never", pdb("never", "{selector: {matchLabels: {app: echo}}, minAvailable: 2}")),
		objectFault("pdbs-overlap Deployment "+namespace+"/echo", pdb("one", "{selector: {matchLabels: {app: echo}}, maxUnavailable: 1}")+
			pdb("two", "{selector: {matchLabels: {app: echo}}, maxUnavailable: 1}")),
		objectFault("pdb-covers-nothing PodDisruptionBudget "+namespace+"/nobody", pdb("nobody", "{selector: {matchLabels: {app: nobody}}, maxUnavailable: 1}")),
		// By now the nodes are old enough to have a Lease each.
		{
			finding: "proxy-lease-missing Lease vicinity-system/vicinity-proxy-zone-a-1", inject: own + "delete lease --ignore-not-found vicinity-proxy-zone-a-1",
			undo: "true", unsettling: true,
		},
		// The controller would write the authority back, so it is away meanwhile.
		{
			finding: "controller-not-ready Deployment vicinity-system/vicinity-controller", inject: own + "scale deployment vicinity-controller --replicas=0",
			besides: controllerAway,
		},
		{
			finding: "webhook-without-authority MutatingWebhookConfiguration vicinity",
			inject:  `kubectl patch mutatingwebhookconfiguration vicinity --type=json -p '[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":""}]'`,
			undo:    own + "scale deployment vicinity-controller --replicas=2; " + own + "rollout status deployment/vicinity-controller",
			besides: append([]string{"controller-not-ready Deployment vicinity-system/vicinity-controller"}, controllerAway...),
		},
	}
}

// controllerAway is what doctor finds besides where no controller runs.
var controllerAway = []string{
	"leader-missing Lease vicinity-system/vicinity-controller", "webhook-without-endpoint Service vicinity-system/vicinity-webhook",
}

const chartFolder = root + "/charts/vicinity"

// faultsFound injects one fault after the other: doctor finds each, by identifier and object, and nothing that is
// none; and does not any more when the fault is undone. One without a command for that is undone with the next.
func faultsFound(ctx context.Context, s *scene) (figure string, err error) {
	scratch, err := os.MkdirTemp("", "doctor-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := s.allowDoctor(ctx); err != nil {
		return "", err
	}
	if err := errors.Join(s.Apply(ctx, s.namespace, lab.EchoManifests("echo", 2)), s.WaitDeployment(ctx, s.namespace, "echo")); err != nil {
		return "", err
	}
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("in a healthy cluster: %w", err)
	}
	version, err := charts.Version()
	if err != nil {
		return "", err
	}
	all := clusterFaults(s.namespace, version)
	for i := range all {
		if err := s.findsFault(ctx, &all[i], "SCRATCH="+scratch+"\n"); err != nil {
			return "", fmt.Errorf("%d of %d: %w", i, len(all), err)
		}
	}
	return fmt.Sprintf("%d of %d faults found and gone when undone, 0 false, 0 in the healthy cluster", len(all), len(all)), nil
}

// faultTime is how long a fault may take to be found, and to be gone.
const faultTime = time.Minute

func (s *scene) findsFault(ctx context.Context, f *clusterFault, setting string) (err error) {
	undo := f.undo
	defer func() {
		// What is left would be found in the next promise, too.
		if err != nil && undo != "" {
			err = errors.Join(err, s.bash(context.WithoutCancel(ctx), setting+undo))
		}
	}()
	within, cancel := context.WithTimeout(ctx, faultTime)
	defer cancel()
	if err := s.bash(within, setting+f.inject); err != nil {
		return fmt.Errorf("injecting %s: %w", f.finding, err)
	}
	var again func(context.Context) error
	if f.unsettling {
		again = func(ctx context.Context) error { return s.bash(ctx, setting+f.inject) }
	}
	if err := s.findsOnly(within, again, append([]string{f.finding}, f.besides...)...); err != nil || f.undo == "" {
		return err
	}
	after, stop := context.WithTimeout(ctx, faultTime)
	defer stop()
	if err := s.bash(after, setting+f.undo); err != nil {
		return fmt.Errorf("undoing %s: %w", f.finding, err)
	}
	undo = ""
	if err := s.findsOnly(after, nil); err != nil {
		return fmt.Errorf("after %s was undone: %w", f.finding, err)
	}
	return nil
}

// leftoversFound uninstalls Vicinity while a Service is routed: doctor finds what is left and nothing else, and nothing when
// it is installed again.
func leftoversFound(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.allowDoctor(ctx); err != nil {
		return "", err
	}
	if err := s.serve(ctx, lab.EchoManifests("echo", 6), 6); err != nil {
		return "", err
	}
	if err := s.PatchService(ctx, s.namespace, "echo", preferZone); err != nil {
		return "", err
	}
	if err := s.WaitHints(ctx, s.namespace, "echo", true); err != nil {
		return "", err
	}
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("before it is uninstalled: %w", err)
	}
	defer func() {
		err = errors.Join(err, installZones(context.WithoutCancel(ctx), s.cluster))
	}()
	if err := s.cluster.RemoveVicinity(ctx); err != nil {
		return "", err
	}
	left := []string{
		"leftover-services Service vicinity.dev/routed", "leftover-slices EndpointSlice vicinity.dev/routed", "leftover-objects CustomResourceDefinition vicinity",
		"leftover-objects Lease vicinity", "service-without-controller Service " + s.namespace + "/echo",
	}
	if err := s.findsOnly(ctx, nil, left...); err != nil {
		return "", err
	}
	if err := installZones(ctx, s.cluster); err != nil {
		return "", err
	}
	if err := s.findsOnly(ctx, nil); err != nil {
		return "", fmt.Errorf("after it is installed again: %w", err)
	}
	return fmt.Sprintf("%d kinds of leftovers found, gone when it is installed again", len(left)), nil
}
