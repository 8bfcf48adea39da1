package controlplane

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"

	"vicinity.dev/vicinity/lab/shape"
)

// The ports that components have inside the fabric namespace are those of every
// cluster. Nobody else is there, so they are always free.
const (
	apiPort               = 6443
	balancedPort          = 7443
	etcdPort              = 2379
	etcdPeerPort          = 2380
	etcdMetricsPort       = 2381
	controllerManagerPort = 10257
	schedulerPort         = 10259
)

// Ports is how many ports of the host a lab may need, one after the other. A lab with
// a network needs the first alone; the others are for one that is only a control plane
// and lives in the host's own network.
const Ports = 8

// Labs have their ports of the host in this range, below those that Linux gives to
// outgoing connections: a gateway that is restarted must find its port free.
const (
	firstPort = 20000
	slots     = 1250
)

// FreePort finds the first of Ports ports in a row that are free on 127.0.0.1, and not
// those of other labs, whether they use them now or not. A lab tends to get the same
// ones each time, by its name, so that what points to it goes on to be right when it is
// made anew. The ports are not held: whoever is to listen may find them taken.
func FreePort(ctx context.Context, lab string, others ...int) (int, error) {
	hash := fnv.New32a()
	hash.Write([]byte(lab))
	failed := errors.New("they are other labs'")
	for try := range slots {
		port := firstPort + Ports*((int(hash.Sum32()%slots)+try)%slots)
		if slices.Contains(others, port) {
			continue
		}
		if failed = tryPorts(ctx, port); failed == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding %d free ports from %d to %d on 127.0.0.1: %w", Ports, firstPort, firstPort+Ports*slots-1, failed)
}

// PortFree reports whether a port and those that follow it are free for a lab.
func PortFree(ctx context.Context, first int) bool { return tryPorts(ctx, first) == nil }

// tryPorts is an error unless all ports from a first one are free.
func tryPorts(ctx context.Context, first int) error {
	for port := first; port < first+Ports; port++ {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		defer listener.Close()
	}
	return nil
}

// endpoints says where each component listens.
type endpoints struct {
	etcd, etcdPeer, etcdMetrics  netip.AddrPort
	controllerManager, scheduler netip.AddrPort

	apiServers []netip.AddrPort
	// inside is where components and nodes find the API, outside where the host does.
	inside, outside netip.AddrPort
}

// endpointsOf arranges a lab whose first port of the host is given.
func endpointsOf(s shape.Shape, port int) endpoints {
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	on := func(port int) netip.AddrPort { return netip.AddrPortFrom(local, uint16(port)) }
	if s.ControlPlaneOnly {
		e := endpoints{
			inside: on(port), outside: on(port),
			etcd: on(port + 1), etcdPeer: on(port + 2), etcdMetrics: on(port + 3),
			controllerManager: on(port + 4), scheduler: on(port + 5),
			apiServers: []netip.AddrPort{on(port)},
		}
		if s.HA {
			e.apiServers = []netip.AddrPort{on(port + 6), on(port + 7)}
		}
		return e
	}
	e := endpoints{
		outside: on(port),
		etcd:    on(etcdPort), etcdPeer: on(etcdPeerPort), etcdMetrics: on(etcdMetricsPort),
		controllerManager: on(controllerManagerPort), scheduler: on(schedulerPort),
	}
	for _, addr := range s.APIServers() {
		e.apiServers = append(e.apiServers, netip.AddrPortFrom(addr, apiPort))
	}
	e.inside = e.apiServers[0]
	if s.HA {
		e.inside = netip.AddrPortFrom(e.inside.Addr(), balancedPort)
	}
	return e
}

// gateway reports whether something must stand between the API servers and whoever
// uses them: the host cannot see into the fabric, and two servers need a balancer.
func (e endpoints) gateway() bool {
	return !slices.Equal(e.apiServers, []netip.AddrPort{e.outside})
}
