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

// Clients are the authorities of the webhooks' clients. Each connection checks their file: the kubelet replaces it when the ConfigMap
// changes, and the removal of an authority must not wait for a restart.
type Clients struct {
	file string
	log  logr.Logger

	mu      sync.Mutex
	text    string
	pool    *x509.CertPool
	failure string // of the last reading, empty if it succeeded
}

// ReadClients reads the authorities of clients from a file.
func ReadClients(file string, log logr.Logger) (*Clients, error) {
	c := &Clients{file: file, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the file if it has changed. On failure the authorities stay.
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
			c.log.Error(err, "Cannot read the authorities of clients; the previous ones stay trusted", "file", c.file)
		} else {
			c.log.Info("The authorities of clients are readable again", "file", c.file)
		}
	}
	return c.pool
}

// verifyClient accepts a client with a certificate of the authorities, and this process itself.
func (c *Certificates) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
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

// Serving is a check for readyz. It passes if the webhooks accept a connection at a port. If they require a client certificate, the
// check shows their own.
func (c *Certificates) Serving(port int) func(*http.Request) error {
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, // only the connection is checked, and no data is sent
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
