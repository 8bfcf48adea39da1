package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"
)

func TestStatusGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"all.txt", nil},
		{"wide.txt", []string{"-A", "-o", "wide"}},
		{"data.txt", []string{"-n", "data"}},
		{"ops.json", []string{"-n", "ops", "-o", "json"}},
		{"ops.yaml", []string{"-n", "ops", "-o", "yaml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := newFakeCluster(t).run(t.Context(), append([]string{"status"}, test.args...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			compareGolden(t, "status", test.name, stdout)
		})
	}
}

func TestStatusOfNothing(t *testing.T) {
	code, stdout, stderr := newFakeCluster(t).run(t.Context(), "status", "-n", "attic")
	if want := "no Service is in namespace \"attic\"\n"; code != 0 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
	code, stdout, stderr = newFakeCluster(t).run(t.Context(), "status", "-n", "cellar", "-o", "json")
	if want := "vicinity: there is no namespace \"cellar\"\n"; code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
	}
	// Who may not read namespaces is told what is known.
	c := newFakeCluster(t)
	c.refuse("namespaces", forbidden("", "namespaces"))
	if code, _, stderr := c.run(t.Context(), "status", "-n", "cellar"); code != 0 || stderr != "no Service is in namespace \"cellar\"\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// Without nodes there are no figures, and -A counts more than -n, as with kubectl.
func TestStatusDoesWithout(t *testing.T) {
	c := newFakeCluster(t)
	c.refuse("nodes", forbidden("", "nodes"))
	code, stdout, stderr := c.run(t.Context(), "status", "-n", "attic", "-A")
	if code != 0 || !strings.HasPrefix(stderr, "not known: Nodes may not be read") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "ops        both") {
			if cells := strings.Fields(line); !slices.Equal(cells[6:10], []string{"12", "3", "-", "-"}) {
				t.Errorf("there are figures in %q", line)
			}
			return
		}
	}
	t.Errorf("ops/both is missing in\n%s", stdout)
}

// Who kube-proxy left to vicinity-proxy is in trouble when nobody writes groups, and that
// is said before all else, also to those who may not read nodes.
func TestStatusOfTheAbandoned(t *testing.T) {
	const said = "vicinity-proxy serves it from groups that do not follow its pods any more, since %s; kube-proxy takes it back when the label service.kubernetes.io/service-proxy-name is removed"
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	for _, test := range []struct {
		since   string
		prepare func(*fakeCluster) error
	}{
		{"no vicinity-controller is installed", func(c *fakeCluster) error {
			return c.typed.Tracker().Delete(deployments, "vicinity-system", "vicinity-controller")
		}},
		{"Deployment vicinity-system/vicinity-controller has no ready pod", func(c *fakeCluster) error {
			stopped := aController()
			stopped.Status.ReadyReplicas = 0
			return c.typed.Tracker().Update(deployments, stopped, stopped.Namespace)
		}},
	} {
		for _, blind := range []bool{false, true} {
			c := newFakeCluster(t)
			if err := test.prepare(c); err != nil {
				t.Fatal(err)
			}
			if blind {
				c.refuse("nodes", forbidden("", "nodes"))
			}
			want := fmt.Sprintf(said, test.since)
			_, stdout, _ := c.run(t.Context(), "explain", "grouped")
			wants(t, stdout, "\n  warning: "+want+"\n")
			_, stdout, _ = c.run(t.Context(), "status")
			told := 0
			for line := range strings.Lines(stdout) {
				if strings.Contains(line, want) {
					told++
					wants(t, line, "shop       grouped ", "Groups    "+want)
				}
			}
			if told != 1 {
				t.Errorf("blind %t: %d Services are said to be abandoned in\n%s", blind, told, stdout)
			}
		}
	}
}

func TestStatusFails(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"an argument", []string{"web"}, 2, `unexpected argument "web": "vicinity status" takes none (see "vicinity status --help")`},
		{"an unknown format", []string{"-o", "xml"}, 2, `--output "xml" is unknown; it must be table, wide, json or yaml (see "vicinity status --help")`},
		{
			"a list that is not allowed", nil, 1,
			`reading Services: it is not allowed: User "jane" cannot list resource "services" in API group "" at the cluster scope; see docs/reference/permissions.md; -n lists those of one namespace`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.refuse("services", forbidden("", "services"))
			code, stdout, stderr := c.run(t.Context(), append([]string{"status"}, test.args...)...)
			if code != test.code || stderr != "vicinity: "+test.want+"\n" || stdout != "" {
				t.Errorf("exit code %d, standard error\n%swant %d\nvicinity: %s", code, stderr, test.code, test.want)
			}
		})
	}
}

// Large lists are read in parts.
func TestListsAreReadInPages(t *testing.T) {
	c := newFakeCluster(t)
	var continued []string
	c.typed.PrependReactor("list", "services", func(action kubetesting.Action) (bool, runtime.Object, error) {
		options := action.(kubetesting.ListActionImpl).GetListOptions()
		if options.Limit != pageSize {
			t.Errorf("%d objects are asked for, want %d", options.Limit, pageSize)
		}
		continued = append(continued, options.Continue)
		list := &corev1.ServiceList{Items: []corev1.Service{*aService("shop", "plain", nil)}}
		if options.Continue == "" {
			list.Items[0].Name = "web"
			list.Continue = "more"
		}
		return true, list, nil
	})
	_, stdout, _ := c.run(t.Context(), "status")
	if !slices.Equal(continued, []string{"", "more"}) || !strings.Contains(stdout, "shop       web") || !strings.Contains(stdout, "shop       plain") {
		t.Errorf("asked for %q:\n%s", continued, stdout)
	}
}
