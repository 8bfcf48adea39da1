package cli

import (
	"os"
	"path/filepath"
	"testing"

	"vicinity.dev/vicinity/test/golden"
)

const (
	planCluster = "testdata/plan/cluster.yaml"
	planPods    = "testdata/plan/pods.json"
)

func TestPlanGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"summary.txt", []string{"-f", planCluster}},
		{"details.txt", []string{"-f", planCluster, "cart", "mail", "search"}},
		{"web-groups.txt", []string{"-f", planCluster, "--delivery", "groups", "--capacity", "cpu", "shop/web"}},
		{"api.json", []string{"-f", planCluster, "-o", "json", "--algorithm", "local,optimal", "api"}},
		{"pods.txt", []string{"-f", planPods}},
		{"policies.txt", []string{"-f", "testdata/plan/policies.yaml"}},
		{"policies-flags.txt", []string{"-f", "testdata/plan/policies.yaml", "--overload-threshold", "10%", "shop/web"}},
		{"headless.txt", []string{"-f", "testdata/plan/headless.yaml", "--details"}},
		{"kube-system.txt", []string{"-f", planCluster, "-n", "kube-system"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := runMain(t.Context(), "", append([]string{"plan"}, test.args...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			golden.Compare(t, "testdata/plan/"+test.name, stdout)
		})
	}
}

func TestPlanMessages(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{
			name: "many Services",
			args: []string{"-f", planCluster},
			want: "left out local-weighted, local-opt, flow: hints cannot carry weights; see --delivery groups\n" +
				"To see a Service in full, name it; to see all, give --details.\n",
		},
		{
			name: "one Service",
			args: []string{"-f", planCluster, "--delivery", "groups", "web"},
		},
		{
			name: "what does not count",
			args: []string{"-f", planPods, "--algorithm", "optimal"},
			want: "ignored: Deployment (1)\n" +
				"only pods that exist are counted, not what a workload asks for\n" +
				"warning: 1 node without the label topology.kubernetes.io/zone, left out of the capacity: node-x\n" +
				"warning: 1 node without allocatable CPU: node-x\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := runMain(t.Context(), "", append([]string{"plan"}, test.args...)...)
			if code != 0 || stderr != test.want {
				t.Errorf("exit code %d, standard error\n%s\nwant\n%s", code, stderr, test.want)
			}
		})
	}
}

func TestPlanFails(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const aNode = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}`
	const aService = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}`
	node, serviceFile, bad := write("node.json", aNode), write("service.json", aService), write("bad.yaml", "kind: Node\n---\n")

	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{
			name: "a file that is not there", args: []string{"-f", "testdata/plan/none.yaml"}, code: 1,
			want: "reading manifests: stat testdata/plan/none.yaml: no such file or directory",
		},
		{
			name: "a malformed file", args: []string{"-f", bad}, code: 1,
			want: bad + ": document 1: Node: apiVersion is missing; each document must be a Kubernetes object",
		},
		{
			name: "no nodes", args: []string{"-f", serviceFile}, code: 1,
			want: `no Node is in the manifests, so the zones are unknown; "kubectl get nodes -o yaml" prints them`,
		},
		{
			name: "no Services", args: []string{"-f", node}, code: 1,
			want: `no Service is in the manifests; "kubectl get services -A -o yaml" prints them`,
		},
		{
			name: "no endpoints", args: []string{"-f", node, "-f", serviceFile}, code: 1,
			want: `neither EndpointSlices nor Pods are in the manifests, so the endpoints are unknown; "kubectl get endpointslices -A -o yaml" prints them`,
		},
		{
			name: "an unknown Service", args: []string{"-f", planCluster, "web", "wbe"}, code: 1,
			want: `service "wbe" is not in the manifests; they have kube-system/log, shop/api, shop/cache, shop/cart, shop/db, shop/external, shop/legacy, shop/mail, shop/search, shop/web`,
		},
		{
			name: "a padding beyond all", args: []string{"-f", planCluster, "--padding", "9999999999"}, code: 2,
			want: `padding: 9999999999 is not allowed; it must be 0 or more endpoints, and at most 16777216 (see "vicinity plan --help")`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := runMain(t.Context(), "", append([]string{"plan"}, test.args...)...)
			if code != test.code || stderr != "vicinity: "+test.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%s\nwant %d\nvicinity: %s", code, stderr, test.code, test.want)
			}
		})
	}
}
