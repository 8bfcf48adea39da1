package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// linkSpec describes a link between two namespaces. The upper one routes for the lower one: the
// lower one's default route leads to it.
type linkSpec struct {
	upper, upperName string
	// upperIndex is the interface index of the upper end. If it is 0, the kernel chooses. If
	// both ends had the same index, the kernel would take up to a second to notice that the link
	// is up.
	upperIndex       int
	lower, lowerName string
	// upperAddrs are addresses of another device of the upper namespace. They serve as source
	// addresses. lowerAddrs are assigned to the lower end.
	upperAddrs, lowerAddrs []netip.Addr
}

func makeLink(spec linkSpec) error {
	err := withHandleIn(spec.upper, func(handle *netlink.Handle) error {
		lower, err := os.Open(shape.NamespacePath(spec.lower))
		if err != nil {
			return err
		}
		defer lower.Close()
		err = handle.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: spec.upperName, Index: spec.upperIndex, MTU: mtu, TxQLen: -1},
			PeerName:      spec.lowerName,
			PeerNamespace: netlink.NsFd(lower.Fd()),
		})
		if err != nil {
			return fmt.Errorf("making the link %s; %w", spec.upperName, withRemedy(err))
		}
		device, err := handle.LinkByName(spec.upperName)
		if err != nil {
			return err
		}
		if hasV6(spec.lowerAddrs) {
			if err := addAddr(handle, device, linkV6); err != nil {
				return err
			}
		}
		return handle.LinkSetUp(device)
	})
	if err != nil {
		return err
	}
	err = withHandleIn(spec.lower, func(handle *netlink.Handle) error {
		device, err := handle.LinkByName(spec.lowerName)
		if err != nil {
			return err
		}
		for _, addr := range spec.lowerAddrs {
			if err := addAddr(handle, device, hostPrefix(addr)); err != nil {
				return err
			}
		}
		if err := handle.LinkSetUp(device); err != nil {
			return err
		}
		for _, addr := range spec.lowerAddrs {
			via, everything := sameFamily(spec.upperAddrs, addr), netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if addr.Is6() {
				via, everything = uplinkV6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			if err := addRoute(handle, route{link: device, to: everything, via: via}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return withHandleIn(spec.upper, func(handle *netlink.Handle) error {
		device, err := handle.LinkByName(spec.upperName)
		if err != nil {
			return err
		}
		for _, addr := range spec.lowerAddrs {
			if err := addRoute(handle, route{link: device, to: hostPrefix(addr), from: sameFamily(spec.upperAddrs, addr)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// mtu is the MTU of most clouds' networks.
const mtu = 1500

func removeLink(handle *netlink.Handle, name string) error {
	device, err := handle.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	} else if err != nil {
		return err
	}
	if err := handle.LinkDel(device); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the link %s: %w", name, err)
	}
	return nil
}

func addAddr(handle *netlink.Handle, device netlink.Link, prefix netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		// Without duplicate address detection the address can be used at once.
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := handle.AddrReplace(device, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", device.Attrs().Name, prefix, err)
	}
	return nil
}

type route struct {
	link netlink.Link
	to   netip.Prefix
	// via is the next hop, if any. from is the source address. If it is missing, the kernel
	// chooses.
	via, from netip.Addr
}

func addRoute(handle *netlink.Handle, r route) error {
	made := &netlink.Route{LinkIndex: r.link.Attrs().Index, Dst: ipNet(r.to)}
	if r.via.IsValid() {
		made.Gw = r.via.AsSlice()
		// The next hop is on this link, and no other route leads to it.
		made.SetFlag(netlink.FLAG_ONLINK)
	} else {
		made.Scope = netlink.SCOPE_LINK
	}
	if r.from.IsValid() {
		made.Src = r.from.AsSlice()
	}
	if err := handle.RouteReplace(made); err != nil {
		return fmt.Errorf("making the route to %s by %s: %w", r.to, r.link.Attrs().Name, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   prefix.Addr().AsSlice(),
		Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}
}

func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// sameFamily returns the first address that has the family of another one.
func sameFamily(addrs []netip.Addr, other netip.Addr) netip.Addr {
	for _, addr := range addrs {
		if addr.Is4() == other.Is4() {
			return addr
		}
	}
	return netip.Addr{}
}

func hasV6(addrs []netip.Addr) bool { return sameFamily(addrs, netip.IPv6Unspecified()).IsValid() }
