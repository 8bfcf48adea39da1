package cluster

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// The client library has all objects sent by a watch unless a source says that it cannot.
func TestObjectsAreListed(t *testing.T) {
	c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for what, source := range map[string]cache.ListerWatcher{
		ResourceServices: c.Services(), ResourceSlices: c.Slices(), ResourceGroups: c.Groups("!a"),
		"groups that may be absent": &optional{ListerWatcher: c.Groups("!a")},
	} {
		if !watchlist.DoesClientNotSupportWatchListSemantics(source) {
			t.Errorf("%s come by the watch", what)
		}
		if _, ok := source.(cache.ListerWatcherWithContext); !ok {
			t.Errorf("requests for %s do not end with their context", what)
		}
	}
}
