package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Clients are the authorities of those who may ask the webhooks. Their file is looked at for each connection: a node
// replaces it when the ConfigMap changes, and an authority that was taken out must not wait for a restart.
type Clients struct {
	file string
	log  logr.Logger

	mu      sync.Mutex
	text    string
	pool    *x509.CertPool
	failure string // why the file could not be read last
}

// ReadClients reads the authorities of clients from a file.
func ReadClients(file string, log logr.Logger) (*Clients, error) {
	c := &Clients{file: file, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the file again, if it has changed. What cannot be read leaves the authorities as they were.
func (c *Clients) read() error {
	text, err := os.ReadFile(c.file)
	if err != nil || string(text) == c.text {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no certificate in PEM", c.file)
	}
	c.text, c.pool = string(text), pool
	return nil
}

func (c *Clients) authorities() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	failure := ""
	err := c.read()
	if err != nil {
		failure = err.Error()
	}
	if failure != c.failure {
		if c.failure = failure; err != nil {
			c.log.Error(err, "The authorities of clients cannot be read: those from before stay trusted", "file", c.file)
		} else {
			c.log.Info("The authorities of clients can be read again", "file", c.file)
		}
	}
	return c.pool
}

// verifyClient accepts a client with a certificate of the authorities, and the process itself.
func (c *Certificates) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("a client has no certificate")
	}
	leaf := state.PeerCertificates[0]
	if own := c.current.Load(); own != nil && own.Leaf != nil && leaf.Equal(own.Leaf) {
		return nil
	}
	options := x509.VerifyOptions{
		Roots: c.options.Clients.authorities(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, between := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(between)
	}
	_, err := leaf.Verify(options)
	return err
}

// Serving is a check for readyz: it passes when the webhooks accept a connection at a port. Where they ask for a certificate, it shows
// their own.
func (c *Certificates) Serving(port int) func(*http.Request) error {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, // whether there is a server is asked, and nothing is said to it
		MinVersion:         tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.get(nil)
		},
	}}
	return func(r *http.Request) error {
		connection, err := dialer.DialContext(r.Context(), "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("connecting to the webhooks: %w", err)
		}
		return connection.Close()
	}
}
