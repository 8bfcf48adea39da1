package routing

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// GroupChanges are the writes of one step towards the groups that a Service should
// have. Written one after another, creations first, then updates, then deletions, no
// write takes from a zone the last endpoint that it may use while the step has others
// for it: any part of the step, from its beginning, is safe. So whoever writes stops
// at the first failure, reads what there is, and asks for a step again.
type GroupChanges struct {
	// Create are new groups, without a name but with the beginning of one.
	Create []*v1alpha1.EndpointGroup
	// Update are groups that exist, with the resource version that they were read at.
	Update []*v1alpha1.EndpointGroup
	// Delete are groups that nobody needs to see.
	Delete []*v1alpha1.EndpointGroup

	// Again says that another step follows as soon as this one is written.
	Again bool
	// After is how long it takes until endpoints that zones keep for a while may be
	// taken from them. It is zero if there are none.
	After time.Duration
	// Notes are sentences about what groups cannot carry.
	Notes []string
}

// Writes is the number of objects that the step writes.
func (c GroupChanges) Writes() int {
	return len(c.Create) + len(c.Update) + len(c.Delete)
}

// GroupState is what groups depend on beside the decision.
type GroupState struct {
	Now time.Time
	// HandOver says that kube-proxy serves the Service too, so that proxies have to
	// acknowledge what they have programmed.
	HandOver bool
}

// Groups is the next step towards the groups that deliver a decision.
//
// A proxy reads groups one by one: a node uses every group that it sees, which are
// those without the label not-for.vicinity.dev/ of its zone. It does not use one that
// is marked localOnly, does not name the node's zone among its consumers and has an
// endpoint that is at home there; of that it needs what is on the node itself. Each
// zone sees a group, if only an empty one. Among groups with the same tiers a node
// uses the nearest tier; what groups with different tiers give it adds up, which
// happens only while tiers change.
//
// An endpoint is in one group, and stays there as long as its consumers are those of
// the group, or become those of the group as a whole. When consumers change, what
// zones gain is written at once; what they lose, as far as it is still ready, is held
// for Settings.ShrinkGrace: an endpoint is in two groups for so long, or a group has
// consumers that leave it. Which is which, and since when, is in an annotation, so
// that whoever reads the groups, at any time, finds the plan that was decided last.
func Groups(in Input, d Decision, at GroupState) GroupChanges {
	var changes GroupChanges
	rest := slices.DeleteFunc(slices.Clone(in.Groups), func(g *v1alpha1.EndpointGroup) bool {
		return g.DeletionTimestamp != nil
	})
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		decided := d.family(family)
		if decided == nil && !slices.Contains(in.Service.Spec.IPFamilies, family) {
			continue
		}
		p := newGroupPlanner(in, d, at)
		p.family, p.decided = family, decided
		rest = slices.DeleteFunc(rest, func(g *v1alpha1.EndpointGroup) bool {
			if g.Spec.AddressType != family {
				return false
			}
			p.standing = append(p.standing, &standing{group: g})
			return true
		})
		p.step(&changes)
	}
	// What is left is of a family that the Service does not have any more.
	changes.Delete = append(changes.Delete, rest...)
	return changes
}

// groupPlanner makes a step for one address family.
type groupPlanner struct {
	in      Input
	at      GroupState
	size    int
	family  corev1.IPFamily
	decided *FamilyDecision // nil if the family has no slice
	// tiers are what each node looks for.
	tiers []string
	hard  bool
	// zones are those that the plan knows, in order. Nodes of others see all groups.
	zones []string

	parts    []*part
	standing []*standing
	created  []*standing
	sets     map[allocate.ConsumerSet]*consumers
	resolved map[string]*consumers
	buckets  map[bucketKey]*bucket
	order    []*bucket
	domains  map[domainsKey]map[string]string
	listed   []v1alpha1.GroupEndpoint // scratch: endpoints of a group

	anyReady bool
	// shrinking says that the step takes from zones what they held long enough. A
	// step that gives them anything does not.
	shrinking bool
	// deferring are the zones that would lose the last endpoint that they see before
	// the step gives them others.
	deferring map[string]bool
	// due says that something is held long enough.
	due   bool
	after time.Duration
	notes []string
	// trigger is when the change happened that the step is for, as slices say it.
	trigger string
}

func newGroupPlanner(in Input, d Decision, at GroupState) *groupPlanner {
	size := in.Settings.GroupSize
	if size <= 0 {
		size = DefaultGroupSize
	}
	return &groupPlanner{
		in: in, at: at, size: min(size, MaxGroupSize),
		tiers: nodeTiers(d.Request.Intent), hard: d.Request.Intent.Tiers.Hard(),
		sets: map[allocate.ConsumerSet]*consumers{}, resolved: map[string]*consumers{},
		buckets: map[bucketKey]*bucket{}, domains: map[domainsKey]map[string]string{},
		deferring: map[string]bool{},
	}
}

// step adds the family's writes to the changes.
func (p *groupPlanner) step(changes *GroupChanges) {
	slices.SortFunc(p.standing, func(a, b *standing) int { return strings.Compare(a.group.Name, b.group.Name) })
	p.findTrigger()
	p.carry()
	p.planZones()
	p.read()
	p.want()
	p.target()
	p.settle()
	p.place()
	p.widen()

	writes := p.compose()
	switch grows := slices.ContainsFunc(writes, func(w *groupWrite) bool { return w.grows }); {
	case grows && p.anyReady && len(writes) > 1 && p.loses():
		writes = p.compose()
	case !grows && p.due:
		p.shrinking = true
		writes = p.compose()
	}
	changes.Again = changes.Again || !p.shrinking && p.due || len(p.deferring) > 0
	if p.after > 0 && (changes.After == 0 || p.after < changes.After) {
		changes.After = p.after
	}
	for _, note := range p.notes {
		if !slices.Contains(changes.Notes, note) {
			changes.Notes = append(changes.Notes, note)
		}
	}
	p.arrange(writes, changes)
}

// arrange puts the writes into the order in which they are safe.
func (p *groupPlanner) arrange(writes []*groupWrite, changes *GroupChanges) {
	var late []*v1alpha1.EndpointGroup
	for _, w := range writes {
		switch {
		case w.next == nil:
			changes.Delete = append(changes.Delete, w.group)
		case w.group == nil:
			changes.Create = append(changes.Create, w.next)
		case w.grows || w.opens:
			changes.Update = append(changes.Update, w.next)
		default:
			late = append(late, w.next)
		}
	}
	changes.Update = append(changes.Update, late...)
}
