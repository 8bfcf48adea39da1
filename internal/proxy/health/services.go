package health

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/httpserver"
)

// Service is what the load balancer of a Service is to know of this node.
type Service struct {
	// Port is where it asks.
	Port uint16
	// LocalEndpoints is how many endpoints of the Service are on the node.
	LocalEndpoints int
}

// weightHeader tells a load balancer by how much to prefer this node.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// mostConnections is how many connections the ports of all Services together hold at once.
const mostConnections = 256

// listenFunc opens a port.
type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Services answers the health checks of load balancers, each Service at a port of its own.
// Its methods may be called by several goroutines.
type Services struct {
	state  *State
	listen listenFunc
	limit  *httpserver.Limit

	mu        sync.Mutex
	addresses []netip.Addr
	open      map[types.NamespacedName]*served
}

// served is a Service whose port is wanted.
type served struct {
	Service
	doors map[netip.Addr]door
}

// door is a port at one address, with who answers there.
type door struct {
	listener net.Listener
	server   *http.Server
}

// close frees the port, also if the server has not come to serve it yet. Connections that
// hang are not waited for.
func (d door) close() {
	_ = d.listener.Close()
	_ = d.server.Close()
}

// NewServices answers for no Service yet.
func NewServices(state *State) *Services {
	var config net.ListenConfig
	return newServices(state, config.Listen)
}

func newServices(state *State, listen listenFunc) *Services {
	return &Services{state: state, listen: listen, limit: httpserver.NewLimit(mostConnections), open: map[types.NamespacedName]*served{}}
}

// Set answers at the addresses for the Services, and for no others. Ports that stay are
// left open. It returns the failures to open one; the next call tries these again.
func (s *Services) Set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]Service) map[types.NamespacedName]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = addresses
	for name, one := range s.open {
		if wanted, found := services[name]; !found || wanted.Port != one.Port {
			one.close()
			delete(s.open, name)
		}
	}
	failures := map[types.NamespacedName]error{}
	for name, wanted := range services {
		one := s.open[name]
		if one == nil {
			one = &served{doors: map[netip.Addr]door{}}
			s.open[name] = one
		}
		one.Service = wanted
		if err := s.serve(ctx, name, one); err != nil {
			failures[name] = err
		}
	}
	return failures
}

// Close closes all ports.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.open {
		one.close()
		delete(s.open, name)
	}
}

// serve opens the port of a Service at all addresses, and closes it at others.
func (s *Services) serve(ctx context.Context, name types.NamespacedName, one *served) error {
	for address, open := range one.doors {
		if !slices.Contains(s.addresses, address) {
			open.close()
			delete(one.doors, address)
		}
	}
	var failure error
	for _, address := range s.addresses {
		if _, open := one.doors[address]; open {
			continue
		}
		network := "tcp4"
		if address.Is6() {
			network = "tcp6"
		}
		listener, err := s.listen(ctx, network, netip.AddrPortFrom(address, one.Port).String())
		if err != nil {
			failure = err
			continue
		}
		server := httpserver.New(s.handler(name), s.limit)
		one.doors[address] = door{listener, server}
		go func() { _ = server.Serve(listener) }() // it ends by being closed
	}
	return failure
}

func (o *served) close() {
	for _, open := range o.doors {
		open.close()
	}
}

// serviceReport is the answer to the check of a Service. Its names are those of
// kube-proxy's.
type serviceReport struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// handler answers for one Service, with 200 if traffic for it may come to this node.
func (s *Services) handler(name types.NamespacedName) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		one := s.open[name]
		count := 0
		if one != nil {
			count = one.LocalEndpoints
		}
		s.mu.Unlock()
		made := serviceReport{LocalEndpoints: count, ServiceProxyHealthy: s.state.Healthy()}
		made.Service.Namespace, made.Service.Name = name.Namespace, name.Name
		text, err := json.MarshalIndent(made, "", "\t")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set(weightHeader, strconv.Itoa(count))
		code := http.StatusServiceUnavailable
		if count > 0 && made.ServiceProxyHealthy {
			code = http.StatusOK
		}
		write(w, code, text)
	})
}
