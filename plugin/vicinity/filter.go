package vicinity

import (
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
)

// subject is a name in an answer with the records of a Service with groups.
type subject struct {
	name    string
	zone    string
	service *names.Service
	isPort  bool // some endpoints may lack the port
}

// filter returns the client's part of a message: the message itself if nothing is filtered, or a copy. It changes
// neither the message nor its records, which a cache may hold.
func (w *writer) filter(m *dns.Msg) *dns.Msg {
	if len(m.Answer) == 0 && w.asked == "" {
		return m
	}
	subjects, unknown := w.plugin.subjects(m)
	switch {
	case unknown:
		return w.unsynced()
	case len(subjects) == 0 && w.asked == "":
		return m
	}
	out := *m
	if len(subjects) > 0 {
		f := w.plugin.filters.Get().(*filter)
		f.begin(w, m)
		for i := range subjects {
			f.apply(&subjects[i])
		}
		out.Answer, out.Extra = f.answer, f.extra
		outcome := f.outcome()
		f.end()
		if !slices.ContainsFunc(out.Answer, func(rr dns.RR) bool { return rr.Header().Rrtype == w.request.Question[0].Qtype }) {
			outcome = outcomeNone
			out.Ns = []dns.RR{w.plugin.soa(subjects[len(subjects)-1].zone)}
			out.Extra = slices.DeleteFunc(slices.Clone(out.Extra), func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeOPT })
		}
		answerCount.WithLabelValues(w.server(), outcome).Inc()
	}
	if w.asked != "" {
		w.rename(&out)
	}
	if w.subnet != nil {
		w.answerSubnet(&out)
	}
	return &out
}

// subjects returns the names in a message whose records depend on the client. Before all resources are listed, it
// reports any name of a Service as unknown.
func (v *Vicinity) subjects(m *dns.Msg) (found []subject, unknown bool) {
	synced := v.cluster.isSynced()
	last := ""
	for _, section := range [][]dns.RR{m.Answer, m.Extra} {
		for _, rr := range section {
			h := rr.Header()
			if h.Rrtype != dns.TypeA && h.Rrtype != dns.TypeAAAA && h.Rrtype != dns.TypeSRV || h.Name == last {
				continue
			}
			last = h.Name
			n, ok := names.Parse(h.Name, v.zones)
			if !ok || !n.IsService() {
				continue
			}
			if !synced {
				return nil, true
			}
			s := v.cluster.service(n.Service)
			if s == nil || !s.Decides(addressesOf(m)) || slices.ContainsFunc(found, func(f subject) bool { return names.Same(f.name, h.Name) }) {
				continue
			}
			found = append(found, subject{h.Name, n.Zone, s, n.IsPort()})
		}
	}
	return found, false
}

// filter filters the sections of an answer. Filters are pooled: the memory of a choice is neither allocated for each
// answer nor on the stack of its goroutine, which would have to grow.
type filter struct {
	w             *writer
	answer, extra []dns.RR
	// removed means that records were removed. all means that the client gets all records, because none are for it.
	removed, all bool

	chooser endpoint.Chooser
	found   []netip.Addr // in records
}

// begin prepares the filter for an answer.
func (f *filter) begin(w *writer, m *dns.Msg) {
	f.w, f.answer, f.extra, f.removed, f.all = w, m.Answer, m.Extra, false, false
}

// end returns the filter to the pool.
func (f *filter) end() {
	pool := &f.w.plugin.filters
	f.w, f.answer, f.extra = nil, nil, nil
	pool.Put(f)
}

func (f *filter) outcome() string {
	switch {
	case f.all:
		return outcomeFallback
	case f.removed:
		return outcomeNearest
	}
	return outcomeWhole
}

// apply filters the records of a name.
func (f *filter) apply(s *subject) {
	f.answer = f.addresses(f.answer, s)
	f.extra = f.addresses(f.extra, s)
	if slices.ContainsFunc(f.answer, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSRV && names.Same(ownerOf(rr), s.name) }) {
		f.services(s)
	}
}

// choose returns which addresses of one family the client uses.
func (f *filter) choose(e *endpoint.Set, addresses []netip.Addr) endpoint.Chosen {
	chosen := f.chooser.Choose(e, f.w.locate(), addresses)
	f.all = f.all || chosen.All
	f.removed = f.removed || chosen.Count < len(addresses)
	return chosen
}

// readyAddresses returns the currently ready addresses of a family that the client uses, if it uses none of the answer:
// a cache may have the answer from before a pod was replaced.
func (f *filter) readyAddresses(e *endpoint.Set, old endpoint.Chosen, s *subject, family int) []netip.Addr {
	if old.Count > 0 || s.isPort {
		return nil
	}
	var fresh []netip.Addr
	chosen := f.chooser.Choose(e, f.w.locate(), s.service.Ready[family])
	for i, address := range s.service.Ready[family] {
		if chosen.Takes[i] {
			fresh = append(fresh, address)
		}
	}
	return fresh
}

// addresses filters the A and AAAA records of a name.
func (f *filter) addresses(section []dns.RR, s *subject) []dns.RR {
	for family, rrtype := range [...]uint16{names.V4: dns.TypeA, names.V6: dns.TypeAAAA} {
		endpoints := s.service.Endpoints[family]
		if endpoints == nil {
			continue
		}
		belongs := func(rr dns.RR) bool { return rr.Header().Rrtype == rrtype && names.Same(ownerOf(rr), s.name) }
		f.found = f.found[:0]
		for _, rr := range section {
			if belongs(rr) {
				f.found = append(f.found, addressOf(rr))
			}
		}
		addresses := f.found
		if len(addresses) == 0 {
			continue
		}
		chosen := f.choose(endpoints, addresses)
		fresh := f.readyAddresses(endpoints, chosen, s, family)
		kept, i := make([]dns.RR, 0, len(section)-len(addresses)+chosen.Count), 0
		for _, rr := range section {
			switch {
			case belongs(rr):
				if chosen.Takes[i] {
					kept = append(kept, f.w.bounded(rr))
				}
				if i == 0 {
					for _, address := range fresh {
						kept = append(kept, withAddress(f.w.bounded(rr), address))
					}
				}
				i++
			case chosen.Count < len(addresses) && isSignature(rr, rrtype, s.name):
			default:
				kept = append(kept, rr)
			}
		}
		section = kept
	}
	return section
}

// services filters the SRV records of a name. It keeps the targets that the client uses, and their addresses in the
// additional records.
func (f *filter) services(s *subject) {
	targets := make(map[string][]netip.Addr)
	for _, rr := range f.answer {
		if srv, ok := rr.(*dns.SRV); ok && names.Same(srv.Hdr.Name, s.name) {
			targets[strings.ToLower(srv.Target)] = nil
		}
	}
	for _, rr := range f.extra {
		if address := addressOf(rr); address.IsValid() {
			name := strings.ToLower(ownerOf(rr))
			if addresses, ok := targets[name]; ok {
				targets[name] = append(addresses, address)
			}
		}
	}
	var all []netip.Addr
	for name, addresses := range targets {
		if addresses == nil { // a plugin below omitted the additional records
			addresses = s.service.Host(names.Label(name))
			targets[name] = addresses
		}
		all = append(all, addresses...)
	}
	chosen := s.service.Targets(f.w.locate(), all)
	f.all, f.removed = f.all || chosen.All, f.removed || chosen.Removed
	kept := make([]dns.RR, 0, len(f.answer))
	for _, rr := range f.answer {
		srv, ok := rr.(*dns.SRV)
		switch {
		case ok && names.Same(srv.Hdr.Name, s.name):
			if chosen.Takes(targets[strings.ToLower(srv.Target)]) {
				kept = append(kept, f.w.bounded(rr))
			} else {
				f.removed = true
			}
		case f.removed && isSignature(rr, dns.TypeSRV, s.name):
		default:
			kept = append(kept, rr)
		}
	}
	f.answer = kept
	extra := make([]dns.RR, 0, len(f.extra))
	for _, rr := range f.extra {
		address := addressOf(rr)
		_, ofTarget := targets[strings.ToLower(ownerOf(rr))]
		switch {
		case address.IsValid() && ofTarget:
			if chosen.Uses(address) {
				extra = append(extra, f.w.bounded(rr))
			}
		case f.removed && ofTarget && rr.Header().Rrtype == dns.TypeRRSIG:
		default:
			extra = append(extra, rr)
		}
	}
	f.extra = extra
}

// isSignature reports whether a record is a signature of the records of a type and name. After filtering it is wrong.
func isSignature(rr dns.RR, rrtype uint16, name string) bool {
	sig, ok := rr.(*dns.RRSIG)
	return ok && sig.TypeCovered == rrtype && names.Same(sig.Hdr.Name, name)
}

// bounded returns the record with a TTL of at most the bound.
func (w *writer) bounded(rr dns.RR) dns.RR {
	if rr.Header().Ttl <= w.plugin.ttl {
		return rr
	}
	switch of := rr.(type) {
	case *dns.A: // cheaper than dns.Copy: the address is shared
		short := *of
		rr = &short
	case *dns.AAAA:
		short := *of
		rr = &short
	default:
		rr = dns.Copy(rr)
	}
	rr.Header().Ttl = w.plugin.ttl
	return rr
}

// addressOf returns the address in a record, invalid without one.
func addressOf(rr dns.RR) netip.Addr {
	var ip net.IP
	switch rr := rr.(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}

// addressesOf yields the addresses in the records of a message.
func addressesOf(m *dns.Msg) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, section := range [...][]dns.RR{m.Answer, m.Extra} {
			for _, rr := range section {
				if address := addressOf(rr); address.IsValid() && !yield(address) {
					return
				}
			}
		}
	}
}

func ownerOf(rr dns.RR) string { return rr.Header().Name }

// withAddress returns a copy of a record with another address of the same family.
func withAddress(rr dns.RR, address netip.Addr) dns.RR {
	rr = dns.Copy(rr)
	switch rr := rr.(type) {
	case *dns.A:
		rr.A = address.AsSlice()
	case *dns.AAAA:
		rr.AAAA = address.AsSlice()
	}
	return rr
}

// soa returns the SOA record of a zone for answers without records, like that of the plugin kubernetes.
func (v *Vicinity) soa(zone string) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: v.ttl},
		Ns:  dnsutil.Join("ns.dns", zone), Mbox: dnsutil.Join("hostmaster", zone),
		Serial: v.cluster.serial(), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: v.ttl,
	}
}

// rename restores the client's name in the question, and in the records of the replaced name.
func (w *writer) rename(m *dns.Msg) {
	if len(m.Question) != 1 {
		return
	}
	if m.Rcode == dns.RcodeNameError { // the Service exists
		m.Rcode = dns.RcodeSuccess
	}
	plain := m.Question[0].Name
	m.Question = slices.Clone(m.Question)
	m.Question[0].Name = w.asked
	m.Answer = slices.Clone(m.Answer)
	for i, rr := range m.Answer {
		if names.Same(ownerOf(rr), plain) {
			rr = dns.Copy(rr)
			rr.Header().Name = w.asked
			m.Answer[i] = rr
		}
	}
}

// answerSubnet limits the answer to the client subnet of the query.
func (w *writer) answerSubnet(m *dns.Msg) {
	opt := new(dns.OPT)
	opt.Hdr.Name, opt.Hdr.Rrtype = ".", dns.TypeOPT
	if had := m.IsEdns0(); had != nil {
		opt = dns.Copy(had).(*dns.OPT)
	} else if asked := w.request.IsEdns0(); asked != nil {
		opt.SetUDPSize(asked.UDPSize())
	}
	subnet := *w.subnet
	subnet.SourceScope = subnet.SourceNetmask
	opt.Option = slices.DeleteFunc(opt.Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0SUBNET })
	opt.Option = append(opt.Option, &subnet)
	m.Extra = slices.DeleteFunc(slices.Clone(m.Extra), func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT })
	m.Extra = append(m.Extra, opt)
}
