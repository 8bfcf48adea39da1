package fabric

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
)

// Packets to a node wait in one of three bands at the fabric's end of its link. The rules
// choose the band by the two zones; the first band has no delay.
const (
	latencyMajor = 1
	zoneBand     = 2
	regionBand   = 3
	bands        = 3
	// maxDelayed is how many packets may wait at once: 10 ms at 10 Gbit/s.
	maxDelayed = 10000
)

const noNetem = "no latency between zones: this kernel has no netem, so traffic between zones is as fast as within one"

// prepareLatency checks that the kernel can delay packets. If not, it turns latency off
// with a note.
func (f *Fabric) prepareLatency() error {
	if !f.hasLatency() {
		return nil
	}
	err := process.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return withHandle(func(handle *netlink.Handle) error {
			lo, err := handle.LinkByName("lo")
			if err != nil {
				return err
			}
			return f.addLatency(handle, lo)
		})
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		f.shape.CrossZoneLatency, f.shape.CrossRegionLatency = shape.Duration{}, shape.Duration{}
		f.notes = append(f.notes, noNetem)
		return nil
	}
	if err != nil {
		return fmt.Errorf("preparing latency between zones: %w", withRemedy(err))
	}
	return nil
}

func (f *Fabric) hasLatency() bool {
	return f.shape.CrossZoneLatency.Duration > 0 || f.shape.CrossRegionLatency.Duration > 0
}

// regionLatency is the latency between regions, by default that between zones.
func (f *Fabric) regionLatency() time.Duration {
	if f.shape.CrossRegionLatency.Duration == 0 {
		return f.shape.CrossZoneLatency.Duration
	}
	return f.shape.CrossRegionLatency.Duration
}

func (f *Fabric) addLatency(handle *netlink.Handle, device netlink.Link) error {
	if !f.hasLatency() {
		return nil
	}
	root := netlink.NewPrio(netlink.QdiscAttrs{
		LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(latencyMajor, 0), Parent: netlink.HANDLE_ROOT,
	})
	root.Bands = bands
	root.PriorityMap = [16]uint8{}
	if err := handle.QdiscAdd(root); err != nil {
		return fmt.Errorf("dividing the packets of %s: %w", device.Attrs().Name, err)
	}
	for _, band := range []struct {
		number  uint16
		latency time.Duration
	}{{zoneBand, f.shape.CrossZoneLatency.Duration}, {regionBand, f.regionLatency()}} {
		if band.latency == 0 {
			continue
		}
		// The shape has the latency of a round trip, and this is one way.
		delay := netlink.NewNetem(netlink.QdiscAttrs{
			LinkIndex: device.Attrs().Index, Handle: netlink.MakeHandle(latencyMajor+band.number, 0),
			Parent: netlink.MakeHandle(latencyMajor, band.number),
		}, netlink.NetemQdiscAttrs{Latency: uint32(band.latency.Microseconds() / 2), Limit: maxDelayed})
		if err := handle.QdiscAdd(delay); err != nil {
			return fmt.Errorf("delaying the packets of %s: %w", device.Attrs().Name, err)
		}
	}
	return nil
}

// latencyElements map the pairs of a zone with all others to bands, in both directions.
func (f *Fabric) latencyElements(zone string) []nftables.SetElement {
	if !f.hasLatency() {
		return nil
	}
	var elements []nftables.SetElement
	eachZonePair(f.shape, func(from, to shape.Zone) {
		if from.Name == to.Name || from.Name != zone && to.Name != zone {
			return
		}
		band := uint32(zoneBand)
		if from.Region != to.Region {
			band = regionBand
		}
		elements = append(elements, nftables.SetElement{
			Key: pairKey(from.Name, to.Name),
			Val: binaryutil.NativeEndian.PutUint32(latencyMajor<<16 | band),
		})
	})
	return elements
}
