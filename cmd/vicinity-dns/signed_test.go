package main

import (
	"crypto/ecdsa"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// keys sign a zone.
type keys struct {
	file   string // without the extension
	public *dns.DNSKEY
}

func signingKeys(t testing.TB) keys {
	t.Helper()
	public := &dns.DNSKEY{Hdr: dns.RR_Header{Name: "cluster.local.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600}, Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	private, err := public.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "Kcluster.local.+013+00001")
	if err := os.WriteFile(file+".key", []byte(public.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".private", []byte(public.PrivateKeyString(private.(*ecdsa.PrivateKey))), 0o600); err != nil {
		t.Fatal(err)
	}
	return keys{file, public}
}

// verify checks the signature of each set of records in a message.
func (k keys) verify(t testing.TB, m *dns.Msg) {
	t.Helper()
	for _, section := range [][]dns.RR{m.Answer, m.Ns} {
		sets := map[uint16][]dns.RR{}
		var signatures []*dns.RRSIG
		for _, rr := range section {
			if sig, ok := rr.(*dns.RRSIG); ok {
				signatures = append(signatures, sig)
			} else {
				sets[rr.Header().Rrtype] = append(sets[rr.Header().Rrtype], rr)
			}
		}
		if len(signatures) != len(sets) {
			t.Errorf("%d sets of records have %d signatures:\n%v", len(sets), len(signatures), m)
		}
		for _, sig := range signatures {
			if err := sig.Verify(k.public, sets[sig.TypeCovered]); err != nil || !sig.ValidityPeriod(time.Now()) {
				t.Errorf("%s: %v", dns.TypeToString[sig.TypeCovered], err)
			}
		}
	}
}
