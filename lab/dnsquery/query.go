// Package dnsquery sends one question to a DNS server.
//
// It sends a query once, to one server, and returns a truncated answer as it is: it is not a resolver.
package dnsquery

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Query is a question, and how to send it.
type Query struct {
	// Name is a full name: no search list is applied.
	Name string
	// Type is a type of records, by default A.
	Type string
	// Server is the server's address and port.
	Server netip.AddrPort
	TCP    bool
	// Timeout limits the query, by default to 2 seconds.
	Timeout time.Duration
}

// Answer is the response of a server.
type Answer struct {
	Server             netip.AddrPort
	Rcode              string
	Truncated          bool
	Answers, Authority []Record
}

// Record is a record of an answer.
type Record struct {
	Type string
	// Data is as in a zone file.
	Data string
}

// Data returns the data of the answer's records of a type, in order.
func (a Answer) Data(kind string) []string {
	var data []string
	for _, r := range a.Answers {
		if r.Type == kind {
			data = append(data, r.Data)
		}
	}
	return data
}

// Port is the port of DNS servers.
const Port = 53

const defaultTimeout = 2 * time.Second

// DialFunc connects to an address and port by tcp or udp.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Ask sends the query over its own connection and returns the answer. REFUSED and NXDOMAIN are
// answers, not errors.
func (q Query) Ask(ctx context.Context, dial DialFunc) (Answer, error) {
	q.Type, q.Timeout = cmp.Or(q.Type, "A"), cmp.Or(q.Timeout, defaultTimeout)
	response, err := q.exchange(ctx, dial)
	if err != nil {
		return Answer{}, fmt.Errorf("asking %s for %s %s: %w", q.Server, q.Name, q.Type, err)
	}
	return Answer{
		Server: q.Server, Rcode: dns.RcodeToString[response.Rcode], Truncated: response.Truncated,
		Answers: recordsOf(response.Answer), Authority: recordsOf(response.Ns),
	}, nil
}

func (q Query) exchange(ctx context.Context, dial DialFunc) (*dns.Msg, error) {
	kind, known := dns.StringToType[q.Type]
	if !known {
		return nil, fmt.Errorf("type %q: write a type of records, such as A, AAAA, SRV or PTR", q.Type)
	}
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	network := "udp"
	if q.TCP {
		network = "tcp"
	}
	inner, err := dial(ctx, network, q.Server.String())
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: inner, UDPSize: dns.MaxMsgSize - 1}
	defer conn.Close()
	client := &dns.Client{Timeout: q.Timeout}
	response, _, err := client.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(q.Name), kind), conn)
	return response, err
}

func recordsOf(section []dns.RR) []Record {
	var records []Record
	for _, rr := range section {
		header := rr.Header()
		records = append(records, Record{
			Type: dns.Type(header.Rrtype).String(), Data: strings.TrimPrefix(rr.String(), header.String()),
		})
	}
	return records
}
