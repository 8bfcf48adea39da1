package routing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
)

// A reason reads back as it was written, without unknown words of other versions.
func TestReasonIsReadBack(t *testing.T) {
	for text, want := range map[string]string{
		"Allocated":                               "Allocated",
		"Allocated,NotInForce":                    "Allocated,NotInForce",
		"IPv4:Allocated,IPv6:Waiting":             "IPv4:Allocated,IPv6:Waiting",
		"Downgraded,HintsLost,NotWritten":         "Downgraded,HintsLost,NotWritten",
		"IPv4:Waiting,IPv6:Downgraded,NotWritten": "IPv4:Waiting,IPv6:Downgraded,NotWritten",
		"NotRouted":                               "NotRouted",
		"NotRouted,NotWritten":                    "NotRouted,NotWritten",
		"Allocated,Later,HintsLost":               "Allocated,HintsLost",
		"":                                        "NotRouted",
	} {
		if got := ReadReason(text).String(); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
	for _, unknown := range []string{"", "Allocate", "IPv6:Allocated", "IPv4:Sleeping", "allocated", ",:,"} {
		if state := ReadReason(unknown).State(corev1.IPv4Protocol); state != allocate.Waiting {
			t.Errorf("%q reads as %s", unknown, stateWords[state])
		}
	}
	if len(stateWords) != int(allocate.Downgraded-allocate.Waiting)+1 {
		t.Errorf("words %v do not tell all states", stateWords)
	}
}
