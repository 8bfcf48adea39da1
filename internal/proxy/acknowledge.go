package proxy

import (
	"k8s.io/apimachinery/pkg/types"
)

// acknowledgements know up to which resource version the groups of Services in hand-over
// are programmed. The controller takes a version for all that are lower: so it never
// passes one that is still to be programmed.
type acknowledgements struct {
	// waiting are the versions to be programmed.
	waiting map[types.NamespacedName][]uint64
	// ahead are the highest programmed ones of Services, behind one that waits.
	ahead map[types.NamespacedName]uint64
	// version is the one to tell, 0 if there is none.
	version uint64
}

func newAcknowledgements() *acknowledgements {
	return &acknowledgements{waiting: map[types.NamespacedName][]uint64{}, ahead: map[types.NamespacedName]uint64{}}
}

// wait notes versions of groups of a Service that are not programmed yet.
func (a *acknowledgements) wait(service types.NamespacedName, versions []uint64) {
	if len(versions) > 0 {
		a.waiting[service] = append(a.waiting[service], versions...)
	}
}

// settle finds the version to tell when all is programmed of those Services that a
// condition holds for.
func (a *acknowledgements) settle(programmed func(types.NamespacedName) bool) {
	var least uint64
	done := map[types.NamespacedName][]uint64{}
	for service, versions := range a.waiting {
		if programmed(service) {
			done[service] = versions
			delete(a.waiting, service)
			continue
		}
		for _, version := range versions {
			if least == 0 || version < least {
				least = version
			}
		}
	}
	passes := func(version uint64) bool { return least == 0 || version < least }
	for service, versions := range done {
		for _, version := range versions {
			if passes(version) {
				a.version = max(a.version, version)
			} else {
				a.ahead[service] = max(a.ahead[service], version)
			}
		}
	}
	for service, version := range a.ahead {
		if passes(version) {
			a.version = max(a.version, version)
			delete(a.ahead, service)
		}
	}
}
