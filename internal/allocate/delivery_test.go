package allocate_test

import (
	"encoding/json"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

func TestDeliveryIsWrittenAsInTheAPI(t *testing.T) {
	got, err := json.Marshal([]allocate.Delivery{allocate.DeliveryNone, allocate.DeliveryHints, allocate.DeliveryGroups, ""})
	if want := `["None","Hints","Groups",""]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestDeliveriesCanCarry(t *testing.T) {
	for _, a := range allocate.Algorithms() {
		if !allocate.DeliveryGroups.CanCarry(a) || allocate.DeliveryHints.CanCarry(a) == a.Weighted() {
			t.Errorf("%s: by groups %t, by hints %t, weighted %t", a, allocate.DeliveryGroups.CanCarry(a), allocate.DeliveryHints.CanCarry(a), a.Weighted())
		}
	}
}
