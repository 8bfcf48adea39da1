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

// In the fabric namespace, where all ports are free, components have their usual ports.
const (
	apiPort               = 6443
	etcdPort              = 2379
	etcdPeerPort          = 2380
	etcdMetricsPort       = 2381
	controllerManagerPort = 10257
	schedulerPort         = 10259
)

// Ports is the number of consecutive host ports that a lab may need. A lab with a network needs the
// first; a lab that is only a control plane needs all.
const Ports = 6

// Labs use ports of the host in this range, below the ephemeral ports of Linux: a restarted
// gateway must find its port free.
const (
	firstPort = 20000
	slots     = 1250
)

// FreePort finds the first of Ports consecutive ports that are free on 127.0.0.1 and not used by
// another lab, running or not. The search starts at a port derived from the lab's name, so that a lab
// tends to keep its port. The ports are not reserved.
func FreePort(ctx context.Context, lab string, others ...int) (int, error) {
	hash := fnv.New32a()
	hash.Write([]byte(lab))
	failed := errors.New("other labs use all of them")
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

type endpoints struct {
	etcd, etcdPeer, etcdMetrics  netip.AddrPort
	controllerManager, scheduler netip.AddrPort

	// apiServer is the API's address for components and nodes, outside its address for the host.
	apiServer, outside netip.AddrPort
}

func endpointsOf(s shape.Shape, port int) endpoints {
	local := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	on := func(port int) netip.AddrPort { return netip.AddrPortFrom(local, uint16(port)) }
	if s.ControlPlaneOnly {
		return endpoints{
			apiServer: on(port), outside: on(port),
			etcd: on(port + 1), etcdPeer: on(port + 2), etcdMetrics: on(port + 3),
			controllerManager: on(port + 4), scheduler: on(port + 5),
		}
	}
	return endpoints{
		apiServer: netip.AddrPortFrom(shape.APIServer, apiPort), outside: on(port),
		etcd: on(etcdPort), etcdPeer: on(etcdPeerPort), etcdMetrics: on(etcdMetricsPort),
		controllerManager: on(controllerManagerPort), scheduler: on(schedulerPort),
	}
}
