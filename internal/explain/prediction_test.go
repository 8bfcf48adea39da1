package explain

import (
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

func TestPrediction(t *testing.T) {
	region := allocate.Region{Zones: []allocate.Zone{{Name: "a", Capacity: 1, Endpoints: 2}, {Name: "b", Capacity: 1}}}
	for _, test := range []struct {
		region  allocate.Region
		figures allocate.Figures
		want    string
	}{
		{region, allocate.Figures{InZone: 1}, "100 % of the traffic stays in its zone, no endpoint gets more than its even share"},
		{
			region,
			allocate.Figures{InZone: 0.5, Overload: 1.0 / 3},
			"50 % of the traffic stays in its zone, the busiest endpoint gets 33.3 % more than its even share",
		},
		{
			region,
			allocate.Figures{InZone: 0.5, Unreached: 1},
			"50 % of the traffic stays in its zone, no endpoint gets more than its even share, 1 zone reaches nothing",
		},
		{region, allocate.Figures{Unreached: 2}, "0 % of the traffic stays in its zone, no endpoint gets more than its even share, 2 zones reach nothing"},
		{allocate.Region{Zones: []allocate.Zone{{Name: "a", Endpoints: 2}}}, allocate.Figures{}, "unknown, since no zone has capacity"},
		{allocate.Region{Zones: []allocate.Zone{{Name: "a", Capacity: 2}}}, allocate.Figures{}, "nothing, since no endpoint is ready"},
	} {
		if got := Prediction(test.region, test.figures); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
