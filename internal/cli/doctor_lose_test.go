package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/test/golden"
)

func TestRehearsalOfManifests(t *testing.T) {
	for name, args := range map[string][]string{"lose.txt": nil, "lose.json": {"-o", "json"}} {
		code, stdout, stderr := runMain(t.Context(), "", append([]string{"doctor", "--lose", "zone-a", "-f", "testdata/doctor/lose.yaml"}, args...)...)
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
		golden.Compare(t, "testdata/doctor/"+name, stdout)
		if name == "lose.json" {
			continue
		}
		const notes = "ignored: Deployment (1)\nonly pods that exist are counted, not what a workload asks for\n" +
			"cannot tell which mutating webhooks fail: the manifests have no mutatingwebhookconfigurations\nvicinity: 4 problems found\n"
		if stderr != notes {
			t.Errorf("standard error\n%s\nwant\n%s", stderr, notes)
		}
		compareDocumented(t, stdout)
	}
}

// losing returns the report about a cluster without a zone.
func (c *examinedCluster) losing(t *testing.T, zone string) (report doctor.Report) {
	t.Helper()
	_, stdout, stderr := c.doctor(t, "--lose", zone, "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	return report
}

// A rehearsal in a cluster reads exactly what is documented.
func TestRehearsalOfACluster(t *testing.T) {
	c := newExaminedCluster(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lonely"}, Spec: corev1.PodSpec{NodeName: "node-b1"}}
	if err := c.typed.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	c.typed.ClearActions()
	report := c.losing(t, "zone-b")
	if !found(&report, "lose-service-alone", "Service shop/lonely") || found(&report, "lose-service-alone", "Service shop/crowded") {
		t.Errorf("found %+v", report.Findings)
	}
	if loss := report.Loss; loss.Nodes != 7 || loss.LostNodes != 2 || loss.LostPods != 1 || len(report.NotKnown) > 0 || report.Cluster.Nodes != 0 {
		t.Errorf("got %+v", report)
	}
	compareRights(t, documentedRights(t, "\n## The loss of a zone\n"), c.actions()...)
}

func TestRehearsalWithoutPermissions(t *testing.T) {
	before := newExaminedCluster(t).losing(t, "zone-b")
	for _, resource := range []string{
		"services", "endpointslices", "persistentvolumes", "persistentvolumeclaims", "poddisruptionbudgets", "horizontalpodautoscalers", "mutatingwebhookconfigurations",
		"validatingwebhookconfigurations",
	} {
		c := newExaminedCluster(t)
		c.refuse(resource, forbidden("", resource))
		report := c.losing(t, "zone-b")
		if len(report.NotKnown) != 1 || !strings.HasSuffix(report.NotKnown[0], ": you may not list "+resource+" at the cluster scope") || !strings.HasPrefix(report.NotKnown[0], "cannot tell wh") {
			t.Errorf("%s: not known: %q", resource, report.NotKnown)
		}
		for _, f := range report.Findings {
			if !slices.Contains(before.Findings, f) {
				t.Errorf("%s: found %+v", resource, f)
			}
		}
	}
}

func TestRehearsalFails(t *testing.T) {
	broken := newExaminedCluster(t)
	broken.refuse("services", errors.New("etcd is away"))
	hidden := newExaminedCluster(t)
	hidden.refuse("pods", forbidden("", "pods"))
	for _, test := range []struct {
		args    string
		cluster *examinedCluster
		want    string
	}{
		{"--lose zone-x", newExaminedCluster(t), `zone "zone-x" has no node; the zones are zone-a, zone-b and zone-c`},
		{"--lose=", newExaminedCluster(t), `zone "" has no node; the zones are zone-a, zone-b and zone-c`},
		{"--lose zone-a", broken, "reading services: etcd is away"},
		{"--lose zone-a", hidden, "you may not list pods at the cluster scope, so nothing can be rehearsed; see docs/doctor.md"},
		{"--lose zone-a -f testdata/plan/policies.yaml", broken, "the manifests have no pods, so nothing can be rehearsed; see docs/doctor.md"},
		{"-f testdata/doctor/lose.yaml", broken, "--filename needs --lose ZONE"},
		{"--max-overload 40", broken, "--max-overload needs --lose ZONE"},
		{"--lose zone-a --max-overload 10001", broken, `invalid argument "10001" for "--max-overload" flag: it must be from 1 to 10000`},
		{"--lose zone-a -n shop", broken, "--lose reads all namespaces; leave --namespace out"},
	} {
		code, stdout, stderr := test.cluster.doctor(t, strings.Fields(test.args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "vicinity: "+test.want) {
			t.Errorf("%s: exit code %d, %q, %q", test.args, code, stdout, stderr)
		}
	}
}
