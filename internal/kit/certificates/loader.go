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

// loader takes the certificate from the Secret each time it changes.
type loader struct {
	certificates *Certificates
	manager      manager.Manager
	folder       string
	log          logr.Logger
}

// NeedLeaderElection has the loader run in all replicas.
func (*loader) NeedLeaderElection() bool { return false }

// Start watches the Secret until the context ends.
func (l *loader) Start(ctx context.Context) error {
	defer func() {
		if err := os.RemoveAll(l.folder); err != nil {
			l.log.Error(err, "Temporary folder stays", "folder", l.folder)
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
		DeleteFunc: l.gone,
	}); err != nil {
		return fmt.Errorf("watching Secret %s: %w", secret, err)
	}
	return watched.Start(ctx)
}

var errGone = errors.New("webhooks are served as long as this process lives, and the next one cannot start without the Secret: upgrade the chart's release to have it made")

// gone logs that the Secret was deleted, which has no effect until a process starts.
func (l *loader) gone(any) {
	l.log.Error(errGone, "Secret of the certificate is gone", "secret", l.certificates.options.Secret)
}

// load serves with a certificate from now on. One that is invalid changes nothing.
func (l *loader) load(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[corev1.TLSCertKey]) == 0 {
		return
	}
	log := l.log.WithValues("secret", client.ObjectKeyFromObject(secret))
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		log.Error(err, "Secret holds no certificate that can be used")
		return
	}
	if before := l.certificates.current.Swap(&certificate); before != nil && certificate.Leaf.Equal(before.Leaf) {
		return
	}
	log.Info("Webhooks have a certificate", "names", certificate.Leaf.DNSNames, "notAfter", certificate.Leaf.NotAfter)
	if err := os.WriteFile(filepath.Join(l.folder, corev1.TLSCertKey), secret.Data[corev1.TLSCertKey], 0o600); err != nil {
		log.Error(err, "Rotator cannot be told that there is a certificate")
	}
}

// oneSecret is a manager that shows a single Secret of the API. The rotator makes a cache of
// its own without options, which would list all Secrets of the namespace.
type oneSecret struct {
	manager.Manager
	secret types.NamespacedName
}

// GetConfig is how the rotator's cache reaches the API.
func (m oneSecret) GetConfig() *rest.Config {
	config := rest.CopyConfig(m.Manager.GetConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return selectSecret{next, m.secret} })
	return config
}

// selectSecret asks for a Secret by its name where Secrets are listed and watched, which is
// what a role that names the Secret allows.
type selectSecret struct {
	next   http.RoundTripper
	secret types.NamespacedName
}

// RoundTrip sends a request.
func (s selectSecret) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/api/v1/namespaces/"+s.secret.Namespace+"/secrets") {
		request = request.Clone(request.Context())
		query := request.URL.Query()
		query.Set("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, s.secret.Name).String())
		request.URL.RawQuery = query.Encode()
	}
	return s.next.RoundTrip(request)
}
