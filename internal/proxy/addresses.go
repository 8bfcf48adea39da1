package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

func interfaceAddresses() ([]netip.Addr, error) {
	found, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	all := make([]netip.Addr, 0, len(found))
	for i := range found {
		if address, ok := netip.AddrFromSlice(found[i].IP); ok {
			all = append(all, address.Unmap())
		}
	}
	return all, nil
}

// followInterfaces reads the addresses at once and whenever one comes or goes, until the
// context ends.
func followInterfaces(ctx context.Context, log logr.Logger, told func([]netip.Addr)) {
	for ctx.Err() == nil {
		if err := followOnce(ctx, told); err != nil {
			log.Error(err, "Addresses of the node's interfaces are not known")
		}
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

// followAgain is how long to wait when the kernel has ended a watch, because more happened
// than could be read.
const followAgain = time.Second

func followOnce(ctx context.Context, told func([]netip.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan netlink.AddrUpdate, 64)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("watching the addresses of interfaces: %w", err)
	}
	for {
		all, err := interfaceAddresses()
		if err != nil {
			return err
		}
		told(all)
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-updates:
			if !open {
				return nil
			}
		}
		for len(updates) > 0 {
			<-updates // those that came together are read together
		}
	}
}
