package e2e_test

import (
	"context"
	"fmt"
	"strings"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// namesPlanned has six, four and two endpoints in three equal zones: the clients of each zone
// get exactly the endpoints that the plan has for the zone.
func namesPlanned(ctx context.Context, s *scene) (string, error) {
	numbers := map[string]int{}
	for i, zone := range s.cluster.Shape().Zones {
		numbers[zone.Name] = []int{6, 4, 2}[i]
	}
	// The plan is made once, when all endpoints are there.
	if err := s.serve(ctx, lab.UnevenEchoManifests("echo", numbers), 12); err != nil {
		return "", err
	}
	if err := s.Apply(ctx, s.namespace, headlessOf("near", zoneAnnotation, "Prefer")); err != nil {
		return "", err
	}
	e, err := s.converged(ctx, "near", 12)
	if err != nil {
		return "", err
	}
	if e.Families[0].Family != "IPv4" {
		return "", fmt.Errorf("explain begins with %s; it should with IPv4", e.Families[0].Family)
	}
	pods, err := s.podNames(ctx)
	if err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	planned := map[string][]string{} // addresses, by zone
	for address, zones := range e.Families[0].Endpoints {
		for _, zone := range zones {
			planned[zone] = append(planned[zone], address)
		}
	}
	var all []asked
	for node, from := range clients {
		at, _ := s.cluster.Shape().Node(node)
		var want []string
		for _, address := range planned[at.Zone] {
			want = append(want, pods[address])
		}
		gets := strings.Join(sortedCopy(want), " ")
		all = append(all, asked{from, dnsquery.Query{Name: s.fqdn("near")}, gets})
		for _, other := range clients {
			all = append(all, asked{other, dnsquery.Query{Name: at.Zone + ".prefer._zone." + s.fqdn("near")}, gets})
		}
	}
	right, err := s.answers(ctx, all)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("6, 4 and 2 endpoints: %d answers have those that the plan names for the zone", right), nil
}
