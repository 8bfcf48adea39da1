package health

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/httpserver"
)

// Service is the answer to health checks of one Service.
type Service struct {
	Port uint16
	// LocalEndpoints counts the Service's endpoints on the node.
	LocalEndpoints int
}

// weightHeader tells a load balancer the weight of this node.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// mostConnections bounds the connections at all ports together.
const mostConnections = 256

// listenFunc opens a port.
type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Services answers health checks of load balancers, each Service at its own port. Any goroutine may call its methods.
type Services struct {
	state  *State
	listen listenFunc
	limit  *httpserver.Limit

	mu sync.Mutex
	// local counts the endpoints of each Service on the node.
	local map[types.NamespacedName]int
	open  map[port]openPort
	// broken means that a listener has failed since the last Set.
	broken bool
}

type port struct {
	service types.NamespacedName
	at      netip.AddrPort
}

type openPort struct {
	listener net.Listener
	server   *http.Server
}

// close frees the port, even before the server serves it. It does not wait for connections.
func (o openPort) close() {
	_ = o.listener.Close()
	_ = o.server.Close()
}

// NewServices returns Services without any open port.
func NewServices(state *State) *Services {
	var config net.ListenConfig
	return newServices(state, config.Listen)
}

func newServices(state *State, listen listenFunc) *Services {
	return &Services{state: state, listen: listen, limit: httpserver.NewLimit(mostConnections), open: map[port]openPort{}}
}

// Set answers at the addresses for these Services only. It returns the errors of ports that cannot be opened. The next call
// retries them.
func (s *Services) Set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]Service) map[types.NamespacedName]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = make(map[types.NamespacedName]int, len(services))
	wanted := map[port]bool{}
	for name, one := range services {
		s.local[name] = one.LocalEndpoints
		for _, address := range addresses {
			wanted[port{name, netip.AddrPortFrom(address, one.Port)}] = true
		}
	}
	s.closeAllBut(wanted)
	s.broken = false
	failures := map[types.NamespacedName]error{}
	for p := range wanted {
		if _, isOpen := s.open[p]; isOpen {
			continue
		}
		if err := s.serve(ctx, p); err != nil {
			failures[p.service] = err
		}
	}
	return failures
}

// Broken reports whether a listener has failed since the last Set. The next Set opens its port again.
func (s *Services) Broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Close closes all ports.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeAllBut(nil)
}

func (s *Services) closeAllBut(wanted map[port]bool) {
	for p, open := range s.open {
		if !wanted[p] {
			open.close()
			delete(s.open, p)
		}
	}
}

func (s *Services) serve(ctx context.Context, p port) error {
	network := "tcp4"
	if p.at.Addr().Is6() {
		network = "tcp6"
	}
	listener, err := s.listen(ctx, network, p.at.String())
	if err != nil {
		return err
	}
	opened := openPort{listener, httpserver.New(s.handler(p.service), s.limit)}
	s.open[p] = opened
	go s.answer(p, opened)
	return nil
}

// answer answers at a port until it is closed, or until the listener fails, for example for lack of memory.
func (s *Services) answer(p port, opened openPort) {
	_ = opened.server.Serve(opened.listener) // the next Set reports the error
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p] == opened {
		delete(s.open, p)
		s.broken = true
	}
}

// serviceReport is the answer, with the same fields as kube-proxy's.
type serviceReport struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

// handler answers 200 if this node can take traffic for the Service.
func (s *Services) handler(name types.NamespacedName) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		count := s.local[name]
		s.mu.Unlock()
		made := serviceReport{Service: serviceName(name), LocalEndpoints: count, ServiceProxyHealthy: s.state.Healthy()}
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
