package cluster

import (
	"testing"

	"k8s.io/utils/clock"
)

// A change is reported before it can be taken: one that was programmed already would count as
// waiting until something else changes.
func TestChangesAreToldBeforeTheyAreTaken(t *testing.T) {
	told, taken := false, false
	var c *Catalogue
	c = NewCatalogue(clock.RealClock{}, func() {
		if c.mu.TryLock() {
			taken = true
			c.mu.Unlock()
		}
		told = true
	})
	c.Fill(func() { c.SetService(aService("web", "10.96.0.1")) })
	if !told || taken {
		t.Errorf("told: %t, could be taken before: %t", told, taken)
	}
}
