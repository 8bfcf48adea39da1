package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// apiTimeout limits each request, since a paused component never answers.
const apiTimeout = 5 * time.Second

type client struct {
	http http.Client
}

// dialer opens a connection, possibly in another network namespace.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newClient makes a client that trusts an authority. If a certificate is given, the client
// authenticates with it. It does not keep connections, since components restart.
func newClient(dial dialer, ca []byte, certificate *Pair) (*client, error) {
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}
	if certificate != nil {
		own, err := tls.X509KeyPair(certificate.Certificate, certificate.Key)
		if err != nil {
			return nil, fmt.Errorf("reading a client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return &client{http: http.Client{
		Timeout:   apiTimeout,
		Transport: &http.Transport{DialContext: dial, TLSClientConfig: config, DisableKeepAlives: true},
	}}, nil
}

func (c *client) get(ctx context.Context, url string) error {
	_, err := c.read(ctx, url)
	return err
}

func (c *client) read(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: reading the answer: %w", url, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s: %s: %s", url, response.Status, lastLine(body))
	}
	return body, nil
}

func lastLine(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.TrimSpace(lines[len(lines)-1]))
}
