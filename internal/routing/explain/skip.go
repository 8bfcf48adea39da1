package explain

import (
	"fmt"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Skip says which nodes do not prefer their own endpoints, and why, as in "node-3 holds 1 of 6 endpoints and 25 % of
// the traffic: it would load it to 1.5 times the even share, so it uses the endpoints of zone-a".
func Skip(s allocate.Skip, o allocate.Outcome) string {
	name, them, whose := s.Domain, "it", "the endpoints of "+ZoneName(s.Zone)
	if s.Key != topology.Hostname {
		name = s.Key + " " + s.Domain
	}
	if s.Endpoints != 1 {
		them = "them"
	}
	if s.Zone == "" {
		whose = "those of its zones"
	}
	text := fmt.Sprintf("%s holds %d of %s and %s of the traffic: it would load %s to %s times the even share, so it uses %s",
		name, s.Endpoints, plaintext.Plural(o.Endpoints, "endpoint"), plaintext.Percent(s.Share), them, plaintext.Decimal(s.Load, 2), whose)
	if s.Load < 1+o.Threshold {
		text += fmt.Sprintf(" until it would be less than %s times", plaintext.Decimal(allocate.ReturnLoad(o.Threshold), 2))
	}
	return text
}

// Skips returns sentences for the first few skipped domains.
func Skips(o Option) []string {
	if o.Nodes == nil {
		return nil
	}
	const most = 5
	var sentences []string
	for i, s := range o.Nodes.Skips {
		if i == most {
			return append(sentences, fmt.Sprintf("so do %d more", len(o.Nodes.Skips)-most))
		}
		sentences = append(sentences, Skip(s, o.Outcome))
	}
	return sentences
}
