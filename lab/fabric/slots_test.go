package fabric

import "testing"

func TestSlots(t *testing.T) {
	var s Slots
	s.Hold(2)
	first, err := s.Take()
	if err != nil || first != 3 {
		t.Fatalf("got %d, %v", first, err)
	}
	s.Free(first)
	if next, err := s.Take(); err != nil || next == first {
		t.Errorf("%d came again at once, %v", next, err)
	}
	taken := 2
	for ; ; taken++ {
		if _, err := s.Take(); err != nil {
			break
		}
	}
	if taken != lastSlot-firstSlot+1 {
		t.Errorf("%d were to be had", taken)
	}
}
