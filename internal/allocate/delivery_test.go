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

// What is written of a delivery is read as the same, and nothing else is.
func TestDeliveryIsReadAsWritten(t *testing.T) {
	for delivery, text := range map[allocate.Delivery]string{"": `""`, allocate.DeliveryNone: `"None"`, allocate.DeliveryHints: `"Hints"`, allocate.DeliveryGroups: `"Groups"`} {
		written, err := json.Marshal(delivery)
		if err != nil || string(written) != text {
			t.Errorf("%q is written %s, want %s: %v", delivery, written, text, err)
		}
		read := allocate.Delivery("other")
		if err := json.Unmarshal(written, &read); err != nil || read != delivery {
			t.Errorf("%s is read as %q: %v", written, read, err)
		}
	}
	for _, text := range []string{`"hints"`, `"Both"`} {
		var read allocate.Delivery
		if err := json.Unmarshal([]byte(text), &read); err == nil {
			t.Errorf("%s is read as %q", text, read)
		}
	}
}
