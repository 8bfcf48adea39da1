package proxy

import (
	"context"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
)

// The loopback address is one that every machine has.
func TestInterfacesAreFollowed(t *testing.T) {
	told := make(chan []netip.Addr, 100)
	background(t, func(ctx context.Context) {
		followInterfaces(ctx, logr.Discard(), func(all []netip.Addr) { told <- all })
	})
	all := <-told
	found := false
	for _, address := range all {
		found = found || address.IsLoopback()
	}
	if !found {
		t.Errorf("addresses %v", all)
	}
}
