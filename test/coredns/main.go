// Command coredns is the peer of vicinity-dns in tests and benchmarks: CoreDNS at the same version,
// with the same plugins except ours, in the order of CoreDNS. The official program also has plugins of
// cloud providers, which do not handle other queries.
//
// It is in no release.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "vicinity.dev/vicinity/internal/names/coreplugins"
)

func main() { coremain.Run() }
