package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/routing/intent"
)

func readAll(t testing.TB, texts ...string) (*Set, error) {
	t.Helper()
	m := NewSet()
	for _, text := range texts {
		if err := m.Read("cluster.yaml", strings.NewReader(text)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// contents lists the read objects, one per line.
func contents(m *Set) string {
	var lines []string
	for _, o := range m.Nodes {
		lines = append(lines, "Node "+o.Name)
	}
	for _, o := range m.Pods {
		lines = append(lines, "Pod "+o.Namespace+"/"+o.Name)
	}
	for _, o := range m.Services {
		lines = append(lines, "Service "+o.Namespace+"/"+o.Name)
	}
	for _, o := range m.Slices {
		lines = append(lines, fmt.Sprintf("EndpointSlice %s/%s of %d", o.Namespace, o.Name, len(o.Endpoints)))
	}
	for _, o := range m.Policies {
		lines = append(lines, fmt.Sprintf("RoutingPolicy %s/%s", o.Namespace, o.Name))
	}
	for _, o := range m.ClusterPolicies {
		lines = append(lines, "ClusterRoutingPolicy "+o.Name)
	}
	for _, o := range m.Namespaces {
		lines = append(lines, "Namespace "+o.Name)
	}
	return strings.Join(lines, "\n")
}

// A Namespace that is not given has the label that Kubernetes sets.
func TestDefaults(t *testing.T) {
	policy := func(name, selector string) string {
		return "apiVersion: vicinity.dev/v1alpha1\nkind: ClusterRoutingPolicy\nmetadata: {name: " + name + "}\nspec: {namespaceSelector: " + selector + "}\n---\n"
	}
	m, err := readAll(t, policy("near", "{matchLabels: {near: \"yes\"}}")+policy("shop", "{matchLabels: {kubernetes.io/metadata.name: shop}}")+
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: bank, labels: {near: \"yes\"}}\n")
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]string{"bank": "near", "shop": "shop", "default": ""} {
		var names []string
		for _, p := range m.Defaults(namespace) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", namespace, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
		notes            []string
	}{
		{
			name: "policies and a namespace",
			text: "apiVersion: vicinity.dev/v1alpha1\nkind: RoutingPolicy\nmetadata: {name: near}\n---\napiVersion: vicinity.dev/v1alpha1\n" +
				"kind: ClusterRoutingPolicy\nmetadata: {name: all}\nspec: {namespaceSelector: {}, overloadThreshold: 30%}\n---\n" +
				"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: example.com/v1\nkind: RoutingPolicy\nmetadata: {name: other}\n",
			want:  "RoutingPolicy default/near\nClusterRoutingPolicy all\nNamespace shop",
			notes: []string{"ignored: RoutingPolicy of example.com/v1 (1)"},
		},
		{
			name: "several documents, one is ignored",
			text: "---\napiVersion: v1\nkind: Node\nmetadata: {name: a1}\n--- # the Service\napiVersion: v1\nkind: Service\n" +
				"metadata: {name: web}\n---\napiVersion: v1\nkind: ConfigMap\ndata: []\n---\n",
			want:  "Node a1\nService default/web",
			notes: []string{"ignored: ConfigMap (1)"},
		},
		{
			name: "a list as kubectl prints it",
			text: "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a1}\n- apiVersion: discovery.k8s.io/v1\n" +
				"  addressType: IPv4\n  endpoints: null\n  kind: EndpointSlice\n  metadata: {name: web-1, namespace: shop}\nkind: List\n",
			want: "Node a1\nEndpointSlice shop/web-1 of 0",
		},
		{
			name: "typed lists, whose items do not say what they are",
			text: `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "web-1", "namespace": "shop"}}]}
				{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "items": [{"metadata": {"name": "web-1"}, "endpoints": [{"addresses": ["10.0.0.1"]}]}]}
				{"apiVersion": "v1", "kind": "ServiceList", "items": []}
				{"apiVersion": "v1", "kind": "NodeList", "items": null}
				{"apiVersion": "v1", "kind": "List"}`,
			want: "Pod shop/web-1\nEndpointSlice default/web-1 of 1",
		},
		{
			name: "JSON in YAML documents, and YAML maps in braces",
			text: "---\n{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"a1\"}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: a2}}\n",
			want: "Node a1\nNode a2",
		},
		{
			name: "workloads, old versions, and a kind that ends like a list",
			text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\napiVersion: apps/v1\nkind: DeploymentList\nitems: [{}, {}]\n" +
				"---\napiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: web}\n" +
				"---\napiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: web}\n",
			notes: []string{
				"ignored: AllowList (1), Deployment (3), EndpointSlice of discovery.k8s.io/v1beta1 (1)",
				"only pods that exist are counted, not what a workload asks for",
			},
		},
		{
			name:  "the same object again",
			text:  "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n",
			want:  "Service default/web\nService shop/web",
			notes: []string{"1 object given more than once (the last counts): Service default/web"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := readAll(t, test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(m); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if got := m.Notes(); !slices.Equal(got, test.notes) {
				t.Errorf("notes\n%q\nwant\n%q", got, test.notes)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{
			name: "YAML syntax",
			text: "# one\napiVersion: v1\nkind: Node\nmetadata: {name: a1}\n---\napiVersion: v1\nkind: Node\nmetadata:\n  name: a2\n bad\n",
			want: "cluster.yaml: document 2: yaml: line 4: did not find expected key",
		},
		{
			name: "a key given twice",
			text: "---\nkind: Node\nkind: Node\n",
			want: `cluster.yaml: document 1: yaml: unmarshal errors: line 3: key "kind" already set in map`,
		},
		{
			name: "JSON syntax",
			text: "{\"apiVersion\": \"v1\", \"kind\": \"Node\",\n \"metadata\": {\"name\": \"a1\"}}\n{\"apiVersion\": \"v1\",\n \"kind\" \"Node\"}\n",
			want: "cluster.yaml: document 2: invalid character '\"' after object key",
		},
		{
			name: "no object",
			text: "apiVersion: v1\nkind: Node\nmetadata: {name: a1}\n---\n\n# a list\n- apiVersion: v1\n",
			want: "cluster.yaml: document 2: not a Kubernetes object: it must be a map with apiVersion, kind and metadata",
		},
		{
			name: "no kind",
			text: "apiVersion: v1\nmetadata: {name: web, namespace: shop}\n",
			want: "cluster.yaml: document 1: shop/web: kind is missing; each document must be a Kubernetes object",
		},
		{
			name: "no apiVersion",
			text: "kind: Service\nmetadata: {name: web}\n",
			want: "cluster.yaml: document 1: Service web: apiVersion is missing; each document must be a Kubernetes object",
		},
		{
			name: "a field of the wrong type",
			text: "apiVersion: v1\nkind: Node\nmetadata: {name: a1}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {selector: [a]}\n",
			want: "cluster.yaml: document 2: Service shop/web: json: cannot unmarshal array into Go struct field ServiceSpec.spec.selector of type map[string]string",
		},
		{
			name: "an item of a list",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a1}\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a2}\n  status: {allocatable: {cpu: much}}\n",
			want: "cluster.yaml: document 1: item 2 of List: Node a2: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := readAll(t, test.text)
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != test.want {
				t.Errorf("got\n%s\nwant\n%s", err, test.want)
			}
			var where *Error
			if !errors.As(err, &where) {
				t.Errorf("%T is not an Error", err)
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	m, err := readAll(t, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {name: mail, namespace: shop}
spec: {selector: {app: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
status: {phase: Running, podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
endpoints: [{addresses: [10.0.0.2]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
metadata: {name: web-1, namespace: other, labels: {kubernetes.io/service-name: mail}}
endpoints: [{addresses: [10.0.0.3]}]
`)
	if err != nil {
		t.Fatal(err)
	}
	cluster := intent.NewCluster(m.Nodes)
	for i, want := range []string{"10.0.0.2", "10.0.0.1"} {
		got := m.Endpoints(m.Services[i], cluster)[corev1.IPv4Protocol]
		if len(got) != 1 || got[0].Address != want {
			t.Errorf("%s has endpoints %v, want %s", m.Services[i].Name, got, want)
		}
	}
}

// Reading any file ends with objects, or with an error that has the place.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/files/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := NewSet()
		if err := m.Read("fuzz", bytes.NewReader(data)); err != nil {
			var where *Error
			if !errors.As(err, &where) {
				t.Fatalf("error without a place: %v", err)
			}
			if where.Document < 1 {
				t.Fatalf("document %d: %v", where.Document, err)
			}
			return
		}
		m.Notes()
		cluster := intent.NewCluster(m.Nodes)
		cluster.Warnings()
		for _, service := range m.Services {
			intent.RequestOf(service, nil, intent.Options{})
			for _, endpoints := range m.Endpoints(service, cluster) {
				if region := cluster.Region(intent.Capacity{Type: intent.CapacityCPU}, endpoints); region.Endpoints() != len(endpoints) {
					t.Fatalf("%d endpoints make a region of %d", len(endpoints), region.Endpoints())
				}
			}
		}
	})
}
