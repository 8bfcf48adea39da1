package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// pending returns sentences about parts of a decision that are known to be missing in the cluster.
func (in *Reading) pending(d routing.Decision) []string {
	if in.lacksNodes() {
		return nil
	}
	sentences := heldText(hints.Held(in.Slices))
	endpoints, written := 0, 0
	hinted := d.Hinted().Hints()
	for _, slice := range in.Slices {
		var changed int
		switch {
		case hinted != nil:
			changed = hinted.Unwritten(slice)
		case in.Service.Labels[v1alpha1.LabelRouted] == "true":
			_, changed = hints.Bare(slice)
		}
		if changed > 0 {
			endpoints += changed
			written++
		}
	}
	if endpoints > 0 {
		state := "not written yet"
		if routing.TroubleHintsLost.IsOn(in.Service) {
			state = "written and lost again"
		}
		sentences = append(sentences, fmt.Sprintf("%s: the hints of %s in %s differ from the plan", state,
			plaintext.Plural(endpoints, "endpoint"), plaintext.Plural(written, "slice")))
	}
	switch {
	case d.Delivery == allocate.DeliveryGroups && !slices.Contains(in.Unread, KindSlices) && !slices.Contains(in.Unread, KindGroups):
		return append(sentences, in.pendingGroups(d)...)
	case d.Delivery != allocate.DeliveryGroups && len(in.Groups) > 0:
		sentences = append(sentences, "not removed yet: "+plaintext.Plural(len(in.Groups), "group"))
	}
	return sentences
}

func (in *Reading) pendingGroups(d routing.Decision) []string {
	var sentences []string
	changes := routing.Groups(in.Input, d, routing.GroupState{Now: in.Now, HandOver: awaitsProxy(in.Service, d.Delivery)})
	if n := changes.Writes(); n > 0 {
		sentences = append(sentences, "not written yet: "+plaintext.Count(int64(n), "group differs from the plan", "groups differ from the plan"))
	}
	if changes.After > 0 {
		sentences = append(sentences, "for a moment longer zones may use endpoints that the plan takes from them")
	}
	return sentences
}

// heldText says which endpoints zones keep for a moment against the plan.
func heldText(held map[string][]string) []string {
	addresses := map[string][]string{}
	for _, address := range slices.Sorted(maps.Keys(held)) {
		zones := strings.Join(held[address], " and ")
		addresses[zones] = append(addresses[zones], address)
	}
	var sentences []string
	for _, zones := range slices.Sorted(maps.Keys(addresses)) {
		sentences = append(sentences, fmt.Sprintf("for a moment longer %s may use %s, against the plan", zones, plaintext.FirstOf(addresses[zones], mostNamed)))
	}
	return sentences
}
