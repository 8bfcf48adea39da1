package inspect

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
)

// ClusterSettings are the objects for the Services of many namespaces.
type ClusterSettings struct {
	Defaults []*v1alpha1.ClusterRoutingPolicy
	Shifts   []*v1alpha1.ZoneShift
}

// NeedsNamespaces reports whether any of them selects namespaces by their labels.
func (c *ClusterSettings) NeedsNamespaces() bool {
	return len(c.Defaults) > 0 || slices.ContainsFunc(c.Shifts, selectsNamespaces)
}

func selectsNamespaces(zs *v1alpha1.ZoneShift) bool { return zs.Spec.Services.NamespaceSelector != nil }

// SelectFor sets the objects that count for the Service of an input. An unknown namespace is nil: nothing that selects
// namespaces counts for it.
func (c *ClusterSettings) SelectFor(in *routing.Input, namespace *corev1.Namespace, now time.Time) {
	if namespace == nil {
		shifts := slices.DeleteFunc(slices.Clone(c.Shifts), selectsNamespaces)
		in.Shifts, _ = shift.For(shifts, in.Service.Labels, nil, now)
		return
	}
	in.Defaults = intent.ForNamespace(c.Defaults, namespace.Labels)
	in.Shifts, _ = shift.For(c.Shifts, in.Service.Labels, namespace.Labels, now)
}

// ShiftStatus summarizes a zone shift that is accepted and not over.
type ShiftStatus struct {
	Name   string    `json:"name"`
	Domain string    `json:"domain"` // as in topology.kubernetes.io/zone=zone-a
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	// Pending says why it is not in force yet, empty if it is.
	Pending string `json:"pending,omitempty"`
	// Services, Yielding and Staying count the Services that move, yield and stay.
	Services int32 `json:"services"`
	Yielding int32 `json:"yielding"`
	Staying  int32 `json:"staying"`
}

// AcceptedShifts returns the zone shifts that are accepted and not over, in their order.
func AcceptedShifts(all []*v1alpha1.ZoneShift, now time.Time) []ShiftStatus {
	var list []ShiftStatus
	for _, zs := range all {
		if s, _ := shift.Of(zs, now); s != nil && !s.Returning {
			list = append(list, ShiftStatus{zs.Name, s.Domain(), s.Until.UTC(), zs.Spec.Reason, pendingOf(zs), zs.Status.Services, zs.Status.Yielding, zs.Status.Staying})
		}
	}
	return list
}

func pendingOf(zs *v1alpha1.ZoneShift) string {
	switch force := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.ConditionInForce); {
	case force == nil || force.ObservedGeneration != zs.Generation:
		return "vicinity-controller has not read it back"
	case force.Status != metav1.ConditionTrue:
		return force.Message
	}
	return ""
}

// String says in one line what it does.
func (s ShiftStatus) String() string {
	get, pending := "get", ""
	if s.Pending != "" {
		get, pending = "will get", "; not in force yet: "+plaintext.Of(s.Pending)
	}
	return fmt.Sprintf("zone shift %s: endpoints in %s %s no new connections until %s: %s (Services: %d moving, %d yielding, %d staying)%s",
		s.Name, s.Domain, get, plaintext.Clock(s.Until), plaintext.Of(s.Reason), s.Services, s.Yielding, s.Staying, pending)
}

// shiftSentences says what zone shifts do to the Service, for each one that holds some of its ready endpoints.
func (in *Reading) shiftSentences(effect *routing.Shifting) []string {
	if in.lacksNodes() {
		return nil
	}
	var sentences []string
	endpoints := intent.SliceEndpoints(intent.ProxySlices(in.Service, in.Slices), in.Cluster)
	for i := range in.Shifts {
		s, inside := &in.Shifts[i], 0
		for _, family := range endpoints {
			held := 0
			for _, e := range family {
				if s.Holds(in.Cluster.Labels(e.Node), e.Zone) {
					held++
				}
			}
			inside = max(inside, held)
		}
		if inside > 0 {
			verb, rest := in.shiftEffect(s, effect)
			what := plaintext.Count(inside, "endpoint in "+s.Domain()+" "+verb+"s", "endpoints in "+s.Domain()+" "+verb)
			sentences = append(sentences, fmt.Sprintf("zone shift %s: %s %s", s.Name, what, rest))
		}
	}
	return sentences
}

// shiftEffect says what a shift does to endpoints in its domain.
func (in *Reading) shiftEffect(s *shift.Shift, effect *routing.Shifting) (verb, rest string) {
	until := plaintext.Clock(s.Until)
	byGroups := routing.FollowsGroups(in.Input) && !intent.IsHeadless(in.Service)
	switch {
	case in.LeftAlone != "":
		return "stay", "in service: vicinity-controller ignores the Service, because " + in.LeftAlone
	case effect.Near != "":
		return "stay", fmt.Sprintf("in service: the Service yields, because %s; the bound is %d %% load on top", effect.Near, effect.Bound)
	case effect.Yields:
		return "stay", fmt.Sprintf("in service: the Service yields, because those outside (%d for %d inside) would get more than %d %% load on top", effect.Outside, effect.Inside, effect.Bound)
	case !effect.Moves && effect.Stays != "":
		return "stay", "in service: " + effect.Stays
	case !effect.Moves:
		return "serve", "again: the shift ended at " + until
	case s.Returning:
		rest = fmt.Sprintf("%s of the usual new connections, and soon all: the shift ended at %s", plaintext.Percent(s.Weight), until)
	case byGroups && s.Weight > 0:
		rest = fmt.Sprintf("%s of the usual new connections, and soon none until %s", plaintext.Percent(s.Weight), until)
	default:
		rest = "no new connections until " + until
	}
	if effect.Stays != "" {
		rest += "; " + effect.Stays
	}
	return "get", rest
}
