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

// Service is what the load balancer of a Service has to know.
type Service struct {
	Port uint16
	// LocalEndpoints is how many endpoints of the Service are on the node.
	LocalEndpoints int
}

// weightHeader tells a load balancer the weight of this node.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// mostConnections is for the ports of all Services together.
const mostConnections = 256

// listenFunc opens a port.
type listenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// Services answers the health checks of load balancers, each Service at a port of its own. Any goroutine may
// call its methods.
type Services struct {
	state  *State
	listen listenFunc
	limit  *httpserver.Limit

	mu sync.Mutex
	// local is how many endpoints of each Service are on the node.
	local map[types.NamespacedName]int
	open  map[port]openPort
	// broken says that an open port failed since the last Set.
	broken bool
}

// port is where the health checks of a Service are answered.
type port struct {
	service types.NamespacedName
	at      netip.AddrPort
}

type openPort struct {
	listener net.Listener
	server   *http.Server
}

// close frees the port, also if the server does not serve it yet. It does not wait for connections
// that hang.
func (o openPort) close() {
	_ = o.listener.Close()
	_ = o.server.Close()
}

// NewServices answers for no Service yet.
func NewServices(state *State) *Services {
	var config net.ListenConfig
	return newServices(state, config.Listen)
}

func newServices(state *State, listen listenFunc) *Services {
	return &Services{state: state, listen: listen, limit: httpserver.NewLimit(mostConnections), open: map[port]openPort{}}
}

// Set answers at the addresses for these Services only. It returns the ports that cannot be opened. The next
// call tries them again.
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

// Broken reports whether an open port failed since the last call of Set, which opens it again.
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

// answer answers at a port until it is closed. For lack of memory it may end before.
func (s *Services) answer(p port, opened openPort) {
	_ = opened.server.Serve(opened.listener) // the next Set says what is wrong
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[p] == opened {
		delete(s.open, p)
		s.broken = true
	}
}

// serviceReport is the answer, with the names of kube-proxy's.
type serviceReport struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// handler answers with 200 if traffic for the Service may come to this node.
func (s *Services) handler(name types.NamespacedName) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		count := s.local[name]
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
