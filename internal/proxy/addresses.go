package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
)

func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of interfaces: %w", err)
	}
	all := make([]netip.Addr, 0, len(found))
	for _, one := range found {
		if prefix, ok := one.(*net.IPNet); ok {
			if address, ok := netip.AddrFromSlice(prefix.IP); ok {
				all = append(all, address.Unmap())
			}
		}
	}
	return all, nil
}

// lookEvery is the time between two looks at the node's interfaces.
const lookEvery = 5 * time.Second

// followInterfaces passes on the node's addresses periodically, until the context ends.
func followInterfaces(ctx context.Context, log logr.Logger, use func([]netip.Addr)) {
	for {
		if all, err := interfaceAddresses(); err == nil {
			use(all)
		} else {
			log.Error(err, "Cannot read the addresses of the node's interfaces")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}
