package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// dropsUnallocated connects to an unused address of each range of cluster IPs, and to an address
// beside the range. Both answer outside the nodes, so that the first is unreachable only because
// the nodes drop it.
func (s *scene) dropsUnallocated(ctx context.Context) (string, error) {
	taken := map[netip.Addr]bool{}
	services, err := s.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range services.Items {
		for _, text := range services.Items[i].Spec.ClusterIPs {
			if address, err := netip.ParseAddr(text); err == nil {
				taken[address] = true
			}
		}
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return "", err
	}
	if len(list.Items) == 0 {
		return "", errors.New("no client exists")
	}
	cluster := s.cluster.Shape()
	clients := []string{shape.PodNamespace(cluster.Name, string(list.Items[0].UID)), shape.NodeNamespace(cluster.Name, cluster.Nodes()[0].Index)}
	for _, services := range cluster.ServiceCIDRs() {
		unallocated := lastOf(services)
		for taken[unallocated] {
			unallocated = unallocated.Prev()
		}
		if err := dropsOnly(ctx, cluster.Name, clients, unallocated, lastOf(services).Next()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("addresses that no Service has are dropped, tried from %d clients over %d families", len(clients), len(cluster.ServiceCIDRs())), nil
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// dropsOnly makes two addresses answer on the fabric. It returns an error unless the clients,
// network namespaces of a lab, reach the second and get no answer from the first.
func dropsOnly(ctx context.Context, name string, clients []string, dropped, reached netip.Addr) (err error) {
	outside := shape.FabricNamespace(name)
	var there []netip.AddrPort
	for _, address := range []netip.Addr{dropped, reached} {
		// Listening fails while duplicate address detection runs.
		own := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}, Flags: unix.IFA_F_NODAD}
		change := func(change func(netlink.Link, *netlink.Addr) error) error {
			return fabric.InNamespace(outside, func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				return change(lo, own)
			})
		}
		if err := change(netlink.AddrReplace); err != nil {
			return fmt.Errorf("giving the fabric the address %s: %w", address, err)
		}
		defer undo(&err, func() error { return change(netlink.AddrDel) })
		// The kernel completes connections without accept.
		listener, err := fabric.Listen(outside, "tcp", netip.AddrPortFrom(address, 0).String())
		if err != nil {
			return err
		}
		defer listener.Close()
		at, err := netip.ParseAddrPort(listener.Addr().String())
		if err != nil {
			return err
		}
		there = append(there, at)
	}
	for _, client := range clients {
		err := connects(ctx, client, there[0], silenceWait)
		if err == nil {
			return fmt.Errorf("network namespace %s reaches %s, which no Service has", client, there[0])
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("an address that no Service has should give no answer: %w", err)
		}
		if err := connects(ctx, client, there[1], answerWait); err != nil {
			return fmt.Errorf("an address beside the range of cluster IPs should be reached: %w", err)
		}
	}
	return nil
}

// connects makes one TCP connection.
func connects(ctx context.Context, namespace string, to netip.AddrPort, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := fabric.Dial(ctx, namespace, "tcp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
