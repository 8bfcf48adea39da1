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
	// Except are Services that it says nothing about, in order: their groups cannot be
	// programmed, as far as is known, and hold up nobody else's. The name
	// v1alpha1.AllServices is all of a namespace.
	Except []types.NamespacedName
	// Failure says why a probe of the node failed, for which nothing is acknowledged. It is
	// empty if none did.
	Failure string
}

func (a Acknowledgement) equal(b Acknowledgement) bool {
	return a.Version == b.Version && a.Failure == b.Failure && slices.Equal(a.Except, b.Except)
}

// mostExcept is how many Services are told to be behind. If there are more, namespaces are
// told instead, and if those are more the rules as a whole are behind.
const mostExcept = 50

// Acknowledgements know up to which resource version the groups of Services in hand-over
// are programmed. The controller takes a version for all that are lower: so it never
// passes one that is still to be programmed, but for those of Services that are told.
type Acknowledgements struct {
	Acknowledgement
	// waiting are the versions to be programmed.
	waiting map[types.NamespacedName][]uint64
	// ahead are the highest programmed ones of Services, behind one that waits.
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
	// Of what waits already the first counts, and the last.
	all := slices.Concat(a.waiting[service], versions)
	a.waiting[service] = []uint64{slices.Min(all), slices.Max(all)}
}

// Settle finds the version to tell when all is programmed of those Services that a
// condition holds for.
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

// setExcept picks the Services to be told of those that wait, or namespaces instead of most
// Services, the first that began to wait, and returns the least version that the others wait
// for, 0 if there are none.
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
