// Package dnsquery asks a DNS server one question and keeps all of what it answers.
//
// A query is sent once, to one server, and an answer that was cut short stays so: what a
// resolver would make of it is not the package's affair.
package dnsquery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Query is a question and how it is asked.
type Query struct {
	// Name is taken as it is: no search list is tried.
	Name string
	// Type is a type of records, by default A.
	Type string
	// Server is the server's address and port.
	Server netip.AddrPort
	TCP    bool
	// UDPSize is the size of answers that EDNS allows; with 0 the query has no EDNS, unless
	// another field needs it.
	UDPSize uint16
	// DNSSEC asks for signatures.
	DNSSEC bool
	// Subnet is the client's subnet that EDNS says, if any.
	Subnet netip.Prefix
	// Timeout limits the query, by default to 2 seconds.
	Timeout time.Duration
}

// Port is the port of DNS servers.
const Port = 53

const (
	defaultTimeout = 2 * time.Second
	// defaultUDPSize is what EDNS allows where a query needs EDNS and says no size.
	defaultUDPSize = 1232
)

// ParseServer reads an address with or without a port.
func ParseServer(text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, Port), nil
	}
	server, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("server %q: write an IP address, or one with a port", text)
	}
	return server, nil
}

// Validate returns the first error of a query.
func (q Query) Validate() error {
	_, err := q.message()
	return err
}

// message is the query as it is sent.
func (q Query) message() (*dns.Msg, error) {
	if _, ok := dns.IsDomainName(q.Name); !ok || q.Name == "" {
		return nil, fmt.Errorf("name %q: write a domain name, such as kubernetes.default.svc.cluster.local", q.Name)
	}
	kind, ok := dns.StringToType[strings.ToUpper(cmp.Or(q.Type, "A"))]
	if !ok {
		return nil, fmt.Errorf("type %q: write a type of records, such as A, AAAA, SRV or PTR", q.Type)
	}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(q.Name), kind)
	if q.UDPSize == 0 && !q.DNSSEC && !q.Subnet.IsValid() {
		return m, nil
	}
	m.SetEdns0(cmp.Or(q.UDPSize, defaultUDPSize), q.DNSSEC)
	if q.Subnet.IsValid() {
		option := m.IsEdns0()
		option.Option = append(option.Option, clientSubnet(q.Subnet))
	}
	return m, nil
}

func clientSubnet(prefix netip.Prefix) *dns.EDNS0_SUBNET {
	subnet := &dns.EDNS0_SUBNET{
		Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(prefix.Bits()), Address: prefix.Masked().Addr().AsSlice(),
	}
	if prefix.Addr().Is6() {
		subnet.Family = 2
	}
	return subnet
}

// DialFunc connects to an address and port by tcp or udp.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Ask sends the query by a connection of its own and returns the answer. That the server
// refuses or knows no such name is an answer, and no error.
func (q Query) Ask(ctx context.Context, dial DialFunc) (Answer, error) {
	question, err := q.message()
	if err != nil {
		return Answer{}, err
	}
	if !q.Server.IsValid() {
		return Answer{}, errors.New("the query names no server")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(q.Timeout, defaultTimeout))
	defer cancel()
	begun := time.Now()
	response, size, err := exchange(ctx, q, question, dial)
	if err != nil {
		return Answer{}, fmt.Errorf("asking %s for %s %s: %w", q.Server, q.Name, cmp.Or(q.Type, "A"), err)
	}
	answer := answerOf(response)
	answer.Server, answer.Size, answer.Took = q.Server, size, time.Since(begun)
	return answer, nil
}

// exchange returns the response with its size on the wire.
func exchange(ctx context.Context, q Query, question *dns.Msg, dial DialFunc) (response *dns.Msg, size int, err error) {
	network := "udp"
	if q.TCP {
		network = "tcp"
	}
	inner, err := dial(ctx, network, q.Server.String())
	if err != nil {
		return nil, 0, err
	}
	conn := &dns.Conn{Conn: inner, UDPSize: dns.MaxMsgSize - 1}
	defer conn.Close()
	// A deadline in the past interrupts the wait.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := conn.WriteMsg(question); err != nil {
		return nil, 0, orContext(ctx, err)
	}
	for {
		text, err := conn.ReadMsgHeader(nil)
		if err != nil {
			return nil, 0, orContext(ctx, err)
		}
		response := new(dns.Msg)
		if err := response.Unpack(text); err != nil {
			return nil, 0, fmt.Errorf("reading the answer: %w", err)
		}
		// A datagram may be the answer to an earlier query from this port.
		if response.Id == question.Id {
			return response, len(text), nil
		}
	}
}

// orContext is why the context ended, if it did.
func orContext(ctx context.Context, err error) error { return cmp.Or(ctx.Err(), err) }
