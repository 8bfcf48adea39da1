package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/inspect"
)

// noCluster hides the clusters of the user who runs the test.
func noCluster(t *testing.T) {
	t.Helper()
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTP_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, "")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
}

// kubeconfigFile writes a kubeconfig with the contexts "here", with the namespace shop, and "lost",
// whose cluster is not in the file. Any server certificate is accepted.
func kubeconfigFile(t *testing.T, server, current string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: %q
clusters: [{name: local, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: jane, user: {token: secret}}]
contexts:
- {name: here, context: {cluster: local, user: jane, namespace: shop}}
- {name: lost, context: {cluster: atlantis, user: jane}}
`, current, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// apiServer answers like an API server that has only two Services, in JSON.
func apiServer(t *testing.T, seen *[]*http.Request) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r)
		var answer any
		service := corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		}
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/services/web"):
			answer = service
		case strings.HasSuffix(path, "/services"):
			answer = corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, Items: []corev1.Service{service}}
		case strings.Contains(path, "/vicinity.dev/"):
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		default:
			kinds := map[string]string{"nodes": "NodeList", "endpointslices": "EndpointSliceList", "deployments": "DeploymentList"}
			version := strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(path), "/apis/"), "/api/")
			version = strings.Split(version, "/namespaces/")[0]
			answer = map[string]any{"apiVersion": version, "kind": kinds[filepath.Base(path)], "metadata": map[string]any{}, "items": []any{}}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// runMain runs the program as a user does.
func runMain(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(ctx, args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestClusterFlagsFollowKubectl(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		path string // of the first request
		user string // that is impersonated
	}{
		{"a context", []string{"--context", "here"}, "/api/v1/namespaces/shop/services/web", ""},
		{"another user", []string{"--as", "joe"}, "/api/v1/namespaces/shop/services/web", "joe"},
	} {
		for _, way := range []string{"flag", "variable"} {
			t.Run(test.name+" by "+way, func(t *testing.T) {
				noCluster(t)
				var seen []*http.Request
				file := kubeconfigFile(t, apiServer(t, &seen).URL, "here")
				args := append([]string{"explain", "svc/web"}, test.args...)
				if way == "flag" {
					args = append(args, "--kubeconfig", file)
				} else {
					t.Setenv("KUBECONFIG", file)
				}
				code, stdout, stderr := runMain(t.Context(), "", args...)
				if code != 0 || !strings.HasPrefix(stdout, "Service shop/web\n") || !strings.Contains(stdout, "Vicinity's CRDs are not installed") {
					t.Fatalf("exit code %d:\n%s%s", code, stdout, stderr)
				}
				first := seen[0]
				if first.URL.Path != test.path || first.Header.Get("Impersonate-User") != test.user || first.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("asked for %s as %q", first.URL.Path, first.Header.Get("Impersonate-User"))
				}
			})
		}
	}
}

func TestUnreachableClusters(t *testing.T) {
	answering := func(t *testing.T, code int, reason metav1.StatusReason) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: string(reason)}
			if err := json.NewEncoder(w).Encode(status); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	for _, test := range []struct {
		name   string
		server func(*testing.T) string
		args   []string
		code   int
		want   string // SERVER and FILE stand for what changes
	}{
		{
			name: "an unknown context", args: []string{"--context", "there"}, code: 1,
			want: `context "there" is not in the kubeconfig; it has here, lost`,
		},
		{
			name: "a file that is not there", args: []string{"--kubeconfig", "none.yaml"}, code: 1,
			want: "reading the kubeconfig: stat none.yaml: no such file or directory",
		},
		{
			name: "no server listens", code: 1,
			server: func(*testing.T) string {
				server := httptest.NewServer(http.NotFoundHandler())
				server.Close()
				return server.URL
			},
			want: "the cluster at SERVER cannot be reached: dial tcp ADDRESS: connect: connection refused",
		},
		{
			name: "credentials that do not count", code: 1,
			server: func(t *testing.T) string {
				return answering(t, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
			},
			want: "the cluster at SERVER does not accept the credentials of the kubeconfig",
		},
		{
			name: "no permission", code: 1,
			server: func(t *testing.T) string { return answering(t, http.StatusForbidden, metav1.StatusReasonForbidden) },
			want:   "reading Services is not allowed: Forbidden; see docs/reference/permissions.md; use -n for one namespace",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			noCluster(t)
			server := "http://127.0.0.1:1"
			if test.server != nil {
				server = test.server(t)
			}
			t.Setenv("KUBECONFIG", kubeconfigFile(t, server, "here"))
			code, stdout, stderr := runMain(t.Context(), "", append([]string{"status"}, test.args...)...)
			want := strings.NewReplacer("SERVER", server, "ADDRESS", strings.TrimPrefix(server, "http://")).Replace(test.want)
			if code != test.code || stderr != "vicinity: "+want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%swant %d\nvicinity: %s", code, stderr, test.code, want)
			}
		})
	}
	t.Run("no cluster is named", func(t *testing.T) {
		noCluster(t)
		code, _, stderr := runMain(t.Context(), "", "status")
		if want := "vicinity: no cluster is named: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config\n"; code != 1 || stderr != want {
			t.Errorf("exit code %d, %q; want %q", code, stderr, want)
		}
	})
}

func TestPluginName(t *testing.T) {
	run := func(program func([]string, io.Writer, io.Writer) int, args ...string) string {
		var out, errs bytes.Buffer
		program(args, &out, &errs)
		return out.String() + errs.String()
	}
	plugin := func(args []string, out, errs io.Writer) int {
		return Plugin(t.Context(), args, strings.NewReader(""), out, errs)
	}
	alone := func(args []string, out, errs io.Writer) int {
		return Main(t.Context(), args, strings.NewReader(""), out, errs)
	}
	for _, args := range [][]string{{"explain", "--help"}, {"status", "--help"}, {"--help"}, {"explain"}, {"plan", "--help"}, {"pln"}} {
		asPlugin, itself := run(plugin, args...), run(alone, args...)
		if !strings.Contains(asPlugin, "kubectl vicinity") || strings.Contains(itself, "kubectl vicinity") {
			t.Errorf("%q: the plugin says\n%s\nand the program\n%s", args, asPlugin, itself)
		}
		if restored := strings.ReplaceAll(asPlugin, "kubectl vicinity", "vicinity"); restored != itself {
			t.Errorf("%q: the plugin says\n%s\nand the program\n%s", args, asPlugin, itself)
		}
	}
}

// documentedRights returns the rules of the first role below a heading of the document, or in the
// document.
func documentedRights(t *testing.T, heading string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../" + inspect.PermissionsDocument)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), heading)
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	_, rules, hasRules := strings.Cut(block, "rules:")
	if !found || !hasRules {
		t.Fatalf("%s has no role below %q", inspect.PermissionsDocument, heading)
	}
	var role struct {
		Rules []struct {
			APIGroups     []string `json:"apiGroups"`
			Resources     []string `json:"resources"`
			ResourceNames []string `json:"resourceNames"`
			Verbs         []string `json:"verbs"`
		} `json:"rules"`
	}
	if err := yaml.UnmarshalStrict([]byte(rules), &role.Rules); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					allowed[strings.Join([]string{verb, resource, group}, " ")] = true
				}
			}
		}
	}
	return allowed
}

// compareRights compares documented permissions with the used ones.
func compareRights(t *testing.T, allowed map[string]bool, actions ...kubetesting.Action) {
	t.Helper()
	used := map[string]bool{}
	for _, action := range actions {
		resource, name := action.GetResource(), action.GetResource().Resource
		if resource.Group == "" && (name == "resource" || name == "version") {
			continue // everyone may use discovery
		}
		if _, proxied := action.(kubetesting.ProxyGetAction); proxied {
			name += "/proxy"
		}
		used[strings.Join([]string{action.GetVerb(), name, resource.Group}, " ")] = true
	}
	for permission := range used {
		if !allowed[permission] {
			t.Errorf("%q is used and not documented", permission)
		}
	}
	for permission := range allowed {
		if !used[permission] {
			t.Errorf("%q is documented and not used", permission)
		}
	}
}

// The document has exactly the permissions that the commands use.
func TestPermissionsAreDocumented(t *testing.T) {
	c := newFakeCluster(t)
	if err := c.typed.Tracker().Add(aCalico("v3.31.5")); err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"StatefulSet", "ReplicaSet"} {
		autoscaler := anAutoscaler(fmt.Sprintf("more-%d", i))
		autoscaler.Spec.ScaleTargetRef.Kind = kind
		if err := c.typed.Tracker().Add(autoscaler); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"explain", "web"}, {"explain", "grouped"}, {"explain", "wbe"}, {"explain", "governed"}, {"status"}, {"status", "-n", "ops"}, {"status", "-n", "attic"}} {
		c.run(t.Context(), args...)
	}
	compareRights(t, documentedRights(t, ""), c.actions()...)
}
