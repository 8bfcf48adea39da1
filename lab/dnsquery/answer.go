package dnsquery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Answer is what a server answered.
type Answer struct {
	Server netip.AddrPort `json:"server"`
	// Rcode is NOERROR, NXDOMAIN, SERVFAIL and so on.
	Rcode string `json:"rcode"`
	// Flags are those of the header that are set, such as aa and tc.
	Flags      []string `json:"flags"`
	Answers    []Record `json:"answers"`
	Authority  []Record `json:"authority"`
	Additional []Record `json:"additional"`
	// UDPSize is the size that the server's EDNS says, or 0 without EDNS.
	UDPSize uint16 `json:"udpSize,omitempty"`
	// Size is that of the answer on the wire in bytes.
	Size int           `json:"size"`
	Took time.Duration `json:"took"`
}

// Record is a record of an answer.
type Record struct {
	Name string `json:"name"`
	TTL  uint32 `json:"ttl"`
	Type string `json:"type"`
	// Data is as in a zone file.
	Data string `json:"data"`
}

// Has reports whether a flag is set.
func (a Answer) Has(flag string) bool { return slices.Contains(a.Flags, flag) }

// Data are those of the answer's records of a type, in their order.
func (a Answer) Data(kind string) []string {
	var data []string
	for _, r := range a.Answers {
		if r.Type == kind {
			data = append(data, r.Data)
		}
	}
	return data
}

// String formats an answer for people.
func (a Answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s, flags %s, %d bytes, %.1f ms\n", a.Rcode, a.Server, strings.Join(a.Flags, " "), a.Size, float64(a.Took.Microseconds())/1000)
	for _, section := range []struct {
		name    string
		records []Record
	}{{"answer", a.Answers}, {"authority", a.Authority}, {"additional", a.Additional}} {
		for _, r := range section.records {
			fmt.Fprintf(&b, "%-10s  %s %d %s %s\n", section.name, r.Name, r.TTL, r.Type, r.Data)
		}
	}
	return b.String()
}

func answerOf(m *dns.Msg) Answer {
	answer := Answer{
		Rcode: dns.RcodeToString[m.Rcode], Flags: flagsOf(m),
		Answers: recordsOf(m.Answer), Authority: recordsOf(m.Ns), Additional: recordsOf(m.Extra),
	}
	if answer.Rcode == "" {
		answer.Rcode = fmt.Sprintf("RCODE%d", m.Rcode)
	}
	if option := m.IsEdns0(); option != nil {
		answer.UDPSize = option.UDPSize()
	}
	return answer
}

func flagsOf(m *dns.Msg) []string {
	flags := []string{}
	for _, flag := range []struct {
		name string
		set  bool
	}{
		{"qr", m.Response},
		{"aa", m.Authoritative},
		{"tc", m.Truncated},
		{"rd", m.RecursionDesired},
		{"ra", m.RecursionAvailable},
		{"ad", m.AuthenticatedData},
		{"cd", m.CheckingDisabled},
	} {
		if flag.set {
			flags = append(flags, flag.name)
		}
	}
	return flags
}

// recordsOf are the records of a section, without that of EDNS, which is no data.
func recordsOf(section []dns.RR) []Record {
	records := []Record{}
	for _, rr := range section {
		header := rr.Header()
		if header.Rrtype == dns.TypeOPT {
			continue
		}
		records = append(records, Record{
			Name: header.Name, TTL: header.Ttl, Type: dns.Type(header.Rrtype).String(),
			Data: strings.TrimPrefix(rr.String(), header.String()),
		})
	}
	return records
}
