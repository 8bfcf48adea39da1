package cli

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

// shiftPreview is the effect that a ZoneShift would have.
type shiftPreview struct {
	Name    string                    `json:"name"`
	From    v1alpha1.ShiftedDomain    `json:"from"`
	Nodes   int                       `json:"nodes"`
	Until   metav1.Time               `json:"until"`
	Refused string                    `json:"refused,omitempty"`
	Moves   []shiftedService          `json:"moves"`
	Yields  []shiftedService          `json:"yields"`
	Stays   []v1alpha1.StayingService `json:"stays"`
	Next    []string                  `json:"next"`

	spec            *v1alpha1.ZoneShiftSpec
	cluster         *intent.Cluster
	inside, outside int // ready endpoints of the Services that move or yield
}

// shiftedService is a Service that moves or yields. Inside and Outside count its ready endpoints, and Overload is in percent.
type shiftedService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Inside    int    `json:"inside"`
	Outside   int    `json:"outside"`
	Overload  int    `json:"overload"`
	// Near says which domain of a near Service has too few endpoints left, if that is why it yields.
	Near string `json:"near,omitempty"`
	// Needed is the number of ready endpoints outside with which a Service that yields moves.
	Needed int `json:"needed,omitempty"`
	// Scale is the command that adds them.
	Scale string `json:"scale,omitempty"`
}

// preview decides as the controller does, by what it reads once.
func (r *shiftRun) preview(ctx context.Context, zs *v1alpha1.ZoneShift) (*shiftPreview, error) {
	all, err := r.listShifts(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, func(other *v1alpha1.ZoneShift) bool { return other.Name == zs.Name }) {
		return nil, r.exists()
	}
	p, err := r.effect(ctx, zs)
	if err != nil {
		return nil, err
	}
	if _, p.Refused = shift.Fault(zs, all, p.cluster, r.now); p.Refused == "" {
		_, p.Refused = shift.Overloads(zs, p.inside, p.outside)
	}
	p.Next = p.next()
	return p, nil
}

// effect returns the effect of a ZoneShift on the Services as they are, whether or not it exists.
func (r *shiftRun) effect(ctx context.Context, zs *v1alpha1.ZoneShift) (*shiftPreview, error) {
	inputs, _, err := r.inputs(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	if len(inputs) == 0 || slices.Contains(r.unread, inspect.KindNodes) || slices.Contains(r.unread, inspect.KindSlices) {
		return nil, fmt.Errorf("the effect of the shift is unknown without Services, Nodes or EndpointSlices, so nothing was changed: %s", strings.Join(r.notKnown, "; "))
	}
	labels, err := r.namespaceLabels(ctx, zs)
	if err != nil {
		return nil, err
	}
	cluster, domain := inputs[0].Cluster, shift.Begun(zs)
	p := &shiftPreview{
		Name: zs.Name, From: zs.Spec.From, Nodes: len(cluster.Domains(domain.Key)[domain.Value]), Until: metav1.NewTime(shift.Until(zs)), spec: &zs.Spec,
		Moves: []shiftedService{}, Yields: []shiftedService{}, Stays: []v1alpha1.StayingService{}, cluster: cluster,
	}
	for i := range inputs {
		in := &inputs[i]
		service := in.Service
		isSelected := shift.Selects(zs, service.Labels, labels[service.Namespace])
		others := in.Shifts
		in.Shifts = []shift.Shift{domain}
		if !isSelected || service.DeletionTimestamp != nil || routing.ShiftingOf(in.Input) == (routing.Shifting{}) {
			continue
		}
		in.Shifts = append(in.Shifts, others...)
		p.add(in)
	}
	slices.SortStableFunc(p.Moves, func(a, b shiftedService) int { return cmp.Compare(b.Overload, a.Overload) })
	return p, nil
}

// namespaceLabels returns the labels of namespaces by name. It reads none if the ZoneShift does not select by them.
func (r *clusterReader) namespaceLabels(ctx context.Context, zs *v1alpha1.ZoneShift) (map[string]map[string]string, error) {
	if zs.Spec.Services.NamespaceSelector == nil {
		return nil, nil
	}
	list, err := listAll[corev1.Namespace](ctx, r.typed.CoreV1().Namespaces(), metav1.ListOptions{})
	labels := map[string]map[string]string{}
	for _, namespace := range list {
		labels[namespace.Name] = namespace.Labels
	}
	return labels, r.explained("reading Namespaces", err)
}

func (p *shiftPreview) add(in *inspect.Reading) {
	effect := routing.ShiftingOf(in.Input)
	s := shiftedService{Namespace: in.Service.Namespace, Name: in.Service.Name, Inside: effect.Inside, Outside: effect.Outside}
	if stays := cmp.Or(in.LeftAlone, effect.Stays); stays != "" {
		p.Stays = append(p.Stays, v1alpha1.StayingService{Namespace: s.Namespace, Name: s.Name, Reason: stays})
	}
	if in.LeftAlone != "" || !effect.Yields && !effect.Moves || s.Inside == 0 {
		return
	}
	p.inside, p.outside = p.inside+s.Inside, p.outside+s.Outside
	s.Overload, _ = shift.Overload(s.Inside, s.Outside)
	if effect.Moves {
		p.Moves = append(p.Moves, s)
		return
	}
	if s.Near = effect.Near; s.Near != "" {
		p.Yields = append(p.Yields, s)
		return
	}
	s.Needed = shift.NeededOutside(s.Inside, effect.Bound)
	if deployment, pods := deploymentOf(in.Slices); deployment != "" {
		s.Scale = fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=%d", s.Namespace, deployment, pods+s.Needed-s.Outside)
	}
	p.Yields = append(p.Yields, s)
}

// podOfDeployment matches the names of a Deployment's pods: Kubernetes makes the last two words without vowels.
var podOfDeployment = regexp.MustCompile(`^(.+)-[b-df-hj-np-tv-xz24-9]{5,10}-[b-df-hj-np-tv-xz24-9]{5}$`)

// deploymentOf returns the Deployment of all pods of a Service by their names, empty if they do not tell it, and the number of
// pods, ready or not.
func deploymentOf(list []*discoveryv1.EndpointSlice) (name string, pods int) {
	known := map[string]bool{}
	for _, slice := range list {
		for i := range slice.Endpoints {
			ref := slice.Endpoints[i].TargetRef
			if ref == nil || ref.Kind != "Pod" {
				return "", 0
			}
			parts := podOfDeployment.FindStringSubmatch(ref.Name)
			if parts == nil || name != "" && name != parts[1] {
				return "", 0
			}
			name, known[ref.Name] = parts[1], true
		}
	}
	return name, len(known)
}

// next returns the remarks and the commands for before and after the shift.
func (p *shiftPreview) next() (lines []string) {
	if len(p.Moves)+len(p.Yields) > 0 {
		lines = append(lines, "an HPA averages over all pods, also those without new connections, so it adds none by itself: raise its minReplicas")
	}
	if len(p.Yields) > 0 {
		lines = append(lines, fmt.Sprintf("before you add pods for Services that yield, keep new pods out of the domain: kubectl cordon -l %s=%s", p.From.Key, p.From.Value))
	}
	if p.From.Key == topology.Zone {
		lines = append(lines, "what breaks if the zone goes entirely: vicinity doctor --lose "+p.From.Value)
	}
	if p.Refused == "" {
		lines = append(lines, "the way back: vicinity shift back "+p.Name)
	}
	return lines
}

func (p *shiftPreview) writeText(page *page) {
	page.heading(fmt.Sprintf("ZoneShift %s: %s with %s=%s, until %s (%s)", p.Name, plaintext.Plural(p.Nodes, "node"), p.From.Key, p.From.Value,
		plaintext.Clock(p.Until.Time), plaintext.Span(p.spec.For.Duration)))
	if p.Refused != "" {
		page.list("", []string{"would be refused: " + p.Refused})
	}
	var moves, yields []string
	for _, s := range p.Moves {
		others := fmt.Sprintf("each of the other %d gets", s.Outside)
		if s.Outside == 1 {
			others = "the other one gets"
		}
		moves = append(moves, fmt.Sprintf("%s/%s: %d of %s; %s %d %% more", s.Namespace, s.Name, s.Inside,
			plaintext.PluralVerb(s.Inside+s.Outside, "endpoint", "leaves", "leave"), others, s.Overload))
	}
	for _, s := range p.Yields {
		line := fmt.Sprintf("%s/%s: needs %s outside, and has %d, besides %d inside", s.Namespace, s.Name, plaintext.Plural(s.Needed, "ready endpoint"), s.Outside, s.Inside)
		switch {
		case s.Near != "":
			line = fmt.Sprintf("%s/%s: %s", s.Namespace, s.Name, s.Near)
		case s.Scale != "":
			line += ": " + s.Scale
		}
		yields = append(yields, line)
	}
	page.list(plaintext.PluralVerb(len(moves), "Service", "moves", "move"), first(moves))
	page.list(plaintext.PluralVerb(len(yields), "Service", "yields", "yield")+", because the others would get more load than spec.maxOverload allows", first(yields))
	page.list(plaintext.PluralVerb(len(p.Stays), "Service", "stays", "stay"), first(staysText(p.Stays)))
	if len(moves)+len(yields)+len(p.Stays) == 0 {
		page.list("", []string{"no Service that the shift selects has endpoints there"})
	}
	page.list("next", p.Next)
}

// first shortens a list to the lines that fit on a screen beside others.
func first(lines []string) []string {
	if more := len(lines) - mostListed; more > 0 {
		return append(slices.Clone(lines[:mostListed]), fmt.Sprintf("and %d more; -o json has all", more))
	}
	return lines
}
