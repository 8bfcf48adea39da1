package inspect

import (
	"maps"
	"net/netip"
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/locate"
	"vicinity.dev/vicinity/internal/location"
)

// clientPlace is where the server finds an address.
type clientPlace struct {
	locate.Location
	// holders are the PodLocators that locate the address, and youngest those of them that count. Both are
	// empty if the address is a node's own.
	holders, youngest []addressHolder
	// disputed says that the location depends on which of the youngest the server learned of last.
	disputed bool
}

// addressHolder is a PodLocator that locates an address.
type addressHolder struct {
	name string
	locate.Pod
}

// placeOf finds an address. A disputed one has no node and no labels.
func placeOf(index *locate.Index, locators []*v1alpha1.PodLocator, address netip.Addr) clientPlace {
	address = address.Unmap().WithZone("")
	at, _ := index.Lookup(address)
	p := clientPlace{Location: at}
	if at.Source != locate.PodLocator {
		return p
	}
	for _, locator := range locators {
		pod := location.OfPod(locator)
		if slices.Contains(pod.IPs, address) && (pod.Node != "" || len(pod.Labels) > 0) {
			p.holders = append(p.holders, addressHolder{locator.Namespace + "/" + locator.Name, pod})
		}
	}
	latest := slices.MaxFunc(p.holders, func(a, b addressHolder) int { return a.Created.Compare(b.Created) })
	for _, h := range p.holders {
		if h.Created.Unix() == latest.Created.Unix() {
			p.youngest = append(p.youngest, h)
			p.disputed = p.disputed || h.Node != latest.Node || !maps.Equal(h.Labels, latest.Labels)
		}
	}
	if p.disputed {
		p.Location = locate.Location{Source: at.Source}
	}
	return p
}

func namesOf(holders []addressHolder) []string {
	var all []string
	for _, h := range holders {
		all = append(all, h.name)
	}
	return all
}
