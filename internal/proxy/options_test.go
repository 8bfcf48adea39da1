package proxy

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// The API server is known by its address, and not by a name.
func TestAddressOfTheAPIServer(t *testing.T) {
	for host, want := range map[string]string{
		"https://198.51.100.6:6443": "198.51.100.6\n", "198.51.100.6": "198.51.100.6\n", "https://[2001:db8::6]:443/path": "2001:db8::6\n",
		"https://api.example.com": "", "://": "",
	} {
		o := Options{API: &rest.Config{Host: host}, Log: logr.Discard()}
		if got := o.settings().APIServer.String(); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
