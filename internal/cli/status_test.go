package cli

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// shiftZone takes zone-a out of service for longer than tests last. Another shift selects no namespace of the cluster.
func (c *fakeCluster) shiftZone(t *testing.T) {
	t.Helper()
	zs := &v1alpha1.ZoneShift{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZoneShift"},
		ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))},
		Spec: v1alpha1.ZoneShiftSpec{
			From: v1alpha1.ShiftedDomain{Key: "topology.kubernetes.io/zone", Value: "zone-a"}, For: metav1.Duration{Duration: 1000000 * time.Hour},
			MaxOverload: 50, Reason: "packets get lost,\x1b[2J see INC-7",
		},
		Status: v1alpha1.ZoneShiftStatus{Services: 3, Yielding: 2, Staying: 1},
	}
	zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, LastTransitionTime: zs.CreationTimestamp}}
	other := zs.DeepCopy()
	other.Name, other.Spec.From.Value = "elsewhere", "zone-b"
	setCondition(v1alpha1.ConditionInForce, metav1.ConditionFalse, "HintsIgnored", "Cilium ignores hints of shop/web,\x1b[2J as its settings say")(other)
	setCondition(v1alpha1.ConditionInForce, metav1.ConditionTrue, "Stored", "hints: stored on 4 of 4 slices")(zs)
	other.Spec.Services.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"near": "never"}}
	for _, zs := range []*v1alpha1.ZoneShift{zs, other} {
		if err := c.dynamic.Tracker().Create(v1alpha1.GroupVersion.WithResource("zoneshifts"), inAPI(t, zs), ""); err != nil {
			t.Fatal(err)
		}
	}
}

// Status and explain follow zone shifts as the controller does.
func TestZoneShiftGolden(t *testing.T) {
	for file, args := range map[string][]string{
		"status/shifted.txt":         {"status", "-n", "shop"},
		"explain/shifted-answer.txt": {"explain", "plain"},
		"explain/yields-answer.txt":  {"explain", "web"},
	} {
		t.Run(file, func(t *testing.T) {
			c := newFakeCluster(t)
			c.shiftZone(t)
			c.printsGolden(t, file, args...)
		})
	}
}

func TestStatusGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"all.txt", nil},
		{"wide.txt", []string{"-A", "-o", "wide"}},
		{"data.txt", []string{"-n", "data"}},
		{"ops.json", []string{"-n", "ops", "-o", "json"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			newFakeCluster(t).printsGolden(t, "status/"+test.name, append([]string{"status"}, test.args...)...)
		})
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
		{"an unknown format", []string{"-o", "xml"}, 2, `invalid argument "xml" for "-o, --output" flag: it must be table, wide, json or yaml (see "vicinity status --help")`},
		{
			"a list that is not allowed", nil, 1,
			`reading Services is not allowed: User "jane" cannot list resource "services" in API group "" at the cluster scope; see docs/reference/permissions.md; use -n for one namespace`,
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
