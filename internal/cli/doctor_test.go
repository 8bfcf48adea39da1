package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/charts"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
)

// examinedCluster is a cluster in memory for doctor.
type examinedCluster struct {
	*fakeCluster
	named *metadatafake.FakeMetadataClient
	// reach is the answer of the webhooks' Service through the API server.
	reach error
	clock *command.Clock
}

// newExaminedCluster has the Services of the other tests, and the parts of Vicinity.
func newExaminedCluster(t *testing.T) *examinedCluster {
	t.Helper()
	c := &examinedCluster{fakeCluster: newFakeCluster(t)}
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c.clock = new(command.Clock)
	c.named = metadatafake.NewSimpleMetadataClient(scheme)
	discovery, ok := c.typed.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatal("discovery is not the fake one")
	}
	discovery.FakedServerVersion = &apiversion.Info{GitVersion: "v1.37.2"}
	crds, err := charts.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	served := &metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String()}
	c.typed.Resources = append(c.typed.Resources, served)
	for _, text := range crds {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		conditions := []any{map[string]any{"type": "Established", "status": "True"}}
		if err := unstructured.SetNestedSlice(object.Object, conditions, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
		if err := c.dynamic.Tracker().Create(definitionResource, object, ""); err != nil {
			t.Fatal(err)
		}
		plural, _, _ := strings.Cut(object.GetName(), ".")
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: plural})
	}
	label := map[string]string{"app.kubernetes.io/part-of": "vicinity"}
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "vicinity-system", Name: "vicinity-webhook"}}
	controller := aController("--namespace=vicinity-system")
	controller.Spec.Replicas, controller.Labels["app.kubernetes.io/version"] = new(int32(2)), "0.1.0"
	if err := c.typed.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), controller, "vicinity-system"); err != nil {
		t.Fatal(err)
	}
	holder, seconds := "vicinity-controller-0", int32(15)
	objects := []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity", Labels: label}, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: client}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-webhook"}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-webhook-x", Labels: map[string]string{discoveryv1.LabelServiceName: "vicinity-webhook"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		},
		&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-controller"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
			Data:       map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: ipvs\nfeatureGates: {TopologyAwareHints: false}\n"},
		},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{"kube-proxy-replacement": "false"}},
	}
	for _, object := range objects {
		if err := c.typed.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	c.reach = apierrors.NewNotFound(schema.GroupResource{}, "/")
	c.typed.PrependProxyReactor("services", func(kubetesting.Action) (bool, rest.ResponseWrapper, error) { return true, answer{err: c.reach}, nil })
	return c
}

// doctor runs the command.
func (c *examinedCluster) doctor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runCommands(t.Context(), append([]string{"doctor"}, args...), func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newDoctorCommand(s, func(f *clusterFlags) (*connection, error) {
			connected, err := c.connect(f)
			connected.metadata, connected.clock = metadata.Interface(c.named), c.clock
			return connected, err
		})}
	})
}

func (c *examinedCluster) report(t *testing.T) doctor.Report {
	t.Helper()
	_, stdout, stderr := c.doctor(t, "-o", "json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	return report
}

func found(report *doctor.Report, id, object string) bool {
	return slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.ID == id && f.Object.String() == object })
}

func TestDoctorGolden(t *testing.T) {
	for name, args := range map[string][]string{"all.txt": nil, "all.json": {"-o", "json"}} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := newExaminedCluster(t).doctor(t, args...)
			if code != 1 || !strings.HasPrefix(stderr, "vicinity: ") || !strings.HasSuffix(stderr, " problems found\n") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			golden.Compare(t, "testdata/doctor/"+name, stdout)
			if name == "all.txt" {
				compareDocumented(t, stdout)
			}
		})
	}
}

// compareDocumented fails unless docs/doctor.md shows a part of an output: its first paragraph and others, or … for those left out.
func compareDocumented(t *testing.T, output string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.Split(strings.TrimSpace(output), "\n\n")
	_, block, found := strings.Cut(string(text), "\n```text\n"+printed[0]+"\n\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	if !found {
		t.Fatalf("docs/doctor.md shows no output that begins with %q", printed[0])
	}
	for paragraph := range strings.SplitSeq(block, "\n\n") {
		if paragraph != "…" && !slices.Contains(printed, paragraph) {
			t.Errorf("docs/doctor.md shows this, which is not printed:\n%s", paragraph)
		}
	}
}

// Doctor reads exactly what is documented.
func TestDoctorPermissions(t *testing.T) {
	var actions []kubetesting.Action
	for _, without := range []bool{false, true} {
		c := newExaminedCluster(t)
		if err := c.typed.Tracker().Add(aCalico("v3.31.5")); err != nil {
			t.Fatal(err)
		}
		if without {
			if err := c.typed.Tracker().Delete(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "vicinity-system", "vicinity-controller"); err != nil {
				t.Fatal(err)
			}
		} else {
			// Pods matter only for a DNS server.
			server := aDeployment("coredns")
			server.Namespace, server.Labels, server.Annotations = "kube-system", map[string]string{"k8s-app": "kube-dns"}, map[string]string{v1alpha1.AnnotationDNSBefore: "{}"}
			if err := c.typed.Tracker().Add(server); err != nil {
				t.Fatal(err)
			}
		}
		if code, _, stderr := c.doctor(t); code != 1 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		actions = slices.Concat(actions, c.actions(), c.named.Actions())
	}
	compareRights(t, documentedRights(t, "\n## A whole cluster\n"), actions...)
}

// Doctor names what it may not read, and goes on.
func TestDoctorWithoutPermissions(t *testing.T) {
	for _, resource := range []string{
		"nodes", "leases", "daemonsets", "configmaps", "customresourcedefinitions", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "endpointslices", "services",
		"namespaces", "endpointgroups", "routingpolicies", "clusterroutingpolicies", "topologydisruptionbudgets", "domainrollouts", "zoneshifts", "poddisruptionbudgets", "statefulsets", "deployments",
		"ingresses", "ingressclasses", "httproutes", "grpcroutes",
	} {
		t.Run(resource, func(t *testing.T) {
			c := newExaminedCluster(t)
			before := c.report(t)
			c.refuse(resource, forbidden("", resource))
			c.named.PrependReactor("*", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden("", resource) })
			code, _, stderr := c.doctor(t)
			if code > 1 || !strings.Contains(stderr, "cannot tell ") || !strings.Contains(stderr, "you may not ") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			after := c.report(t)
			for _, f := range after.Findings {
				if !found(&before, f.ID, f.Object.String()) {
					t.Errorf("found %s of %s only where it should be unknown", f.ID, f.Object)
				}
			}
			if len(after.NotKnown) == 0 {
				t.Error("JSON does not say what is not known")
			}
		})
	}
}

// The flags of the controller say which parts are off.
func TestDoctorFindsPartsThatAreOff(t *testing.T) {
	c := newExaminedCluster(t)
	paced := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "paced", Labels: map[string]string{v1alpha1.PaceScaleDown: v1alpha1.PaceClamp}}}
	if err := c.typed.Tracker().Add(paced); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--namespace=vicinity-system"}, {"--namespace=vicinity-system", "--budgets", "--pace-scale-downs"}} {
		if err := c.typed.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), aController(flags...), "vicinity-system"); err != nil {
			t.Fatal(err)
		}
		report := c.report(t)
		if got, want := found(&report, "part-off", "Namespace paced"), len(flags) == 1; got != want {
			t.Errorf("%q: found %t, want %t", flags, got, want)
		}
	}
}

func TestDoctorWithoutCluster(t *testing.T) {
	refused := newExaminedCluster(t)
	for _, resource := range []string{"nodes", "services", "deployments"} {
		refused.refuse(resource, forbidden("", resource))
	}
	broken := newExaminedCluster(t)
	broken.refuse("nodes", errors.New("etcd is away"))
	for _, test := range []struct {
		name, want string
		cluster    *examinedCluster
	}{
		{"nothing may be read", "vicinity: you may not list nodes, services or deployments in all namespaces, so doctor can check nothing; see docs/doctor.md\n", refused},
		{"an error", "vicinity: reading nodes: etcd is away\n", broken},
	} {
		if code, stdout, stderr := test.cluster.doctor(t); code != 2 || stdout != "" || stderr != test.want {
			t.Errorf("%s: exit code %d, %q, %q; want %q", test.name, code, stdout, stderr, test.want)
		}
	}
}

// The API server's answer says whether it reaches the webhooks. Any HTTP status of theirs counts.
func TestDoctorReachesWebhooks(t *testing.T) {
	const id, object = "webhook-unreachable", "Service vicinity-system/vicinity-webhook"
	for _, test := range []struct {
		answer  error
		found   bool
		unknown string
	}{
		{nil, false, ""},
		{apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{}, "", "404 page not found", 0, true), false, ""},
		{apierrors.NewServiceUnavailable("error trying to reach service: dial tcp 10.0.0.1:9443: connect: connection refused"), true, ""},
		{apierrors.NewServiceUnavailable("error trying to reach service: remote error: tls: certificate required"), false, ""},
		{apierrors.NewServiceUnavailable("error trying to reach service: remote error: tls: internal error"), true, ""},
		{forbidden("", "services/proxy"), false, "cannot tell whether the API server reaches the webhooks, beyond that their endpoints are ready: you may not get services/proxy in namespace vicinity-system"},
	} {
		c := newExaminedCluster(t)
		c.reach = test.answer
		report := c.report(t)
		if got := found(&report, id, object); got != test.found {
			t.Errorf("%v: found %t", test.answer, got)
		}
		for _, f := range report.Findings {
			if f.ID == id && !strings.Contains(f.What, test.answer.Error()) {
				t.Errorf("%q does not say that %v", f.What, test.answer)
			}
		}
		if test.unknown != "" && !slices.Contains(report.NotKnown, test.unknown) {
			t.Errorf("not known: %q", report.NotKnown)
		}
	}
}

// aCalico is a Calico of the operator, whose data plane only its FelixConfiguration shows.
func aCalico(version string) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: "calico-node", Labels: map[string]string{"k8s-app": "calico-node"}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 7},
	}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "calico-node", Image: "quay.io/calico/node:" + version}}
	return set
}

// Calico serves Services if its settings say so. Releases before 3.31 ignore hints.
func TestDoctorReadsCalico(t *testing.T) {
	for _, test := range []struct {
		version    string
		bpf, found bool
		err        error
	}{
		{"v3.30.2", true, true, nil}, {"v3.30.2", false, false, nil}, {"v3.31.5", true, false, nil}, {"v3.30.2", true, false, forbidden("crd.projectcalico.org", "felixconfigurations")},
	} {
		c := newExaminedCluster(t)
		if err := c.typed.Tracker().Add(aCalico(test.version)); err != nil {
			t.Fatal(err)
		}
		felix := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"bpfEnabled": test.bpf}}}
		felix.SetGroupVersionKind(felixResource.GroupVersion().WithKind("FelixConfiguration"))
		felix.SetName("default")
		if err := c.dynamic.Tracker().Create(felixResource, felix, ""); err != nil {
			t.Fatal(err)
		}
		if test.err != nil {
			c.refuse("felixconfigurations", test.err)
		}
		report := c.report(t)
		if got := found(&report, "service-hints-ignored", "Service shop/web"); got != test.found {
			t.Errorf("%+v: found %t", test, got)
		}
	}
}

// Without the right to look elsewhere, a kube-proxy in kube-system is known, and nothing is claimed of a Calico elsewhere.
func TestDoctorReadsKubeSystemOnly(t *testing.T) {
	for _, inSystem := range []bool{true, false} {
		c := newExaminedCluster(t)
		kubeProxy := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 7}}
		if inSystem {
			if err := c.typed.Tracker().Add(kubeProxy); err != nil {
				t.Fatal(err)
			}
		}
		c.typed.PrependReactor("list", "daemonsets", func(a kubetesting.Action) (bool, runtime.Object, error) {
			list, ok := a.(kubetesting.ListAction)
			return ok && a.GetNamespace() == "" && list.GetListRestrictions().Labels.Empty(), nil, forbidden("apps", "daemonsets")
		})
		report := c.report(t)
		unknown := slices.ContainsFunc(report.NotKnown, func(s string) bool { return strings.HasPrefix(s, "cannot tell which kube-proxy there is: ") })
		if unknown == inSystem {
			t.Errorf("kube-proxy in kube-system: %t, not known: %q", inSystem, report.NotKnown)
		}
	}
}

// With -n of a namespace without Vicinity, objects in use elsewhere are not leftovers.
func TestDoctorInAnotherNamespace(t *testing.T) {
	code, stdout, stderr := newExaminedCluster(t).doctor(t, "-n", "shop")
	if strings.Contains(stdout, "leftover-") || strings.Contains(stdout, "not-installed") || strings.Contains(stdout, "kubectl delete") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	const want = "cannot tell whether Vicinity is installed, and what it does for Services: namespace shop has no vicinity-controller; without -n doctor looks in all namespaces\n"
	if !strings.Contains(stderr, want) {
		t.Errorf("not known: %s", stderr)
	}
}

// Text from objects reaches the terminal without control characters.
func TestDoctorTextIsPrintable(t *testing.T) {
	c := newExaminedCluster(t)
	web, err := c.typed.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web.Status.Conditions[0].Reason, web.Status.Conditions[0].Message = "Allocated,HintsLost", "\x1b[2J\u009b31mall\u202e is well\r\a"
	if err := c.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), web, "shop"); err != nil {
		t.Fatal(err)
	}
	_, stdout, _ := c.doctor(t)
	if !strings.Contains(stdout, "service-hints-lost") || strings.ContainsAny(stdout, "\x1b\u009b\u202e\r\a") {
		t.Errorf("%q", stdout)
	}
}
