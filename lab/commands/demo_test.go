package commands

import (
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/load"
)

// The demo fails if traffic does not stay in its zone.
func TestDemoWithoutEffect(t *testing.T) {
	flow := func(to string, answers int64) load.Flow {
		return load.Flow{Zone: "a", Node: "a-1", To: load.Endpoint{Zone: to}, Answers: answers}
	}
	for says, result := range map[string]load.Result{
		"": {Answered: 10, Flows: []load.Flow{flow("a", 10)}},
		"0 requests failed and 50 % of the answers came from the client's zone": {Answered: 10, Flows: []load.Flow{flow("a", 5), flow("b", 5)}},
		"1 request failed and 100 % of the answers came from the client's zone": {
			Answered: 10, Flows: []load.Flow{flow("a", 10)}, Failures: []load.FailureCount{{From: "a", Kind: load.Refused, Count: 1}},
		},
	} {
		if err := (measurement{result: result}).wrong(); (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
