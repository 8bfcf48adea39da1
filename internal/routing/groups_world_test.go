package routing

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/nearest"
)

// fataler is a test, or one try of a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// groupWorld stores the groups of one Service, and has a clock and the input of decisions.
type groupWorld struct {
	t       fataler
	in      Input
	now     time.Time
	groups  map[string]*v1alpha1.EndpointGroup
	version int
	writes  int
	// watch is called after each write.
	watch func()
}

func newGroupWorld(t fataler, in Input) *groupWorld {
	in.Settings.ShrinkGrace = 10 * time.Second
	in.Service.UID = "uid"
	return &groupWorld{t: t, in: in, now: time.Unix(1_800_000_000, 0), groups: map[string]*v1alpha1.EndpointGroup{}}
}

// input returns the input of a decision with the stored groups.
func (w *groupWorld) input() Input {
	in := w.in
	in.Groups = nil
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		in.Groups = append(in.Groups, w.groups[name])
	}
	return in
}

// decide decides from the stored groups, and remembers the decision as the controller does.
func (w *groupWorld) decide() Decision {
	w.t.Helper()
	d := mustDecide(w.t, w.input())
	if d.Delivery != allocate.DeliveryGroups {
		w.t.Fatalf("delivery %s: %+v", d.Delivery, d.Request)
	}
	w.in.Last = &d
	return d
}

// step takes one step, and checks that it does not change its input. Only the first writes succeed, at most this many.
func (w *groupWorld) step(d Decision, state GroupState, most int) groups.Changes {
	w.t.Helper()
	in := w.input()
	var copies []*v1alpha1.EndpointGroup
	for _, g := range in.Groups {
		copies = append(copies, g.DeepCopy())
	}
	state.Now = w.now
	changes := Groups(in, d, state)
	for i := range copies {
		if !reflect.DeepEqual(copies[i], in.Groups[i]) {
			w.t.Fatalf("group %s is changed in the cache", copies[i].Name)
		}
	}
	for _, g := range changes.Create {
		if most--; most < 0 {
			return changes
		}
		w.version++
		made := g.DeepCopy()
		made.Name = fmt.Sprintf("%s%05d", made.GenerateName, w.version)
		w.write(made)
	}
	for _, g := range changes.Update {
		if most--; most < 0 {
			return changes
		}
		if before := w.groups[g.Name]; before == nil || before.ResourceVersion != g.ResourceVersion {
			w.t.Fatalf("update of %s, which is not what there is", g.Name)
		}
		w.version++
		w.write(g.DeepCopy())
	}
	for _, g := range changes.Delete {
		if most--; most < 0 {
			return changes
		}
		delete(w.groups, g.Name)
		w.noteWrite()
	}
	return changes
}

func (w *groupWorld) write(g *v1alpha1.EndpointGroup) {
	w.t.Helper()
	g.ResourceVersion = strconv.Itoa(w.version)
	if n := len(g.Spec.Endpoints); n > groups.MaxSize {
		w.t.Fatalf("%s has %d endpoints", g.Name, n)
	}
	if !slices.IsSortedFunc(g.Spec.Endpoints, func(a, b v1alpha1.GroupEndpoint) int { return strings.Compare(a.Address, b.Address) }) {
		w.t.Fatalf("%s is not in order: %v", g.Name, g.Spec.Endpoints)
	}
	w.groups[g.Name] = g
	w.noteWrite()
}

func (w *groupWorld) noteWrite() {
	w.writes++
	if w.watch != nil {
		w.watch()
	}
}

// settle takes steps until there is nothing to write. It moves the clock to the end of holds.
func (w *groupWorld) settle(d Decision, state GroupState) {
	w.t.Helper()
	var changes groups.Changes
	for range 50 {
		changes = w.step(d, state, 1<<20)
		switch {
		case changes.Again || changes.Writes() > 0:
		case changes.After > 0:
			w.now = w.now.Add(changes.After)
		default:
			return
		}
	}
	marked := ""
	for _, g := range changes.Update {
		marked += g.Name + " " + g.Annotations[v1alpha1.AnnotationGroupMarks] + "\n"
	}
	w.t.Fatalf("the groups do not settle, last %+v:\n%s%s", changes, marked, w.text())
}

// sync takes all steps that need no waiting.
func (w *groupWorld) sync(d Decision) (writes int, after time.Duration) {
	w.t.Helper()
	for range 10 {
		changes := w.step(d, GroupState{}, 1<<20)
		writes += changes.Writes()
		if !changes.Again {
			return writes, changes.After
		}
	}
	w.t.Fatalf("the steps do not end:\n%s", w.text())
	return 0, 0
}

// clone returns a copy with its own groups, for steps that do not count.
func (w *groupWorld) clone() *groupWorld {
	c := *w
	c.groups = maps.Clone(w.groups)
	c.watch = nil
	return &c
}

// text shows the groups, one a line: the zone and last number of each address, then the zones that use the group and the
// zones that do not see it.
func (w *groupWorld) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		g := w.groups[name]
		fmt.Fprintf(&b, "%s %s", name, g.Spec.AddressType)
		for i := range g.Spec.Endpoints {
			e := &g.Spec.Endpoints[i]
			fmt.Fprintf(&b, " %s%s", e.Zone, e.Address[strings.LastIndexAny(e.Address, ".:")+1:])
			if e.NotReady {
				b.WriteString("!")
			}
		}
		b.WriteString(" ->")
		for _, c := range g.Spec.Consumers {
			fmt.Fprintf(&b, " %s", c.Zone)
			if c.Weight != 1000 {
				fmt.Fprintf(&b, "*%d", c.Weight)
			}
		}
		if hidden := notFor(g); len(hidden) > 0 {
			fmt.Fprintf(&b, " not %s", strings.Join(hidden, " "))
		}
		if g.Spec.LocalOnly {
			b.WriteString(" local")
		}
		if len(g.Spec.Tiers) > 0 {
			fmt.Fprintf(&b, " tiers %s", strings.Join(g.Spec.Tiers, ","))
		}
		for _, address := range g.Spec.Drained {
			b.WriteString(" drained " + address)
		}
		if len(g.Spec.Ports) > 1 {
			b.WriteString(" odd")
		}
		if !g.Spec.AnyReady {
			b.WriteString(" none-ready")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// notFor returns the zones that do not see a group.
func notFor(g *v1alpha1.EndpointGroup) []string {
	var zones []string
	for _, key := range slices.Sorted(maps.Keys(g.Labels)) {
		if zone, found := strings.CutPrefix(key, v1alpha1.LabelNotForPrefix); found {
			zones = append(zones, zone)
		}
	}
	return zones
}

// reader is a node that reads groups as the documentation of package groups says.
type reader struct {
	family corev1.IPFamily
	port   string
	labels topology.Labels
}

// used returns the addresses that the node sends traffic to. Unless tiered, it ignores the tiers of the groups.
func (r reader) used(all map[string]*v1alpha1.EndpointGroup, tiered bool) map[string]bool {
	zone := r.labels[topology.Zone]
	type class struct {
		addresses []string
		nodes     []topology.Labels
	}
	classes := map[string]*class{}
	for _, g := range all {
		if g.Spec.AddressType != r.family || slices.Contains(notFor(g), zone) && zone != "" {
			continue
		}
		if len(g.Spec.Endpoints) > 0 && !slices.ContainsFunc(g.Spec.Ports, func(p v1alpha1.GroupPort) bool { return p.Name == r.port }) {
			continue
		}
		named, home := false, false
		for _, c := range g.Spec.Consumers {
			named = named || c.Zone == zone
		}
		for _, e := range g.Spec.Endpoints {
			home = home || e.Zone == zone && zone != ""
		}
		if g.Spec.LocalOnly && home && !named {
			continue
		}
		tiers := strings.Join(g.Spec.Tiers, ",")
		if !tiered {
			tiers = ""
		}
		if classes[tiers] == nil {
			classes[tiers] = &class{}
		}
		for _, e := range g.Spec.Endpoints {
			if e.NotReady {
				continue
			}
			labels := topology.Labels{topology.Hostname: e.Node, topology.Zone: e.Zone}
			for key, value := range e.Domains {
				labels[key] = value
			}
			classes[tiers].addresses = append(classes[tiers].addresses, e.Address)
			classes[tiers].nodes = append(classes[tiers].nodes, labels)
		}
	}
	used := map[string]bool{}
	for list, class := range classes {
		var tiers topology.Tiers
		if list != "" {
			tiers = strings.Split(list, ",")
		}
		for _, i := range nearest.Select(tiers, r.labels, class.nodes) {
			used[class.addresses[i]] = true
		}
	}
	return used
}
