// Command vicinity-controller decides which endpoints the clients of each zone use, and writes that
// where proxies read it. It also serves admission webhooks.
package main

import "vicinity.dev/vicinity/internal/kit/daemon"

func main() { daemon.Main(newCommand()) }
