// Package certificates gives the admission webhooks a certificate that the API server
// trusts, and renews it without a restart long before it expires.
//
// The rotator of cert-controller makes an authority and a certificate, keeps both in
// one Secret, and writes the authority into the webhook configurations. This package
// runs the rotator and serves the certificate as soon as the Secret changes. Nothing is mounted:
// no kubelet delays a renewal, and the key stays in memory.
//
// All replicas do this. If two write the Secret at once, one gets a conflict and uses the other's certificate.
//
// # What it needs
//
// The Secret must exist, and may be empty; the chart makes it. The permissions are
//
//   - secrets, in Vicinity's namespace: get, list, watch and update of the one Secret. The
//     right to create Secrets cannot be limited to a name, and would give access to the tokens of all
//     accounts of the namespace. So only the chart creates the Secret again after a deletion.
//   - mutatingwebhookconfigurations and validatingwebhookconfigurations of the group
//     admissionregistration.k8s.io: get, list and watch, and update of those named.
//     The rotator watches a kind only if it has a name of that kind.
//
// It also needs a writable folder for temporary files, where the rotator waits for the
// certificate, without its key.
//
// # When the authority changes
//
// A new certificate of the same authority is trusted at once. The authority is valid for ten years, and is replaced together with
// its certificate. An API server refuses the new certificate until it sees the new authority. For less than a second, the
// failurePolicy of the webhook configurations holds.
package certificates

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options configure the certificates. The authority is valid for ten years, the certificate for one. Both are
// renewed 90 days before they end, which is checked twice a day and whenever the Secret changes.
type Options struct {
	// Secret keeps the authority and the certificate.
	Secret types.NamespacedName
	// Names are the host names of the webhooks: SERVICE.NAMESPACE.svc.
	Names []string
	// Mutating and Validating are the names of the webhook configurations that get the authority.
	Mutating, Validating []string

	// Clients has the authorities of clients. A client must show a certificate of one of them. Without Clients, the webhooks answer
	// every client that can connect.
	Clients *Clients
}

// Certificates are the serving certificates of the webhooks of a process.
type Certificates struct {
	options Options
	current atomic.Pointer[tls.Certificate]
	// written is closed when the authority is in the webhook configurations.
	written chan struct{}
}

// New makes Certificates, which have a certificate once a manager runs that they are registered with.
func New(o Options) (*Certificates, error) {
	switch {
	case o.Secret.Name == "" || o.Secret.Namespace == "":
		return nil, fmt.Errorf("secret %q of the webhooks' certificate: a namespace and a name are required", o.Secret)
	case len(o.Names) == 0:
		return nil, errors.New("names of the webhooks' certificate: at least one is required, SERVICE.NAMESPACE.svc")
	}
	return &Certificates{options: o, written: make(chan struct{})}, nil
}

// Configure has a server use the certificates. It is a TLSOpt of the manager's webhook server.
func (c *Certificates) Configure(config *tls.Config) {
	config.GetCertificate = c.get
	if c.options.Clients != nil {
		// VerifyConnection also runs for resumed sessions.
		config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, c.verifyClient
	}
}

var errNone = errors.New("there is no certificate yet")

func (c *Certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, errNone
}

// Ready is a check for readyz. It passes once the process has a certificate and the webhook configurations have its authority.
func (c *Certificates) Ready(*http.Request) error {
	select {
	case <-c.written:
	default:
		return errors.New("the webhook configurations lack the authority of the certificate so far")
	}
	_, err := c.get(nil)
	return err
}

// Register makes a manager create, renew and load the certificates.
func (c *Certificates) Register(mgr manager.Manager) error {
	folder, err := os.MkdirTemp("", "vicinity-certificates-")
	if err != nil {
		return fmt.Errorf("making a folder for the rotator's certificate: %w", err)
	}
	o := c.options
	r := &rotator.CertRotator{
		SecretKey:      o.Secret,
		CertDir:        folder,
		CAName:         "vicinity-ca",
		CAOrganization: "vicinity",
		DNSName:        o.Names[0],
		ExtraDNSNames:  o.Names[1:],
		IsReady:        c.written,
		FieldOwner:     "vicinity-controller",
	}
	for _, name := range o.Mutating {
		r.Webhooks = append(r.Webhooks, rotator.WebhookInfo{Name: name, Type: rotator.Mutating})
	}
	for _, name := range o.Validating {
		r.Webhooks = append(r.Webhooks, rotator.WebhookInfo{Name: name, Type: rotator.Validating})
	}
	if err := rotator.AddRotator(oneSecret{mgr, o.Secret}, r); err != nil {
		return errors.Join(fmt.Errorf("adding the rotator of certificates: %w", err), os.RemoveAll(folder))
	}
	return mgr.Add(&loader{
		certificates: c, manager: mgr, folder: folder, log: mgr.GetLogger().WithName("certificates"),
	})
}
