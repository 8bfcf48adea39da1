package main

import (
	"net/netip"
	"strings"
	"testing"
)

// The Corefiles differ in what only one of the servers knows, and in addresses.
func TestCorefiles(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:1053")
	s := &server{at: at, ready: at, metrics: at, pprof: at}
	for _, cache := range []bool{false, true} {
		theirs := contender{dns: coredns, cache: cache, pods: insecure}.corefile(s, "kubeconfig")
		ours := contender{dns: vicinity, cache: cache, pods: insecure}.corefile(s, "kubeconfig")
		block := "  vicinity cluster.local {\n    kubeconfig kubeconfig\n    startup_timeout 2m\n  }\n"
		if strings.Replace(ours, block, "", 1) != theirs || ours == theirs {
			t.Errorf("the Corefiles are\n%s\n%s", theirs, ours)
		}
		if strings.Contains(ours, "  cache 30\n") != cache {
			t.Errorf("with cache %s the Corefile is\n%s", yes(cache), ours)
		}
	}
}
