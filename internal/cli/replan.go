package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/plaintext"
	"vicinity.dev/vicinity/internal/routing"
)

type replanFlags struct {
	cluster clusterFlags
	wait    time.Duration
}

// replanPoll is how often the Service is looked at until it is planned.
const replanPoll = 500 * time.Millisecond

func newReplanCommand(s command.Streams, reach connector) *cobra.Command {
	var f replanFlags
	cmd := &cobra.Command{
		Use:   "replan SERVICE",
		Short: "Ask for a better plan of a Service at once",
		Long: fmt.Sprintf(`Replan asks vicinity-controller to compare the plan of a Service, which it keeps as long
as no endpoint is overloaded, with a new one, and to replace it if the new one scores
better by %g point of 100. It waits until that is done and says what has changed. Without
it the controller does the same when the Service has been quiet for a while.

SERVICE is svc/NAME, service/NAME or NAME. Replan writes the annotation
%s, which the controller takes off when it is done; it must be
allowed to patch the Service, beside what explain must be allowed to read.`, allocate.RenewMargin, v1alpha1.AnnotationReplan),
		Example: `  vicinity replan svc/web -n shop
  vicinity replan web --wait 5m`,
		Args: explainArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.wait <= 0 {
				return command.UsageErrorf("--wait %s is not allowed; it must be above 0", f.wait)
			}
			return f.run(cmd.Context(), s.Out, reach, args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.cluster.add(flags, "the `NAMESPACE` of the Service (default that of the context)")
	flags.DurationVar(&f.wait, "wait", time.Minute, "`TIME` to wait for the controller")
	return cmd
}

func (f *replanFlags) run(ctx context.Context, out io.Writer, reach connector, args []string) error {
	name, err := serviceName(args)
	if err != nil {
		return err
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	before, err := r.decided(ctx, name)
	if err != nil {
		return err
	}
	if err := f.ask(ctx, r, name); err != nil {
		return err
	}
	after, err := r.decided(ctx, name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, replanText(r.namespace+"/"+name, &before, &after))
	return err
}

// decided is what holds for a Service, if Vicinity plans it.
func (r *clusterReader) decided(ctx context.Context, name string) (routing.Decision, error) {
	in, err := r.inputOf(ctx, name)
	if err != nil {
		return routing.Decision{}, err
	}
	d, err := in.Decide()
	switch {
	case err != nil:
		return d, fmt.Errorf("planning Service %s/%s: %w", r.namespace, name, err)
	case in.Stopped != "":
		return d, fmt.Errorf("no plan would be made for Service %s/%s: %s", r.namespace, name, in.Stopped)
	case d.Delivery == allocate.DeliveryNone:
		return d, fmt.Errorf("no plan is made for Service %s/%s; vicinity explain says why", r.namespace, name)
	}
	return d, nil
}

// ask writes the request and waits until it is taken off.
func (f *replanFlags) ask(ctx context.Context, r *clusterReader, name string) error {
	services := r.typed.CoreV1().Services(r.namespace)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		v1alpha1.AnnotationReplan: r.now.UTC().Format(time.RFC3339),
	}}})
	if err != nil {
		return err
	}
	if _, err := services.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing the annotation %s of Service %s/%s: %w", v1alpha1.AnnotationReplan, r.namespace, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	poll := time.NewTicker(replanPoll)
	defer poll.Stop()
	var last *corev1.Service
	for {
		service, err := services.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			if _, asked := service.Annotations[v1alpha1.AnnotationReplan]; !asked {
				return nil
			}
			last = service
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("vicinity-controller has not answered in %s%s; the annotation %s of Service %s/%s is there still, and followed as soon as it can",
				f.wait, replanWaitsFor(last), v1alpha1.AnnotationReplan, r.namespace, name)
		case <-poll.C:
		}
	}
}

// replanWaitsFor says what keeps the controller from comparing plans, if the Service's
// condition says it. The Service is nil if it could not be read.
func replanWaitsFor(service *corev1.Service) string {
	if service == nil {
		return ""
	}
	switch {
	case routing.DroppedHints(service):
		return ": it waits until hints are stored as it writes them"
	case routing.LostHints(service):
		return ": it waits until hints stay that it writes"
	case routing.NotWritten(service):
		return ": it waits until it can write what it decides"
	}
	return ""
}

// replanText says what has changed of what is in force, family by family.
func replanText(title string, before, after *routing.Decision) string {
	before, after = before.Hinted(), after.Hinted()
	var b strings.Builder
	for i := range after.Families {
		f := &after.Families[i]
		label := title
		if len(after.Families) > 1 {
			label += " (" + string(f.Family) + ")"
		}
		was := familyDecided(before, f.Family)
		moved := 0
		for address, set := range f.Assigned {
			if old, known := was.Assigned[address]; known && old != set {
				moved++
			}
		}
		switch {
		case moved > 0 && !f.Outcome.IsBalanced():
			fmt.Fprintf(&b, "%s: a new plan, %s: %s\n",
				label, count(int64(moved), "endpoint serves other zones", "endpoints serve other zones"),
				explain.Change(f.Outcome.Figures, was.Outcome.Figures))
		case f.Outcome.Rule == allocate.RuleKept && f.Outcome.Algorithm != allocate.Flow:
			fmt.Fprintf(&b, "%s: the plan is kept, no other is better by %g point: %s of the traffic stays in its zone\n",
				label, allocate.RenewMargin, plaintext.Percent(f.Outcome.Figures.InZone))
		default: // only a plan that endpoints are kept in is compared with another
			fmt.Fprintf(&b, "%s: there is no plan to compare with another. %s\n", label, explain.Outcome(f.Outcome))
		}
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "%s: there is no endpoint to plan for\n", title)
	}
	return b.String()
}

func familyDecided(d *routing.Decision, family corev1.IPFamily) *routing.FamilyDecision {
	for i := range d.Families {
		if d.Families[i].Family == family {
			return &d.Families[i]
		}
	}
	return &routing.FamilyDecision{}
}
