package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// loader loads the certificate whenever the Secret changes.
type loader struct {
	certificates *Certificates
	manager      manager.Manager
	folder       string
	log          logr.Logger
}

// NeedLeaderElection makes the loader run in all replicas.
func (*loader) NeedLeaderElection() bool { return false }

// Start watches the Secret until the context ends.
func (l *loader) Start(ctx context.Context) error {
	defer func() {
		if err := os.RemoveAll(l.folder); err != nil {
			l.log.Error(err, "Cannot remove a temporary folder", "folder", l.folder)
		}
	}()
	secret := l.certificates.options.Secret
	watched, err := cache.New(l.manager.GetConfig(), cache.Options{
		HTTPClient: l.manager.GetHTTPClient(), Scheme: l.manager.GetScheme(), Mapper: l.manager.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			secret.Namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, secret.Name)},
		}}},
	})
	if err != nil {
		return fmt.Errorf("watching Secret %s: %w", secret, err)
	}
	informer, err := watched.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watching Secret %s: %w", secret, err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    l.load,
		UpdateFunc: func(_, object any) { l.load(object) },
		DeleteFunc: l.logDeletion,
	}); err != nil {
		return fmt.Errorf("watching Secret %s: %w", secret, err)
	}
	return watched.Start(ctx)
}

var errGone = errors.New("webhooks are served while this process lives, but the next one cannot start without the Secret: create it with \"helm upgrade\"")

// logDeletion logs that the Secret was deleted. That has no effect until a process starts.
func (l *loader) logDeletion(any) {
	l.log.Error(errGone, "Secret of the certificate is gone", "secret", l.certificates.options.Secret)
}

// load starts to serve the certificate of a Secret. An invalid one changes nothing.
func (l *loader) load(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[corev1.TLSCertKey]) == 0 {
		return
	}
	log := l.log.WithValues("secret", client.ObjectKeyFromObject(secret))
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		log.Error(err, "Secret has no usable certificate")
		return
	}
	if before := l.certificates.current.Swap(&certificate); before != nil && certificate.Leaf.Equal(before.Leaf) {
		return
	}
	log.Info("Webhooks have a certificate", "names", certificate.Leaf.DNSNames, "notAfter", certificate.Leaf.NotAfter)
	if err := os.WriteFile(filepath.Join(l.folder, corev1.TLSCertKey), secret.Data[corev1.TLSCertKey], 0o600); err != nil {
		log.Error(err, "Cannot tell the rotator about the certificate")
	}
}

// oneSecret is a manager whose clients list and watch a single Secret. The rotator makes its own cache without options, which would
// list all Secrets of the namespace.
type oneSecret struct {
	manager.Manager
	secret types.NamespacedName
}

// GetConfig configures the clients of the rotator's cache.
func (m oneSecret) GetConfig() *rest.Config {
	config := rest.CopyConfig(m.Manager.GetConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return selectSecret{next, m.secret} })
	return config
}

// selectSecret adds the name of the Secret to lists and watches, as a role that names the Secret requires.
type selectSecret struct {
	next   http.RoundTripper
	secret types.NamespacedName
}

// RoundTrip implements http.RoundTripper.
func (s selectSecret) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/api/v1/namespaces/"+s.secret.Namespace+"/secrets") {
		request = request.Clone(request.Context())
		query := request.URL.Query()
		query.Set("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, s.secret.Name).String())
		request.URL.RawQuery = query.Encode()
	}
	return s.next.RoundTrip(request)
}
