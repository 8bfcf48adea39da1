package ruleset

import (
	"net/netip"
	"slices"
)

// arrange puts the sorted wanted targets into slots so that as few slots as possible change. It changes neither argument,
// and may return one of them.
func arrange(before, wanted []netip.AddrPort) []netip.AddrPort {
	if len(before) == 0 || len(wanted) == 0 {
		return wanted
	}
	arranged := make([]netip.AddrPort, len(wanted))
	// taken counts the placed copies of a target, at the index of its first copy in wanted.
	taken := make([]int32, len(wanted))
	kept := 0
	for slot, target := range before[:min(len(before), len(wanted))] {
		run, found := slices.BinarySearchFunc(wanted, target, netip.AddrPort.Compare)
		if !found {
			continue
		}
		if next := run + int(taken[run]); next < len(wanted) && wanted[next] == target {
			taken[run]++
			arranged[slot] = target
			kept++
		}
	}
	if kept == len(wanted) && len(before) == len(wanted) {
		return before
	}
	slot := 0
	for run := 0; run < len(wanted); {
		end := run + 1
		for end < len(wanted) && wanted[end] == wanted[run] {
			end++
		}
		for range end - run - int(taken[run]) {
			for arranged[slot].IsValid() {
				slot++
			}
			arranged[slot] = wanted[run]
		}
		run = end
	}
	return arranged
}

// arrange arranges the wanted targets of each class in the slots of the class.
func (s shape) arrange(before, wanted []netip.AddrPort) []netip.AddrPort {
	if len(s) < 2 {
		return arrange(before, wanted)
	}
	arranged := make([]netip.AddrPort, 0, len(wanted))
	for _, c := range s {
		begin := len(arranged)
		end := begin + int(c.count)
		had := before[min(begin, len(before)):min(end, len(before))]
		arranged = append(arranged, arrange(had, wanted[begin:end])...)
	}
	if slices.Equal(arranged, before) {
		return before
	}
	return arranged
}

// sorted sorts the targets of each class, as before arrange.
func (s shape) sorted(targets []netip.AddrPort) []netip.AddrPort {
	sorted := slices.Clone(targets)
	begin := 0
	for _, c := range s {
		end := begin + int(c.count)
		slices.SortFunc(sorted[begin:end], netip.AddrPort.Compare)
		begin = end
	}
	return sorted
}

// subtract returns the targets that are only in the first list, sorted, each once.
func subtract(some, others []netip.AddrPort) []netip.AddrPort {
	if slices.Equal(some, others) {
		return nil
	}
	rest := distinct(others)
	var only []netip.AddrPort
	for _, target := range some {
		if _, found := slices.BinarySearchFunc(rest, target, netip.AddrPort.Compare); !found {
			only = append(only, target)
		}
	}
	return distinct(only)
}

func contains(targets []netip.AddrPort, target netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(targets, target, netip.AddrPort.Compare)
	return found
}

func distinct(targets ...[]netip.AddrPort) []netip.AddrPort {
	all := slices.Concat(targets...)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
