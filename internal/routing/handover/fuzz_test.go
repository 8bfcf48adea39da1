package handover

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Anyone with the credentials of a node can write its proxy's Lease. Only a valid resource version that is not older than
// the group's makes the proxy ready, and not for excepted Services.
func FuzzReady(f *testing.F) {
	for _, words := range []string{"7", "8", "07", "-1", "", "9999999999999999999999999", "1e3", " 7"} {
		f.Add(words, "", "")
		f.Add(words, "shop/web", "a")
		f.Add(words, "other/x,shop/*", "")
		f.Add(words, ",,*,/", "b")
	}
	f.Fuzz(func(t *testing.T, programmed, except, zone string) {
		now := time.Unix(1_000_000, 0)
		begun := []GroupVersion{{Name: "g", Version: "7", NotFor: []string{"b"}}}
		p := NodeProxy{Node: "n", Zone: zone, Seen: now, Programmed: programmed, Except: except}
		ready := p.Ready("shop/web", begun, now)
		order, err := resourceversion.CompareResourceVersion(programmed, "7")
		switch {
		case zone == "b": // whose nodes do not see the group
			if !ready {
				t.Fatal("it waits for what the node does not see")
			}
		case ready && (err != nil || order < 0 || programmed == ""):
			t.Fatalf("%q is ready for version 7", programmed)
		case ready && (","+except+",") != strings.ReplaceAll(","+except+",", ",shop/web,", ""):
			t.Fatalf("it is ready in spite of %q", except)
		}
		p.Seen = now.Add(-v1alpha1.LeaseFresh)
		if p.Ready("shop/web", begun, now) {
			t.Fatal("it is ready although it is silent")
		}
	})
}
