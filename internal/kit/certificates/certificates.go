// Package certificates gives the admission webhooks a certificate that the API server
// trusts, and renews it without a restart long before it expires.
//
// The rotator of cert-controller makes an authority and a certificate, keeps both in
// one Secret, and writes the authority into the webhook configurations. This package
// runs it, and serves the certificate as soon as the Secret changes. Nothing is mounted, so
// there is no wait for a kubelet, and the key is in memory only.
//
// All replicas do the same. Of two that write the Secret at once, one gets a conflict and
// takes what the other wrote.
//
// # What it needs
//
// The Secret must exist, and may be empty; the chart makes it. The permissions are
//
//   - secrets, in Vicinity's namespace: get, list, watch and update of the one Secret. The
//     right to create Secrets cannot be limited to a name, and gives the tokens of all
//     accounts of the namespace, so a deleted Secret is made anew by the chart alone.
//   - mutatingwebhookconfigurations and validatingwebhookconfigurations of the group
//     admissionregistration.k8s.io: get, list and watch, and update of those named.
//     The rotator watches a kind only if it is given a name of it.
//
// and there must be a writable folder for temporary files, where the rotator waits for the
// certificate, without its key.
//
// # When the authority changes
//
// A new certificate of the same authority is trusted at once. The authority, which is valid
// for ten years, is replaced together with the certificate that it signed, and an API server
// refuses the new certificate until it sees the new authority: for less than a second the
// webhooks are not called, and the failurePolicy of their configuration holds.
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

// Options are what the certificates are for. The authority is valid for ten years, the certificate for one. Both are
// renewed 90 days before they end, which is looked at twice a day and whenever the Secret changes.
type Options struct {
	// Secret is where the authority and the certificate are kept.
	Secret types.NamespacedName
	// Names are those that the API server calls the webhooks by: SERVICE.NAMESPACE.svc.
	Names []string
	// Mutating and Validating are the names of the webhook configurations that the
	// authority is written into.
	Mutating, Validating []string

	// Clients has the authorities of clients. A client must show a certificate of one of them. Without Clients, the webhooks answer
	// anybody who can connect.
	Clients *Clients
}

// Certificates are those that the webhooks of a process serve with.
type Certificates struct {
	options Options
	current atomic.Pointer[tls.Certificate]
	// written is closed when the authority is in the webhook configurations.
	written chan struct{}
}

// New makes Certificates. There is none to serve with until a manager runs that they are
// registered with.
func New(o Options) (*Certificates, error) {
	switch {
	case o.Secret.Name == "" || o.Secret.Namespace == "":
		return nil, fmt.Errorf("secret %q of the webhooks' certificate: it needs a namespace and a name", o.Secret)
	case len(o.Names) == 0:
		return nil, errors.New("names of the webhooks' certificate: there must be one, SERVICE.NAMESPACE.svc")
	}
	return &Certificates{options: o, written: make(chan struct{})}, nil
}

// Configure has a server use the certificates. It is one of the TLSOpts of the
// manager's webhook server, which is made before the manager.
func (c *Certificates) Configure(config *tls.Config) {
	config.GetCertificate = c.get
	if c.options.Clients != nil {
		// Sessions that are resumed are verified, too.
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

// Ready is a check for readyz: it passes when there is a certificate and the webhook
// configurations have its authority.
func (c *Certificates) Ready(*http.Request) error {
	select {
	case <-c.written:
	default:
		return errors.New("the webhook configurations do not have the authority of the certificate yet")
	}
	_, err := c.get(nil)
	return err
}

// Register has a manager make, renew and load the certificates.
func (c *Certificates) Register(mgr manager.Manager) error {
	folder, err := os.MkdirTemp("", "vicinity-certificates-")
	if err != nil {
		return fmt.Errorf("making a folder for the rotator's mark: %w", err)
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
