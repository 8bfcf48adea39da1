package dnsquery_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"vicinity.dev/vicinity/lab/dnsquery"
)

// serve answers queries over UDP and TCP at one address until the test ends.
func serve(t *testing.T, handler dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{{Listener: listener, Handler: handler}, {PacketConn: packets, Handler: handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go func() {
			if err := server.ActivateAndServe(); err != nil {
				t.Errorf("serving: %v", err)
			}
		}()
		<-started
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return netip.MustParseAddrPort(listener.Addr().String())
}

func ask(t *testing.T, query dnsquery.Query) dnsquery.Answer {
	t.Helper()
	// The machine may stand still for a while.
	query.Timeout = time.Minute
	answer, err := query.Ask(t.Context(), new(net.Dialer).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func record(t *testing.T, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

// All parts of an answer are kept.
func TestAnswer(t *testing.T) {
	srv, a := record(t, "_http._tcp.web.shop. 30 IN SRV 0 50 80 a.web.shop."), record(t, "a.web.shop. 5 IN A 10.128.1.2")
	soa := record(t, "shop. 60 IN SOA ns.shop. admin.shop. 1 2 3 4 5")
	server := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		m.Authoritative = true
		if r.Question[0].Name == "none.shop." {
			m.Rcode, m.Ns = dns.RcodeNameError, []dns.RR{soa}
		} else {
			m.Answer, m.Extra = []dns.RR{srv}, []dns.RR{a}
		}
		_ = w.WriteMsg(m)
	})
	for _, tcp := range []bool{false, true} {
		found := ask(t, dnsquery.Query{Name: "_http._tcp.web.shop", Type: "srv", Server: server, TCP: tcp})
		if found.Rcode != "NOERROR" || found.Server != server || found.Size == 0 || found.UDPSize != 0 || !slices.Equal(found.Flags, []string{"qr", "aa", "rd"}) {
			t.Errorf("TCP %t: got %+v", tcp, found)
		}
		if want := (dnsquery.Record{Name: "_http._tcp.web.shop.", TTL: 30, Type: "SRV", Data: "0 50 80 a.web.shop."}); len(found.Answers) != 1 || found.Answers[0] != want {
			t.Errorf("TCP %t: the answer is %+v, want %+v", tcp, found.Answers, want)
		}
		if want := (dnsquery.Record{Name: "a.web.shop.", TTL: 5, Type: "A", Data: "10.128.1.2"}); len(found.Additional) != 1 || found.Additional[0] != want {
			t.Errorf("TCP %t: additional is %+v, want %+v", tcp, found.Additional, want)
		}
		if got := found.Data("SRV"); !slices.Equal(got, []string{"0 50 80 a.web.shop."}) {
			t.Errorf("TCP %t: the data are %q", tcp, got)
		}
		none := ask(t, dnsquery.Query{Name: "none.shop", Server: server, TCP: tcp})
		if none.Rcode != "NXDOMAIN" || len(none.Answers) != 0 || len(none.Authority) != 1 || none.Authority[0].Type != "SOA" {
			t.Errorf("TCP %t: got %+v", tcp, none)
		}
	}
	text := ask(t, dnsquery.Query{Name: "web.shop", Server: server}).String()
	for _, want := range []string{"NOERROR from " + server.String() + ", flags qr aa rd, ", "\nanswer      _http._tcp.web.shop. 30 SRV 0 50 80 a.web.shop.\n", "\nadditional  a.web.shop. 5 A 10.128.1.2\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

// The query says by EDNS what was asked for, and nothing else.
func TestEDNS(t *testing.T) {
	received := make(chan *dns.Msg, 1)
	server := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		received <- r
		m := new(dns.Msg).SetReply(r)
		if r.IsEdns0() != nil {
			m.SetEdns0(4096, false)
		}
		_ = w.WriteMsg(m)
	})
	for _, test := range []struct {
		query  dnsquery.Query
		size   uint16
		dnssec bool
		subnet string
	}{
		{query: dnsquery.Query{UDPSize: 1000}, size: 1000},
		{query: dnsquery.Query{DNSSEC: true}, size: 1232, dnssec: true},
		{query: dnsquery.Query{Subnet: netip.MustParsePrefix("10.1.2.3/24")}, size: 1232, subnet: "10.1.2.0/24/0"},
		{query: dnsquery.Query{Subnet: netip.MustParsePrefix("fd00::1/128")}, size: 1232, subnet: "[fd00::1]/128/0"},
	} {
		test.query.Name, test.query.Server = "web.shop", server
		if answer := ask(t, test.query); answer.UDPSize != 4096 || len(answer.Additional) != 0 {
			t.Errorf("got %+v", answer)
		}
		option := (<-received).IsEdns0()
		var subnet string
		for _, o := range option.Option {
			subnet = o.String()
		}
		if option.UDPSize() != test.size || option.Do() != test.dnssec || subnet != test.subnet {
			t.Errorf("the query says %v, want %+v", option, test)
		}
	}
	if ask(t, dnsquery.Query{Name: "web.shop", Server: server}); (<-received).IsEdns0() != nil {
		t.Error("without a word about it the query has EDNS")
	}
}

// An answer that was cut short is shown as it is, and not asked for again over TCP.
func TestTruncated(t *testing.T) {
	var queries atomic.Int32
	server := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		queries.Add(1)
		m := new(dns.Msg).SetReply(r)
		for range 100 {
			m.Answer = append(m.Answer, record(t, "web.shop. 5 IN A 10.128.1.2"))
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		_ = w.WriteMsg(m)
	})
	short := ask(t, dnsquery.Query{Name: "web.shop", Server: server})
	if !short.Has("tc") || short.Size > dns.MinMsgSize || queries.Load() != 1 {
		t.Errorf("got %+v after %d queries", short, queries.Load())
	}
	whole := ask(t, dnsquery.Query{Name: "web.shop", Server: server, TCP: true})
	if whole.Has("tc") || len(whole.Answers) != 100 || whole.Size <= dns.MinMsgSize {
		t.Errorf("over TCP: %d records, %d bytes, flags %q", len(whole.Answers), whole.Size, whole.Flags)
	}
}

// The answer to another query is not taken for this one's.
func TestStrangersAnswer(t *testing.T) {
	server := serve(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		m.Id++
		m.Rcode = dns.RcodeRefused
		_ = w.WriteMsg(m)
		m.Id--
		m.Rcode = dns.RcodeSuccess
		_ = w.WriteMsg(m)
	})
	if answer := ask(t, dnsquery.Query{Name: "web.shop", Server: server}); answer.Rcode != "NOERROR" {
		t.Errorf("got %+v", answer)
	}
}

func TestNoAnswer(t *testing.T) {
	server := serve(t, func(dns.ResponseWriter, *dns.Msg) {})
	for _, tcp := range []bool{false, true} {
		query := dnsquery.Query{Name: "web.shop", Server: server, TCP: tcp, Timeout: 50 * time.Millisecond}
		_, err := query.Ask(t.Context(), new(net.Dialer).DialContext)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "asking "+server.String()+" for web.shop A") {
			t.Errorf("TCP %t: %v", tcp, err)
		}
	}
}

func TestParseServer(t *testing.T) {
	for text, want := range map[string]string{
		"10.96.0.10": "10.96.0.10:53", "fd00::a": "[fd00::a]:53", "10.96.0.10:5353": "10.96.0.10:5353", "[fd00::a]:5353": "[fd00::a]:5353",
	} {
		if got, err := dnsquery.ParseServer(text); err != nil || got.String() != want {
			t.Errorf("%q is %v, %v, want %s", text, got, err, want)
		}
	}
	if _, err := dnsquery.ParseServer("kube-dns"); err == nil {
		t.Error("a name is taken for an address")
	}
}
