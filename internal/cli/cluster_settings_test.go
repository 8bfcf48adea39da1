package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

// settingsOf returns the settings of a cluster with these objects, and the sentences about unknown
// ones.
func settingsOf(t *testing.T, objects ...runtime.Object) (routingflags.Running, []string) {
	t.Helper()
	r := &clusterReader{connection: &connection{typed: fake.NewClientset(objects...)}}
	settings, err := r.settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return settings, r.notKnown
}

// chartController returns the controller's Deployment of the chart with some values.
func chartController(t *testing.T, values string) *appsv1.Deployment {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "controllers", values+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(text, deployment); err != nil {
		t.Fatal(err)
	}
	deployment.Status.ReadyReplicas = 1
	return deployment
}

// The commands decide by the chart's values, whatever the release and its objects are called.
func TestSettingsFollowTheChart(t *testing.T) {
	want := routingflags.Defaults()
	want.Exclusion.Own = "vicinity-system"
	if got, missing := settingsOf(t, chartController(t, "default")); !reflect.DeepEqual(got, want) || len(missing) > 0 {
		t.Errorf("by default got %+v, want %+v; missing %q", got, want, missing)
	}
	got, missing := settingsOf(t, chartController(t, "changed"))
	want.TakeOverAuto, want.GroupSize = true, 250
	want.ShrinkGrace, want.Exclusion.Namespaces = 90*time.Second, []string{"a", "b"}
	want.WithoutGroups, want.WithoutHints = true, true
	if !reflect.DeepEqual(got, want) || len(missing) > 0 {
		t.Errorf("got %+v, want %+v; missing %q", got, want, missing)
	}
	if got, _ := settingsOf(t, aController("--exclude-namespaces=")); len(got.Exclusion.Namespaces) > 0 {
		t.Errorf("%q are excluded", got.Exclusion.Namespaces)
	}
}

// A controller without routing writes nothing for Services, and the commands name the value.
func TestRoutingIsOff(t *testing.T) {
	const want = "routing.enabled is off for Deployment vicinity-system/vicinity-controller"
	settings, missing := settingsOf(t, aController("--routing=false", "--budgets"))
	if settings.Stopped != want || len(missing) != 1 || missing[0] != want+", so nothing is written" {
		t.Errorf("no controller routes because %q; not known: %q", settings.Stopped, missing)
	}
}

// The commands report no routing for a Service that the controller leaves alone.
func TestExcludedServices(t *testing.T) {
	prefer := map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	grouped := map[string]string{v1alpha1.AnnotationProxy: "true"}
	for _, test := range []struct {
		name        string
		namespace   string
		annotations map[string]string
		args        []string
		delivery    string
		noEffect    string // the setting that has none
	}{
		{
			name: "excluded by default", namespace: metav1.NamespaceSystem, annotations: prefer,
			delivery: "None: vicinity-controller ignores the Service, because namespace kube-system is excluded by --exclude-namespaces",
			noEffect: "annotation endpointslice.kubernetes.io/same-zone: Prefer",
		},
		{
			name: "Vicinity's own", namespace: "vicinity-system", annotations: grouped,
			delivery: "None: vicinity-controller ignores the Service, because namespace vicinity-system is Vicinity's own",
			noEffect: "annotation vicinity.dev/proxy",
		},
		{
			name: "without groups", namespace: "shop", annotations: grouped, args: []string{"--groups=false"},
			delivery: "None: there is nothing to deliver",
			noEffect: "annotation vicinity.dev/proxy",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			const name = "alone"
			c := newFakeCluster(t)
			for _, object := range []struct {
				resource string
				runtime.Object
			}{
				{"services", aService(test.namespace, name, test.annotations)},
				{"endpointslices", aSlice(test.namespace, name, "a=4", "b=4", "c=4")},
			} {
				group := corev1.SchemeGroupVersion
				if object.resource == "endpointslices" {
					group.Group = "discovery.k8s.io"
				}
				if err := c.typed.Tracker().Create(group.WithResource(object.resource), object.Object, test.namespace); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.typed.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), aController(test.args...), "vicinity-system"); err != nil {
				t.Fatal(err)
			}
			_, stdout, stderr := c.run(t.Context(), "explain", name, "-n", test.namespace)
			if !strings.Contains(stdout, "delivery: "+test.delivery+"\n") {
				t.Errorf("want delivery %q in\n%s%s", test.delivery, stdout, stderr)
			}
			_, all, _ := c.run(t.Context(), "status", "-n", test.namespace, "-o", "wide")
			named := test.noEffect + " has no effect: "
			for command, output := range map[string]string{"explain": stdout, "status": all} {
				if strings.Contains(output, " has no effect: ") != (test.noEffect != "") || test.noEffect != "" && !strings.Contains(output, named) {
					t.Errorf("%s: want %q to have no effect in\n%s", command, test.noEffect, output)
				}
			}
		})
	}
}

// Any user who may write a Deployment can give it the labels of vicinity-controller. Webhooks belong
// to the cluster.
func TestControllerIsThatWhichWebhooksCall(t *testing.T) {
	other := aController("--take-over-auto")
	other.Namespace = "a-tenant"
	label := map[string]string{"app.kubernetes.io/part-of": "vicinity"}
	calls := func(namespace string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "vicinity-webhook"}}
	}
	const both = "Deployments vicinity-system/vicinity-controller and a-tenant/vicinity-controller have the labels of vicinity-controller; " +
		"the first one is used, because the webhooks of the cluster call its namespace"
	for name, test := range map[string]struct {
		webhooks runtime.Object
		own      string
		missing  string
	}{
		"no webhooks": {
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: calls("vicinity-system")}}},
			"a-tenant", "Deployments a-tenant/vicinity-controller and vicinity-system/vicinity-controller have the labels of vicinity-controller; " +
				"the first one is used, although no known webhook calls its namespace",
		},
		"a mutating one": {
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity", Labels: label}, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: calls("vicinity-system")}}},
			"vicinity-system", both,
		},
		"a validating one": {
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "vicinity", Labels: label}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: calls("vicinity-system")}}},
			"vicinity-system", both,
		},
	} {
		settings, missing := settingsOf(t, other, aController(), test.webhooks)
		if settings.Exclusion.Own != test.own || settings.TakeOverAuto != (test.own == "a-tenant") || !slices.Equal(missing, []string{test.missing}) {
			t.Errorf("%s: got %+v, missing %q", name, settings, missing)
		}
	}
}
