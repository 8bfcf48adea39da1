package shell

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object parses name/uid/version.
func object(text string) *corev1.ConfigMap {
	parts := strings.Split(text, "/")
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: parts[0], UID: types.UID(parts[1]), ResourceVersion: parts[2]}}
}

func objects(texts string) []*corev1.ConfigMap {
	var list []*corev1.ConfigMap
	for text := range strings.FieldsSeq(texts) {
		list = append(list, object(text))
	}
	return list
}

func texts(list []*corev1.ConfigMap) string {
	var all []string
	for _, o := range list {
		all = append(all, fmt.Sprintf("%s/%s/%s", o.Name, o.UID, o.ResourceVersion))
	}
	return strings.Join(all, " ")
}

func TestOverlay(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, test := range []struct {
		name                    string
		wrote, deleted, forgets string
		cached, want            string
		after                   time.Duration
		pending                 bool
	}{
		{name: "nothing", cached: "b/2/9 a/1/8", want: "a/1/8 b/2/9"},
		{name: "created and not shown", wrote: "b/2/9", cached: "a/1/8 c/3/7", want: "a/1/8 b/2/9 c/3/7", pending: true},
		{name: "created and shown", wrote: "b/2/9", cached: "b/2/9", want: "b/2/9"},
		{name: "updated and not shown", wrote: "b/2/10", cached: "b/2/9", want: "b/2/10", pending: true},
		{name: "updated and changed since", wrote: "b/2/9", cached: "b/2/10", want: "b/2/10"},
		{name: "created again by another program", wrote: "b/2/10", cached: "b/3/9", want: "b/3/9"},
		{name: "deleted and shown", deleted: "b/2/9", cached: "a/1/8 b/2/9", want: "a/1/8", pending: true},
		{name: "deleted and not shown", deleted: "b/2/9", cached: "a/1/8", want: "a/1/8"},
		{name: "deleted, and another of its name", deleted: "b/2/9", cached: "b/3/10", want: "b/3/10"},
		{name: "created and deleted", wrote: "b/2/9", deleted: "b/2/9", want: ""},
		{name: "a write that failed", wrote: "b/2/10", forgets: "b/2/10", cached: "b/2/9", want: "b/2/9"},
		{name: "never shown, but for long", wrote: "b/2/10", deleted: "c/3/9", cached: "b/2/8 c/3/8", after: TrustFor, want: "b/2/8 c/3/8"},
		{name: "not shown yet", wrote: "b/2/10", cached: "b/2/8", after: TrustFor - 1, want: "b/2/10", pending: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o Overlay[*corev1.ConfigMap]
			for _, written := range objects(test.wrote) {
				o.Wrote(written, begin)
			}
			for _, deleted := range objects(test.deleted) {
				o.Deleted(deleted, begin)
			}
			for _, failed := range objects(test.forgets) {
				o.Forget(failed)
			}
			now, cached := begin.Add(test.after), objects(test.cached)
			before := slices.Clone(cached)
			// A reading changes nothing.
			for range 2 {
				if got := texts(o.Current(cached, now)); got != test.want {
					t.Errorf("current are %s, want %s", got, test.want)
				}
			}
			if !slices.Equal(cached, before) {
				t.Error("the list of the cache was changed")
			}
			if left := o.Left(now); o.Pending() != test.pending || (left > 0) != test.pending {
				t.Errorf("pending is %t, for %s; want %t", o.Pending(), left, test.pending)
			}
		})
	}
}

func TestWritten(t *testing.T) {
	now := time.Unix(1000, 0)
	var w Written
	if w.Pending(object("a/1/8"), now) {
		t.Error("nothing was written")
	}
	w.Note(object("a/1/10"), now)
	for version, want := range map[string]bool{"9": true, "10": false, "11": false, "other": false} {
		if got := w.Pending(object("a/1/"+version), now); got != want {
			t.Errorf("version %s: pending is %t", version, got)
		}
	}
	if now = now.Add(TrustFor); w.Pending(object("a/1/9"), now) {
		t.Error("a write counts for longer than a cache can be behind")
	}
}
