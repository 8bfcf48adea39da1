package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// grpcPort is the port by which echoes of namesPlanned answer health checks by gRPC.
const grpcPort = 8083

// namesPlanned has six, four and two endpoints in three equal zones: the clients of each zone
// get exactly the endpoints that the plan has for the zone, and calls of gRPC clients, which take
// addresses in turn, spread as explain predicts.
func namesPlanned(ctx context.Context, s *scene) (string, error) {
	numbers := map[string]int{}
	for i, zone := range s.inhabited() {
		numbers[zone.Name] = []int{6, 4, 2}[i]
	}
	manifests := strings.ReplaceAll(lab.UnevenEchoManifests("echo", numbers), "        env:\n",
		fmt.Sprintf("        env:\n        - {name: ECHO_GRPC_PORT, value: %q}\n", fmt.Sprint(grpcPort)))
	// The plan is made once, when all endpoints are there.
	if err := s.serve(ctx, manifests, 12); err != nil {
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
	loads, inZone, calls, err := s.callInTurn(ctx, clients, planned)
	if err != nil {
		return "", err
	}
	predicted := predictedLoads(e)
	highest, furthest := 0.0, 0.0
	for address, load := range predicted {
		highest = max(highest, loads[address])
		furthest = max(furthest, points(loads[address], load))
	}
	const most = 5
	expected := e.Families[0].Expected
	if furthest > most || points(inZone, expected.InZone/100) > most {
		return "", fmt.Errorf("loads of endpoints are up to %.1f points from what explain predicts, and %.1f %% of calls stay in their zone (predicted %.1f %%); at most %d points are allowed",
			furthest, 100*inZone, expected.InZone, most)
	}
	return fmt.Sprintf("6, 4 and 2 endpoints: %d answers have those that the plan names; of %d gRPC calls in zone %.1f %% (predicted %.1f %%), highest load %.0f %% of the even share (predicted %.0f %%)",
		right, calls, 100*inZone, expected.InZone, 100*highest, 100+expected.MaxOverload), nil
}

// callInTurn has a gRPC client of each zone call, equally often. It returns the loads of
// endpoints relative to the even share, by address, and the part of calls that stayed in their zone.
func (s *scene) callInTurn(ctx context.Context, clients map[string]place, planned map[string][]string) (loads map[string]float64, inZone float64, calls int, err error) {
	const rounds = 60 // divisible by the numbers of endpoints that zones may have here
	loads = map[string]float64{}
	endpoints := map[string]bool{}
	for _, addresses := range planned {
		for _, address := range addresses {
			endpoints[address] = true
		}
	}
	near := 0
	for _, zone := range s.inhabited() {
		counts, err := s.roundRobin(ctx, clients[zone.Nodes[0].Name], s.fqdn("near"), planned[zone.Name], rounds*12)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("from %s: %w", zone.Name, err)
		}
		for address, n := range counts {
			calls += n
			loads[address] += float64(n)
			if s.zoneOf(address) == zone.Name {
				near += n
			}
		}
	}
	for address := range loads {
		loads[address] *= float64(len(endpoints)) / float64(calls)
	}
	return loads, float64(near) / float64(calls), calls, nil
}

// zoneOf is the zone of a pod's address.
func (s *scene) zoneOf(address string) string {
	for _, node := range s.cluster.Shape().Nodes() {
		for _, cidr := range s.cluster.Shape().NodePodCIDRs(node) {
			if cidr.Contains(netip.MustParseAddr(address)) {
				return node.Zone
			}
		}
	}
	return ""
}

// roundRobin makes calls by a gRPC client that takes the addresses of a name in turn, and counts
// them by address. It begins when the client has connected to all that it should.
func (s *scene) roundRobin(ctx context.Context, from place, name string, want []string, number int) (map[string]int, error) {
	conn, err := grpc.NewClient("names:///"+name,
		grpc.WithResolvers(nameResolver{s, from}), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return from.dial(ctx, "tcp", address) }))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	call := func() (string, error) {
		var to peer.Peer
		if _, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&to), grpc.WaitForReady(true)); err != nil {
			return "", err
		}
		address, err := netip.ParseAddrPort(to.Addr.String())
		return address.Addr().Unmap().String(), err
	}
	seen := map[string]bool{}
	err = kube.Wait(ctx, "the client to use all addresses", func(context.Context) (string, error) {
		address, err := call()
		seen[address] = true
		if err != nil || len(seen) >= len(want) {
			return "", err
		}
		return fmt.Sprintf("it uses %d of %d", len(seen), len(want)), nil
	})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for range number {
		address, err := call()
		if err != nil {
			return nil, err
		}
		counts[address]++
	}
	for address := range counts {
		if !slices.Contains(want, address) {
			return nil, fmt.Errorf("%s was called, which the plan does not name", address)
		}
	}
	return counts, nil
}

// nameResolver resolves names for gRPC clients in a place.
type nameResolver struct {
	scene *scene
	from  place
}

func (nameResolver) Scheme() string { return "names" }

func (r nameResolver) Build(target resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	answer, _, err := r.scene.resolve(context.Background(), r.from, dnsquery.Query{Name: target.Endpoint()})
	if err != nil {
		return nil, err
	}
	var state resolver.State
	for _, address := range answer.Data("A") {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: net.JoinHostPort(address, fmt.Sprint(grpcPort))})
	}
	if len(state.Addresses) == 0 {
		return nil, errors.New(target.Endpoint() + " has no addresses")
	}
	return r, conn.UpdateState(state)
}

func (nameResolver) ResolveNow(resolver.ResolveNowOptions) {}

func (nameResolver) Close() {}
