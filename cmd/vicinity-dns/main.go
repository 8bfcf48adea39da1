// Command vicinity-dns is CoreDNS with the plugin vicinity, which answers for headless
// Services with what is near the client. It takes the flags and the Corefile of CoreDNS.
package main

import (
	"fmt"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	"vicinity.dev/vicinity/internal/kit/version"
)

func main() {
	if err := dnsserver.SetDirectives(directives); err != nil {
		fmt.Fprintln(os.Stderr, "vicinity-dns: "+err.Error())
		os.Exit(1)
	}
	// The version that is printed is that of CoreDNS.
	coremain.GitCommit = "vicinity-dns " + version.Read().Version
	coremain.Run()
}
