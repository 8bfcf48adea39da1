// Command vicinity-dns is CoreDNS with the plugin vicinity, which answers for headless Services with endpoints near the client. It
// has the flags and the Corefile of CoreDNS.
package main

import (
	"fmt"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	"vicinity.dev/vicinity/internal/kit/version"
	"vicinity.dev/vicinity/internal/names/corefile"
	_ "vicinity.dev/vicinity/internal/names/coreplugins"
	_ "vicinity.dev/vicinity/plugin/vicinity"
)

func main() {
	if err := dnsserver.SetDirectives(corefile.Plugins); err != nil {
		fmt.Fprintln(os.Stderr, "vicinity-dns: "+err.Error())
		os.Exit(1)
	}
	// CoreDNS prints this beside its own version.
	coremain.GitCommit = "vicinity-dns " + version.Read().Version
	coremain.Run()
}
