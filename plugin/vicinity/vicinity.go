// Package vicinity is a CoreDNS plugin that answers for headless Services with the endpoints near the client.
//
// The plugin kubernetes answers as usual, and a cache between the two has the same answers for all clients. This plugin
// filters a copy of the answer: it keeps the records of a headless Service with EndpointGroups that package endpoint
// chooses for the client. Package locate finds the client by the address of the query.
package vicinity

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
)

// Vicinity is the plugin in one server block.
type Vicinity struct {
	Next plugin.Handler

	// zones has the zones of the cluster in lower case, such as cluster.local.
	zones []string
	// ttl bounds the TTL of filtered records, in seconds.
	ttl uint32
	// plan means that names with prefer follow the plan.
	plan bool
	// subnetSources has the resolvers whose EDNS client subnet is trusted.
	subnetSources []netip.Prefix

	cluster *cluster
	filters sync.Pool // of *filter
	// stopped means that its server did not start, or has ended.
	stopped atomic.Bool
}

// New returns the plugin for zones, without any Service.
func New(zones []string) *Vicinity {
	return &Vicinity{zones: zones, ttl: defaultTTL, cluster: newCluster(), filters: sync.Pool{New: func() any { return &filter{} }}}
}

// Name implements plugin.Handler.
func (v *Vicinity) Name() string { return pluginName }

// Ready implements ready.Readiness: all resources are listed. The plugin ready also asks plugins whose server did not
// start.
func (v *Vicinity) Ready() bool { return v.stopped.Load() || v.cluster.isSynced() }

// inside marks the context of a query that has passed the plugin: plugins below look up the targets of aliases through
// the whole chain again. Such an answer becomes part of another one, which a cache may hold for all clients. So it is
// only filtered with the other one.
type inside struct{}

// ServeDNS implements plugin.Handler.
func (v *Vicinity) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if ctx.Value(inside{}) != nil || len(r.Question) != 1 || r.Opcode != dns.OpcodeQuery {
		return plugin.NextOrFailure(v.Name(), v.Next, ctx, w, r)
	}
	switch r.Question[0].Qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeSRV:
	default:
		return plugin.NextOrFailure(v.Name(), v.Next, ctx, w, r)
	}
	fw := &writer{ResponseWriter: w, Context: ctx, plugin: v, request: r}
	if v.plan {
		name, _ := names.Parse(r.Question[0].Name, v.zones)
		if zone, ok := name.Preferred(); ok {
			if !v.cluster.isSynced() {
				return dns.RcodeSuccess, w.WriteMsg(fw.unsynced())
			}
			if s := v.cluster.service(name.Service); s != nil && s.Sliced {
				r = fw.prefer(s.ClientIn(zone), name)
			}
		}
	}
	return plugin.NextOrFailure(v.Name(), v.Next, fw, fw, r)
}

// writer filters the answers of the plugins below. It is also the context of the query below: most queries need no
// filter, and a separate context would double the plugin's cost for them.
type writer struct {
	dns.ResponseWriter
	context.Context
	plugin  *Vicinity
	request *dns.Msg
	// asked is the name in the client's question if the plugins below get another one.
	asked string

	client  endpoint.Client
	located bool
	subnet  *dns.EDNS0_SUBNET // the subnet that located the client
}

// Value implements context.Context.
func (w *writer) Value(key any) any {
	if key == (inside{}) {
		return true
	}
	return w.Context.Value(key)
}

// server returns the label of metrics.
func (w *writer) server() string { return metrics.WithServer(w.Context) }

// prefer sets the client of a name that prefers a zone. It returns the query for the plugins below.
func (w *writer) prefer(client endpoint.Client, name names.Name) *dns.Msg {
	w.client, w.located = client, true
	w.asked = w.request.Question[0].Name
	r := w.request.Copy()
	r.Question[0].Name = w.asked[len(name.Prefix)+1:]
	return r
}

// unsynced returns the answer before all resources are listed.
func (w *writer) unsynced() *dns.Msg {
	answerCount.WithLabelValues(w.server(), outcomeUnsynced).Inc()
	failed := new(dns.Msg)
	return failed.SetRcode(w.request, dns.RcodeServerFailure)
}

// WriteMsg implements dns.ResponseWriter.
func (w *writer) WriteMsg(m *dns.Msg) error {
	return w.ResponseWriter.WriteMsg(w.filter(m))
}

// Write implements dns.ResponseWriter.
func (w *writer) Write(packed []byte) (int, error) {
	m := new(dns.Msg)
	if err := m.Unpack(packed); err != nil {
		return w.ResponseWriter.Write(packed)
	}
	return len(packed), w.WriteMsg(m)
}

// locate finds the client, once.
func (w *writer) locate() endpoint.Client {
	if w.located {
		return w.client
	}
	w.located = true
	address := senderAddress(w.ResponseWriter)
	if subnet := clientSubnet(w.request); subnet != nil && slices.ContainsFunc(w.plugin.subnetSources, func(p netip.Prefix) bool { return p.Contains(address) }) {
		if behind, ok := hostOf(subnet); ok {
			address, w.subnet = behind, subnet
		}
	}
	location, _ := w.plugin.cluster.clients.Lookup(address)
	clientCount.WithLabelValues(w.server(), location.Source.String()).Inc()
	w.client = names.ClientAt(location)
	return w.client
}

// senderAddress returns the address of the sender of a query.
func senderAddress(w dns.ResponseWriter) netip.Addr {
	switch from := w.RemoteAddr().(type) {
	case *net.UDPAddr:
		return from.AddrPort().Addr().Unmap().WithZone("")
	case *net.TCPAddr:
		return from.AddrPort().Addr().Unmap().WithZone("")
	}
	state := request.Request{W: w}
	address, _ := netip.ParseAddr(state.IP())
	return address.Unmap()
}

// clientSubnet returns the EDNS client subnet of a query, nil without one.
func clientSubnet(r *dns.Msg) *dns.EDNS0_SUBNET {
	opt := r.IsEdns0()
	if opt == nil {
		return nil
	}
	for _, option := range opt.Option {
		if subnet, ok := option.(*dns.EDNS0_SUBNET); ok {
			return subnet
		}
	}
	return nil
}

// hostOf returns the address of a subnet of one address. A larger subnet does not locate a client.
func hostOf(subnet *dns.EDNS0_SUBNET) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(subnet.Address)
	address = address.Unmap()
	return address, ok && int(subnet.SourceNetmask) == address.BitLen()
}
