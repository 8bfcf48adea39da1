package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"vicinity.dev/vicinity/lab/state"
)

// Certificates outlive every lab and are never renewed; an authority lives twice as long.
// They are valid from an hour ago, for slow clocks.
const (
	validity = 10 * 365 * 24 * time.Hour
	backdate = time.Hour
)

// Identity is the subject of a certificate: a client has a user name and groups, a server
// also has DNS names or addresses. A Peer is both, for servers that connect to each other.
type Identity struct {
	Name   string
	Groups []string
	DNS    []string
	IPs    []netip.Addr
	Peer   bool
}

// Pair is a certificate and its key as PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Authority issues certificates.
type Authority struct {
	// PEM is the authority's own certificate.
	PEM []byte

	pair tls.Certificate
}

// OpenAuthority opens, from the folder of a lab's certificates, the authority that clients and
// servers of its API trust.
func OpenAuthority(pki string) (*Authority, error) {
	return openAuthority(filepath.Join(pki, caName))
}

// Issue makes a certificate with a new key.
func (a *Authority) Issue(id Identity) (Pair, error) {
	template := leaf(id, time.Now())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key for %s: %w", id.Name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.pair.Leaf, key.Public(), a.pair.PrivateKey)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for %s: %w", id.Name, err)
	}
	return encode(der, key)
}

func leaf(id Identity, now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: id.Name, Organization: id.Groups},
		DNSNames:  id.DNS,
		NotBefore: now.Add(-backdate),
		NotAfter:  now.Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	for _, ip := range id.IPs {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	server := len(id.DNS) > 0 || len(id.IPs) > 0
	if server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if !server || id.Peer {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return template
}

// newAuthority makes an authority and writes base.crt and base.key.
func newAuthority(base, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of authority %s: %w", name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(2 * validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of authority %s: %w", name, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	if err := pair.write(base); err != nil {
		return nil, err
	}
	return openAuthority(base)
}

func openAuthority(base string) (*Authority, error) {
	certificate, err := os.ReadFile(base + ".crt")
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(base + ".key")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s.crt and its key: %w", base, err)
	}
	return &Authority{PEM: certificate, pair: pair}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("writing a private key: %w", err)
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// write writes base.key, then base.crt: if the certificate exists, so does the key.
func (p Pair) write(base string) error {
	if err := state.WriteFile(base+".key", p.Key, 0o600); err != nil {
		return err
	}
	return state.WriteFile(base+".crt", p.Certificate, 0o644)
}
