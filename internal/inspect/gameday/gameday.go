// Package gameday judges a practice run: a domain leaves for a while, and the load of the endpoints outside is compared with the
// prediction. The command line makes the run and reads the cluster.
package gameday

import (
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Tolerance is the accepted difference between the measured and the predicted load, in points.
const Tolerance = 5

// Run is a practice run. Percentages are from 0 to 100.
type Run struct {
	Result  string                 `json:"result"`
	From    v1alpha1.ShiftedDomain `json:"from"`
	Reason  string                 `json:"reason"`
	Begun   metav1.Time            `json:"begun"`
	Seconds float64                `json:"seconds"`
	// Services should move, and Yields names Services that should yield.
	Services []Service `json:"services"`
	Yields   []string  `json:"yields"`
	Samples  []Sample  `json:"samples"`
	// Findings say what breaks if the zone goes entirely.
	Findings    []doctor.Finding `json:"findings"`
	NotMeasured []string         `json:"notMeasured"`
	Next        []string         `json:"next"`
}

// Service compares the load that its endpoints outside get on top, in percent.
type Service struct {
	Name string `json:"service"` // with the namespace, as in shop/web
	// Outside counts the ready endpoints outside before the run.
	Outside   int `json:"outside"`
	Predicted int `json:"predictedPercent"`
	// Measured is nil if connections were not counted. Difference, in points, is nil then, and if they are too few to tell.
	Measured   *float64 `json:"measuredPercent,omitempty"`
	Difference *float64 `json:"differencePoints,omitempty"`
}

// Sample is the state at one moment of the run.
type Sample struct {
	Second float64 `json:"second"`
	// InDomain is the share of the new connections since the last sample that ended in the domain, and Busiest the greatest
	// measured load until now. They are nil if connections are not counted.
	InDomain *float64 `json:"inDomainPercent,omitempty"`
	Busiest  *float64 `json:"busiestPercent,omitempty"`
	State    string   `json:"state"` // for people
}

// Ended counts connections by the place where they ended.
type Ended struct{ In, Out float64 }

// Count returns the connections of Services between two readings. It leaves out unknown zones.
func Count(first, second []inspect.ProxyReading, zone string) map[string]Ended {
	counts := map[string]Ended{}
	rates, _ := inspect.TrafficSince(first, second)
	for i := range rates {
		seconds := second[0].At.Sub(first[0].At).Seconds()
		for key, rate := range rates[i].Counts {
			name := key.Namespace + "/" + key.Service
			ended := counts[name]
			switch key.To {
			case "":
			case zone:
				ended.In += rate.Connections * seconds
			default:
				ended.Out += rate.Connections * seconds
			}
			counts[name] = ended
		}
	}
	return counts
}

// Sample measures the Services by their connections before the run, since the last sample and since the shift is in force, and by
// their endpoints outside now. It returns the busiest Service, nil if none was measured.
func (r *Run) Sample(before, latest, during map[string]Ended, outside map[string]int) (sample Sample, busiest *Service) {
	var inside, all float64
	for i := range r.Services {
		s := &r.Services[i]
		inside, all = inside+latest[s.Name].In, all+latest[s.Name].In+latest[s.Name].Out
		s.measure(before[s.Name], during[s.Name], outside[s.Name])
		if s.Measured != nil && (busiest == nil || *s.Measured > *busiest.Measured) {
			busiest, sample.Busiest = s, s.Measured
		}
	}
	if all > 0 {
		sample.InDomain = new(100 * inside / all)
	}
	return sample, busiest
}

// measure compares the connections of an endpoint outside before the run and during it.
func (s *Service) measure(before, during Ended, outside int) {
	all, allNow := before.In+before.Out, during.In+during.Out
	if before.Out == 0 || allNow == 0 || outside == 0 {
		return
	}
	load := during.Out / allNow / (before.Out / all) * float64(s.Outside) / float64(outside)
	s.Measured, s.Difference = new(100*(load-1)), nil
	// Proxies choose endpoints at random: the true value is within two standard errors in 19 of 20 runs.
	share := (before.Out + 1) / (all + 2)
	if 2*100*load*math.Sqrt((1-share)/share/min(all, allNow)) <= Tolerance {
		s.Difference = new(*s.Measured - float64(s.Predicted))
	}
}

// Load is the table of the measured Services.
func (r *Run) Load() plaintext.Table {
	table := plaintext.NewTable("Service", ">predicted", ">measured", ">difference in points")
	for _, s := range r.Services {
		difference := "too few connections"
		if s.Difference != nil {
			difference = fmt.Sprintf("%+.1f", *s.Difference)
		}
		if s.Measured != nil {
			table.Rows = append(table.Rows, []string{s.Name, fmt.Sprintf("%d %%", s.Predicted), fmt.Sprintf("%.1f %%", *s.Measured), difference})
		}
	}
	return table
}

// Finish judges the run, which ended early for a reason if that is not empty.
func (r *Run) Finish(early string) (failed bool) {
	var off, unmeasured []string
	compared := 0
	for _, s := range r.Services {
		if s.Measured == nil {
			unmeasured = append(unmeasured, s.Name)
		}
		if s.Difference == nil {
			continue
		}
		if compared++; math.Abs(*s.Difference) > Tolerance {
			off = append(off, fmt.Sprintf("%s by %+.1f", s.Name, *s.Difference))
		}
	}
	if len(unmeasured) > 0 {
		r.NotMeasured = append(r.NotMeasured, "load, because no connection was counted: "+plaintext.FirstOf(unmeasured, mostNamed))
	}
	switch {
	case early != "":
		r.Result = "the practice run ended early: " + early
	case len(off) > 0:
		r.Result = fmt.Sprintf("the measured load differs from the prediction by more than %d points: %s", Tolerance, plaintext.FirstOf(off, mostNamed))
	case compared == 0:
		r.Result = "the practice run is done, and no load could be compared"
	default:
		r.Result = fmt.Sprintf("the practice run is done: the load of %s is as predicted, within %d points", plaintext.Plural(compared, "compared Service"), Tolerance)
	}
	return early != "" || len(off) > 0
}

// mostNamed limits the Services that a sentence names.
const mostNamed = 8
