package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/command"
)

// algorithmFlags choose the algorithms to compare, and the delivery of their plans.
type algorithmFlags struct {
	names    []string
	delivery string
}

func (f *algorithmFlags) add(flags *pflag.FlagSet, known []allocate.Algorithm) {
	flags.StringSliceVar(&f.names, "algorithm", []string{"all"}, "`LIST` of algorithms, or all: "+joinNames(known))
	flags.StringVar(&f.delivery, "delivery", "", "hints or groups (default hints, or groups if a listed algorithm needs them)")
}

// read checks the flags. note names the algorithms that "all" leaves out because the delivery cannot
// carry them; an algorithm that is named is never left out.
func (f *algorithmFlags) read(known []allocate.Algorithm) (chosen []allocate.Algorithm, delivery allocate.Delivery, note string, err error) {
	for _, name := range f.names {
		a := allocate.Algorithm(name)
		switch {
		case name == "all":
		case !slices.Contains(known, a):
			return nil, "", "", command.UsageErrorf("--algorithm %q is unknown; allowed are all, %s", name, joinNames(known))
		case slices.Contains(chosen, a):
			return nil, "", "", command.UsageErrorf("--algorithm %q is given twice", name)
		default:
			chosen = append(chosen, a)
		}
	}
	delivery = allocate.Delivery(f.delivery)
	switch {
	case delivery == "" && slices.ContainsFunc(chosen, allocate.Algorithm.Weighted):
		delivery = allocate.DeliveryGroups
	case delivery == "":
		delivery = allocate.DeliveryHints
	case !slices.Contains(allocate.Deliveries(), delivery):
		return nil, "", "", command.UsageErrorf("--delivery %q is unknown; allowed are %s", delivery, joinNames(allocate.Deliveries()))
	}
	if at := slices.IndexFunc(chosen, func(a allocate.Algorithm) bool { return !delivery.CanCarry(a) }); at >= 0 {
		return nil, "", "", command.UsageErrorf("--algorithm %s needs --delivery %s: %s cannot carry its weights", chosen[at], allocate.DeliveryGroups, delivery)
	}
	if !slices.Contains(f.names, "all") {
		return chosen, delivery, "", nil
	}
	left := slices.DeleteFunc(slices.Clone(known), delivery.CanCarry)
	if len(left) > 0 {
		note = fmt.Sprintf("left out %s: %s cannot carry weights; see --delivery %s", joinNames(left), delivery, allocate.DeliveryGroups)
	}
	return slices.DeleteFunc(slices.Clone(known), func(a allocate.Algorithm) bool { return !delivery.CanCarry(a) }), delivery, note, nil
}

func joinNames[T ~string](names []T) string {
	var s []string
	for _, name := range names {
		s = append(s, string(name))
	}
	return strings.Join(s, ", ")
}
