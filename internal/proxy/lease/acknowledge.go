package lease

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// Acknowledgement reports the programmed groups of Services in hand-over.
type Acknowledgement struct {
	// Version is the resource version up to which groups are programmed, 0 for none.
	Version uint64
	// Except names, in order, the Services that Version does not cover: their groups are not programmed yet, and block
	// no others. The name v1alpha1.AllServices stands for all Services of a namespace.
	Except []types.NamespacedName
	// Failure is why a probe of the node failed. Then nothing is acknowledged.
	Failure string
	// Ready means that the kernel has all that was listed at the start, except for refused ports, and that the probe
	// allows acknowledgements.
	Ready bool
}

func (a Acknowledgement) equal(b Acknowledgement) bool {
	return a.Version == b.Version && a.Failure == b.Failure && a.Ready == b.Ready && slices.Equal(a.Except, b.Except)
}

// annotations returns the annotations of the Lease. Empty ones are removed.
func (a Acknowledgement) annotations() map[string]string {
	all := map[string]string{v1alpha1.AnnotationProgrammed: "", v1alpha1.AnnotationExcept: "", v1alpha1.AnnotationProbeFailure: a.Failure}
	if a.Version == 0 {
		return all
	}
	names := make([]string, len(a.Except))
	for i, name := range a.Except {
		names[i] = name.String()
	}
	all[v1alpha1.AnnotationProgrammed] = strconv.FormatUint(a.Version, 10)
	all[v1alpha1.AnnotationExcept] = strings.Join(names, ",")
	return all
}

// mostExcept bounds the excepted Services. If there are more, whole namespaces are excepted. If there are too many
// namespaces, later versions wait.
const mostExcept = 50

// Acknowledgements tracks up to which resource version the groups of Services in hand-over are programmed. A version
// acknowledges all lower ones, so it never passes a waiting version, except for the excepted Services.
type Acknowledgements struct {
	Acknowledgement
	// waiting are versions that are not programmed yet.
	waiting map[types.NamespacedName][]uint64
	// ahead has programmed versions that are higher than a waiting one.
	ahead map[types.NamespacedName]uint64
}

// NewAcknowledgements returns the Acknowledgements of a proxy that has programmed nothing.
func NewAcknowledgements() *Acknowledgements {
	return &Acknowledgements{waiting: map[types.NamespacedName][]uint64{}, ahead: map[types.NamespacedName]uint64{}}
}

// Wait adds versions of a Service's groups that are not programmed yet.
func (a *Acknowledgements) Wait(service types.NamespacedName, versions []uint64) {
	if len(versions) == 0 {
		return
	}
	// Only the lowest and the highest waiting version count.
	all := slices.Concat(a.waiting[service], versions)
	a.waiting[service] = []uint64{slices.Min(all), slices.Max(all)}
}

// Settle acknowledges the Services that are programmed.
func (a *Acknowledgements) Settle(programmed func(types.NamespacedName) bool) {
	done := map[types.NamespacedName][]uint64{}
	for service, versions := range a.waiting {
		if programmed(service) {
			done[service] = versions
			delete(a.waiting, service)
		}
	}
	if len(a.waiting) == 0 {
		a.waiting = map[types.NamespacedName][]uint64{} // frees the memory of a large map
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

// setExcept excepts the longest waiting Services, or the namespaces with the most waiting Services. It returns the lowest
// version that another Service waits for, 0 for none.
func (a *Acknowledgements) setExcept() (least uint64) {
	perNamespace := map[string]int{}
	for service := range a.waiting {
		perNamespace[service.Namespace]++
	}
	largest := slices.SortedFunc(maps.Keys(perNamespace), func(x, y string) int {
		return cmp.Or(cmp.Compare(perNamespace[y], perNamespace[x]), cmp.Compare(x, y))
	})
	whole := map[string]bool{}
	for names, i := len(a.waiting), 0; names > mostExcept && i < len(largest) && perNamespace[largest[i]] > 1; i++ {
		whole[largest[i]] = true
		names -= perNamespace[largest[i]] - 1
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
