package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/shift"
)

func newShiftStatusCommand(s command.Streams, reach connector) *cobra.Command {
	return reach.shiftCommand(s, &cobra.Command{
		Use: "status [NAME]", Short: "Show which zones are out of service",
		Long: `Status lists all ZoneShifts. With NAME it shows one in full, with the Services whose endpoints
stay in service, and why.`,
		Example: `  vicinity shift status
  vicinity shift status zone-a`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, r *shiftRun) error {
		if r.name != "" {
			zs, _, err := r.read(ctx)
			if err != nil {
				return err
			}
			return r.output.write(r.out, zs, func(p *page) { r.writeShift(p, zs) })
		}
		list, err := r.listShifts(ctx)
		if err == nil && len(list) == 0 {
			fmt.Fprintln(s.Err, "no ZoneShift is in the cluster")
		}
		if err != nil {
			return err
		}
		return r.output.write(r.out, map[string]any{"shifts": list}, func(p *page) { r.writeShifts(p, list) })
	}, "text", "json", "yaml")
}

func (r *shiftRun) listShifts(ctx context.Context) ([]*v1alpha1.ZoneShift, error) {
	list, err := listOwn[v1alpha1.ZoneShift](ctx, r.clusterReader, ownList{shiftResource, metav1.NamespaceAll, ""})
	if apierrors.IsNotFound(err) {
		return nil, errNotServed("ZoneShifts")
	}
	return list, r.explained("reading ZoneShifts", err)
}

func (r *shiftRun) writeShifts(p *page, list []*v1alpha1.ZoneShift) {
	table := plaintext.NewTable("NAME", "FROM", "UNTIL", ">LEFT", ">SERVICES", ">YIELDING", "STATE", "REASON")
	for _, zs := range list {
		state, _ := stateOf(zs)
		table.Rows = append(table.Rows, []string{
			zs.Name, zs.Spec.From.Key + "=" + zs.Spec.From.Value, plaintext.Clock(shift.Until(zs)), r.left(zs),
			strconv.Itoa(int(zs.Status.Services)), strconv.Itoa(int(zs.Status.Yielding)), state, plaintext.Of(zs.Spec.Reason),
		})
	}
	if len(list) > 0 {
		p.table("", table)
	}
}

// left returns the rest of the time of a shift.
func (r *shiftRun) left(zs *v1alpha1.ZoneShift) string {
	if left := shift.Until(zs).Sub(r.now).Round(time.Second); left > 0 {
		return plaintext.Span(left)
	}
	return "over"
}

// stateOf returns a word for the state of a shift, and the message of the controller, fit for terminals.
func stateOf(zs *v1alpha1.ZoneShift) (state, message string) {
	accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
	force := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.ConditionInForce)
	switch {
	case accepted == nil:
		return "Unread", "no controller has read it; if this lasts, \"vicinity doctor\" says what is wrong"
	case accepted.Status != metav1.ConditionTrue || force == nil:
		return accepted.Reason, plaintext.Line(accepted.Message)
	}
	return force.Reason, plaintext.Line(force.Message)
}

func effectOf(s *v1alpha1.ZoneShiftStatus) string {
	return fmt.Sprintf("%s, %s, %s", plaintext.PluralVerb(int(s.Services), "Service", "moves", "move"),
		plaintext.PluralVerb(int(s.Yielding), "Service", "yields", "yield"), plaintext.PluralVerb(int(s.Staying), "Service", "stays", "stay"))
}

func (r *shiftRun) writeShift(p *page, zs *v1alpha1.ZoneShift) {
	state, message := stateOf(zs)
	p.heading(fmt.Sprintf("ZoneShift %s: %s=%s, until %s (%s)", zs.Name, zs.Spec.From.Key, zs.Spec.From.Value, plaintext.Clock(shift.Until(zs)), r.left(zs)))
	p.list("", []string{"reason: " + plaintext.Of(zs.Spec.Reason), state + ": " + message, effectOf(&zs.Status)})
	stays := staysText(zs.Status.Stays)
	if more := int(zs.Status.Yielding+zs.Status.Staying) - len(stays); more > 0 {
		stays = append(stays, fmt.Sprintf("and %d more", more))
	}
	p.list("yield or stay", stays)
	p.list("next", []string{"another end: vicinity shift extend " + zs.Name + " --for 1h", "the way back: vicinity shift back " + zs.Name})
}

func staysText(list []v1alpha1.StayingService) (lines []string) {
	for _, s := range list {
		lines = append(lines, fmt.Sprintf("%s/%s: %s", s.Namespace, s.Name, s.Reason))
	}
	return lines
}

func newShiftExtendCommand(s command.Streams, reach connector) *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use: "extend NAME --for DURATION", Short: "Move the end of a shift",
		Long: `Extend lets a shift end in the given time from now, later or earlier than before. It sets
spec.for, which counts from the creation of the ZoneShift: at most 72h. A shift that has ended
begins again.`,
		Args: oneName("ZoneShift"),
	}
	cmd.Flags().Func("for", "`DURATION` of the shift from now, at most 72h", durationFlag(&length, 0, longestShift))
	_ = cmd.MarkFlagRequired("for")
	return reach.shiftCommand(s, cmd, func(ctx context.Context, r *shiftRun) error { return r.endIn(ctx, length) }, "text", "json", "yaml")
}

// endIn sets the end of the shift, at a time from now.
func (r *shiftRun) endIn(ctx context.Context, length time.Duration) error {
	target := specTarget{resource: shiftResource, kind: "ZoneShift", name: r.name, out: r.out, output: &r.output}
	return r.changeSpec(ctx, target, func() (version string, change specChange, err error) {
		zs, _, err := r.read(ctx)
		if err != nil {
			return "", change, err
		}
		begun := zs.CreationTimestamp.Time
		whole := max(r.now.Add(length).Sub(begun).Round(time.Second), shortestShift)
		switch state, message := stateOf(zs); {
		case meta.IsStatusConditionFalse(zs.Status.Conditions, v1alpha1.Accepted) && state != shift.ReasonEnded:
			return "", change, fmt.Errorf("ZoneShift %[1]s is refused, and another end does not change that: %[2]s; \"vicinity shift back %[1]s\" removes it", r.name, message)
		case whole > longestShift:
			left := max(begun.Add(longestShift).Sub(r.now), 0).Truncate(time.Second)
			return "", change, fmt.Errorf("ZoneShift %s is not changed: it began at %s and can last 72h, so --for can be at most %s now; after that, create another one",
				r.name, plaintext.Clock(begun), plaintext.Span(left))
		}
		return zs.ResourceVersion, specChange{map[string]any{"for": whole.String()}, "ends at " + plaintext.Clock(begun.Add(whole))}, nil
	})
}

func newShiftBackCommand(s command.Streams, reach connector) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use: "back NAME", Short: "End a shift, and bring the endpoints back",
		Long: `Back deletes a ZoneShift, and waits until neither hints nor groups keep endpoints of its domain
out of service. If the shift has a ramp and vicinity-proxy serves Services, back first ends the
shift by spec.for and waits for the ramp up. It does not ask.`,
		Example: `  vicinity shift back zone-a
  vicinity shift back zone-a --now`,
		Args: oneName("ZoneShift"),
	}
	cmd.Flags().BoolVar(&now, "now", false, "delete it without the ramp")
	return reach.shiftCommand(s, cmd, func(ctx context.Context, r *shiftRun) error { return r.back(ctx, now) })
}

func (r *shiftRun) back(ctx context.Context, now bool) error {
	zs, _, err := r.read(ctx)
	if err != nil {
		return err
	}
	if !now {
		if err := r.rampUp(ctx, zs); err != nil {
			return fmt.Errorf("%w; \"vicinity shift back %s --now\" does without the ramp", err, r.name)
		}
	}
	return r.remove(ctx, zs)
}

// remove deletes a ZoneShift, and waits until its endpoints are back.
func (r *shiftRun) remove(ctx context.Context, zs *v1alpha1.ZoneShift) error {
	if err := r.delete(ctx, zs.UID); err != nil {
		return err
	}
	r.print("ZoneShift %s is deleted", r.name)
	return r.awaitReturn(ctx, shift.Begun(zs))
}

func (r *shiftRun) delete(ctx context.Context, uid types.UID) error {
	err := r.shifts().Delete(ctx, r.name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
	return r.explained("deleting ZoneShift "+r.name, ignoreNotFound(err))
}

// returnTimeout is how long a running controller may need to bring the endpoints of a large cluster back.
const returnTimeout = 5 * time.Minute

// rampUp ends a shift by its time, and waits until its endpoints have their full share again. It leaves out shifts without a
// ramp, and those younger than the shortest time.
func (r *shiftRun) rampUp(ctx context.Context, zs *v1alpha1.ZoneShift) error {
	running, _ := shift.Of(zs, r.now)
	if running == nil || zs.Spec.Ramp == nil || zs.Spec.Ramp.Duration == 0 || r.now.Before(zs.CreationTimestamp.Add(shortestShift)) {
		return nil
	}
	handedOver, err := r.typed.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: v1alpha1.LabelServiceProxyName + "=" + v1alpha1.ServiceProxyName})
	if err != nil || len(handedOver.Items) == 0 {
		return r.explained("reading Services", err)
	}
	if !running.Returning {
		if err := r.endIn(ctx, 0); err != nil {
			return err
		}
	}
	begun, limit := time.Now(), zs.Spec.Ramp.Duration+returnTimeout
	return await(ctx, r.err, func() (done bool, err error) {
		zs, lasting, err := r.read(ctx)
		if err != nil {
			return lasting, err
		}
		force := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.ConditionInForce)
		switch {
		case time.Since(begun) > limit:
			return true, fmt.Errorf("the ramp has not ended within %s: \"vicinity doctor\" says what is wrong", plaintext.Span(limit))
		case force == nil || force.ObservedGeneration != zs.Generation:
			return false, nil
		}
		r.print("%s", force.Message)
		return force.Reason == shift.ReasonEnded, nil
	})
}

// awaitReturn reads back that nothing keeps endpoints of a domain out of service.
func (r *shiftRun) awaitReturn(ctx context.Context, domain shift.Shift) error {
	nodes, err := listAll[corev1.Node](ctx, r.typed.CoreV1().Nodes(), metav1.ListOptions{})
	if err != nil {
		return r.explained("reading Nodes, to see whether the endpoints are back", err)
	}
	in, begun := routing.Input{Cluster: capacity.NewCluster(nodes)}, time.Now()
	return await(ctx, r.err, func() (done bool, err error) {
		if in.Slices, err = listAll[discoveryv1.EndpointSlice](ctx, r.typed.DiscoveryV1().EndpointSlices(metav1.NamespaceAll), metav1.ListOptions{}); err == nil {
			in.Groups, err = listOwn[v1alpha1.EndpointGroup](ctx, r.clusterReader, ownList{"endpointgroups", metav1.NamespaceAll, ""})
		}
		if err != nil {
			return isLasting(err), r.explained("reading EndpointSlices and EndpointGroups, to see whether the endpoints are back", err)
		}
		kept := routing.KeptOut(&domain, &in)
		still := fmt.Sprintf("still out of service: %s with %s=%s", plaintext.Plural(kept, "endpoint"), domain.Key, domain.Value)
		switch {
		case kept == 0:
			r.print("all endpoints with %s=%s are back: no hints and no groups keep them out of service", domain.Key, domain.Value)
			return true, nil
		case time.Since(begun) > returnTimeout:
			return true, fmt.Errorf("after %s %s; \"vicinity doctor\" says what is wrong", plaintext.Span(returnTimeout), still)
		}
		r.print("%s", still)
		return false, nil
	})
}
