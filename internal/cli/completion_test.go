package cli

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
)

// completes returns the words that a shell offers for the last argument.
func completes(t *testing.T, reach connector, args string) string {
	t.Helper()
	code, stdout, stderr := runCommands(t.Context(), append([]string{"__completeNoDesc"}, strings.Split(args, " ")...), func(s command.Streams) []*cobra.Command {
		commands := []*cobra.Command{newBudgetCommand(s, reach), newExplainCommand(s, reach, machine{}), newRolloutCommand(s, reach), newShiftCommand(s, reach), newStatusCommand(s, reach)}
		for _, cmd := range commands {
			reach.completeFlags(cmd)
		}
		return commands
	})
	words, directive, _ := strings.Cut(stdout, ":")
	if code != 0 || directive != "4\n" { // no files
		t.Errorf("%s: exit code %d, directive %q: %s", args, code, directive, stderr)
	}
	return strings.Join(strings.Fields(words), " ")
}

func TestCompletion(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(kind, namespace, name string) runtime.Object {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		}
	}
	zoned := func(name, zone string) runtime.Object {
		node := object("Node", "", name).(*metav1.PartialObjectMetadata)
		node.Labels = map[string]string{corev1.LabelTopologyZone: zone}
		return node
	}
	shifted := object("ZoneShift", "", "zone-b").(*metav1.PartialObjectMetadata)
	shifted.APIVersion = v1alpha1.GroupVersion.String()
	named := metadatafake.NewSimpleMetadataClient(scheme,
		object("Service", "shop", "web"), object("Service", "shop", "api"), object("Service", "ops", "log"),
		object("Pod", "shop", "web-1"), zoned("node-a1", "zone-a"), zoned("node-b1", "zone-b"), zoned("node-b2", "zone-b"), object("Node", "", "other"), shifted,
		object("Namespace", "", "shop"), object("Namespace", "", "ops"),
	)
	reach := func(f *clusterFlags) (*connection, error) {
		namespace := "shop"
		if f.namespace != "" {
			namespace = f.namespace
		}
		return &connection{metadata: named, namespace: namespace}, nil
	}
	for args, want := range map[string]string{
		"explain ":                     "dns svc/api svc/web pod/web-1",
		"explain p":                    "pod/web-1",
		"explain svc/":                 "svc/api svc/web",
		"explain svc/w":                "svc/web",
		"explain -n ops svc/":          "svc/log",
		"explain pod/":                 "pod/web-1",
		"explain svc/web ":             "",
		"explain svc/web --node node-": "node-a1 node-b1 node-b2",
		"explain svc/web -n s":         "shop",
		"explain dns a":                "api",
		"explain dns web --from ":      "web-1",
		"status -n ":                   "ops shop",
		"budget advance cart -n o":     "ops",
		"shift zone-":                  "zone-a zone-b",
		"shift status ":                "zone-b",
		"shift back z":                 "zone-b",
	} {
		if got := completes(t, reach, args); got != want {
			t.Errorf("vicinity %s completes %q, want %q", args, got, want)
		}
	}
	named.PrependReactor("list", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })
	if got := completes(t, reach, "explain svc/web --node "); got != "" {
		t.Errorf("without an answer it completes %q", got)
	}
}

// A shell does not wait for a cluster that hangs.
func TestCompletionEnds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\nclusters: [{name: a, cluster: {server: " + server.URL + "}}]\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := completes(t, connect, "explain --kubeconfig "+file+" svc/"); got != "" {
		t.Errorf("it completes %q", got)
	}
}
