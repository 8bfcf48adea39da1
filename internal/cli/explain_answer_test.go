package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
)

// The answer ends with the next step for each reason why a plan is not in force.
func TestExplainNextSteps(t *testing.T) {
	prefer := map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}
	even := func() runtime.Object { return aSlice("shop", "soon", "a=4", "b=4", "c=4") }
	hinted := func() runtime.Object { return hintOwn(aSlice("shop", "soon", "a=4", "b=4", "c=4")) }
	condition := metav1.Condition{Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionFalse, Reason: "Allocated"}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		condition   metav1.Condition
		slice       runtime.Object
		prepare     func(*fakeCluster)
		want        []string
		awaits      bool // the condition
	}{
		{name: "all is as it should be", annotations: prefer, slice: hinted(), want: []string{"nothing to do"}, awaits: true},
		{name: "nothing is asked for", slice: even(), want: []string{"annotate the Service with endpointslice.kubernetes.io/same-zone: Prefer: in-zone 33.3 % -> 100 %"}},
		{
			name: "hints do not stay", annotations: prefer, slice: even(), condition: routing.WithHintsLost(condition),
			want: []string{"find what removes the hints (docs/runbooks/hints-do-not-survive.md)"},
		},
		{
			name: "writes are refused", annotations: prefer, slice: even(), condition: routing.WithNotWritten(condition, errors.New("denied")),
			want: []string{"find out what refuses the writes of the controller (docs/runbooks/write-refused.md)"},
		},
		{
			name: "hints cannot say it", annotations: map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Require}, slice: even(),
			want: []string{`annotate the Service with vicinity.dev/proxy: "true" if vicinity-proxy runs on every node`}, awaits: true,
		},
		{
			name: "a node has no proxy", annotations: map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer, v1alpha1.AnnotationProxy: "true"}, slice: hinted(),
			want: []string{
				"look at the nodes that the condition names, with --node NODE (docs/runbooks/proxy.md)",
				"wait some seconds; if it is still not written, look at the controller (docs/runbooks/controller-down.md)",
			},
			awaits: true,
		},
		{
			name: "no controller", annotations: prefer, slice: even(),
			prepare: func(c *fakeCluster) {
				if err := c.typed.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("deployments"), "vicinity-system", "vicinity-controller"); err != nil {
					panic(err)
				}
			},
			want: []string{"start vicinity-controller: no vicinity-controller is installed (docs/runbooks/controller-down.md)"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := aService("shop", "soon", test.annotations)
			service.Labels[v1alpha1.LabelRouted] = "true"
			if test.condition.Type != "" {
				service.Status.Conditions = []metav1.Condition{test.condition}
			}
			c := newFakeCluster(t)
			c.add(t, service, test.slice)
			if test.prepare != nil {
				test.prepare(c)
			}
			_, stdout, stderr := c.run(t.Context(), "explain", "soon")
			var next []string
			for line := range strings.Lines(stdout) {
				if sentence, ok := strings.CutPrefix(line, "  next: "); ok {
					next = append(next, strings.TrimSpace(sentence))
				}
			}
			if awaits := strings.Contains(stdout, "condition: none yet; "); awaits != test.awaits {
				t.Errorf("it awaits the condition: %t, want %t", awaits, test.awaits)
			}
			if !slices.Equal(next, test.want) {
				t.Errorf("next is %q, want %q:\n%s%s", next, test.want, stdout, stderr)
			}
		})
	}
}
