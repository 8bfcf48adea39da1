package lease

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// Acknowledgement says what is programmed of the groups of Services in hand-over.
type Acknowledgement struct {
	// Version is the resource version up to which groups are programmed, 0 if none is.
	Version uint64
	// Except are Services that it says nothing about, sorted: their groups are not programmed, and hold up no
	// others. The name v1alpha1.AllServices stands for all of a namespace.
	Except []types.NamespacedName
	// Failure says why a probe of the node failed, for which nothing is acknowledged.
	Failure string
}

func (a Acknowledgement) equal(b Acknowledgement) bool {
	return a.Version == b.Version && a.Failure == b.Failure && slices.Equal(a.Except, b.Except)
}

// mostExcept bounds the excepted Services. If there are more, whole namespaces are excepted, and if those are
// too many, later versions wait.
const mostExcept = 50

// Acknowledgements know up to which resource version the groups of Services in hand-over are programmed. The
// controller takes a version for all lower ones, so it never passes a version that waits, except of the Services
// that are named.
type Acknowledgements struct {
	Acknowledgement
	// waiting are versions that are not programmed yet.
	waiting map[types.NamespacedName][]uint64
	// ahead are programmed versions of Services that are behind a waiting one.
	ahead map[types.NamespacedName]uint64
}

// NewAcknowledgements are those of a proxy that has programmed nothing.
func NewAcknowledgements() *Acknowledgements {
	return &Acknowledgements{waiting: map[types.NamespacedName][]uint64{}, ahead: map[types.NamespacedName]uint64{}}
}

// Wait notes versions of groups of a Service that are not programmed yet.
func (a *Acknowledgements) Wait(service types.NamespacedName, versions []uint64) {
	if len(versions) == 0 {
		return
	}
	// Of waiting versions the first and the last count.
	all := slices.Concat(a.waiting[service], versions)
	a.waiting[service] = []uint64{slices.Min(all), slices.Max(all)}
}

// Settle moves on when some Services are programmed.
func (a *Acknowledgements) Settle(programmed func(types.NamespacedName) bool) {
	done := map[types.NamespacedName][]uint64{}
	for service, versions := range a.waiting {
		if programmed(service) {
			done[service] = versions
			delete(a.waiting, service)
		}
	}
	if len(a.waiting) == 0 {
		a.waiting = map[types.NamespacedName][]uint64{} // not as large as it once was
	}
	least := a.setExcept()
	passes := func(version uint64) bool { return least == 0 || version < least }
	for service, versions := range done {
		for _, version := range versions {
			if passes(version) {
				a.Version = max(a.Version, version)
			} else {
				a.ahead[service] = max(a.ahead[service], version)
			}
		}
	}
	for service, version := range a.ahead {
		if passes(version) {
			a.Version = max(a.Version, version)
			delete(a.ahead, service)
		}
	}
	if len(a.ahead) == 0 {
		a.ahead = map[types.NamespacedName]uint64{}
	}
}

// setExcept names waiting Services, or the namespaces with the most of them, those that wait longest first. It
// returns the least version that any other waits for, 0 if none does.
func (a *Acknowledgements) setExcept() (least uint64) {
	perNamespace := map[string]int{}
	for service := range a.waiting {
		perNamespace[service.Namespace]++
	}
	largest := slices.SortedFunc(maps.Keys(perNamespace), func(x, y string) int {
		return cmp.Or(cmp.Compare(perNamespace[y], perNamespace[x]), cmp.Compare(x, y))
	})
	whole := map[string]bool{}
	for told, i := len(a.waiting), 0; told > mostExcept && i < len(largest) && perNamespace[largest[i]] > 1; i++ {
		whole[largest[i]] = true
		told -= perNamespace[largest[i]] - 1
	}
	since := map[types.NamespacedName]uint64{}
	for name, versions := range a.waiting {
		if whole[name.Namespace] {
			name.Name = v1alpha1.AllServices
		}
		if began, some := since[name]; !some || slices.Min(versions) < began {
			since[name] = slices.Min(versions)
		}
	}
	waiting := slices.SortedFunc(maps.Keys(since), func(x, y types.NamespacedName) int {
		return cmp.Or(cmp.Compare(since[x], since[y]), cluster.CompareNames(x, y))
	})
	if len(waiting) > mostExcept {
		least = since[waiting[mostExcept]]
		waiting = waiting[:mostExcept]
	}
	slices.SortFunc(waiting, cluster.CompareNames)
	a.Except = waiting
	return least
}
