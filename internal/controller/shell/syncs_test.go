package shell

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestSyncsThatHang(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	syncs := NewSyncs(now)
	alive := func(want bool) {
		t.Helper()
		if err := syncs.Alive(nil); (err == nil) != want {
			t.Errorf("alive: %v, want %t", err, want)
		}
	}
	alive(true)
	first := syncs.Begin("Service shop/web")
	now.SetTime(now.Now().Add(stuckAfter))
	second := syncs.Begin("Service shop/web")
	alive(true)
	now.SetTime(now.Now().Add(time.Second))
	alive(false)
	first()
	alive(true)
	now.SetTime(now.Now().Add(stuckAfter))
	alive(false)
	second()
	alive(true)
}
