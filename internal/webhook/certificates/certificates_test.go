package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/test/rig"
)

// scene is a control plane with a Secret, and webhook configurations that call a
// server for each replica.
type scene struct {
	*testing.T
	*kube.Client
	options Options
	// calls are the requests that the webhooks had.
	calls atomic.Int64
}

const (
	namespace = "vicinity-system"
	// patience is how long a condition may take to come about on a busy machine.
	patience = 2 * time.Minute
)

// start brings up a control plane and as many replicas as asked for, each of which is
// called by a webhook of its own, mutating or validating in turn, that fails closed.
func start(t *testing.T, replicas int, o Options) *scene {
	t.Helper()
	s := &scene{T: t, Client: rig.Start(t).Client}
	log.SetLogger(logr.Discard())
	if err := s.Apply(t.Context(), namespace, `
{apiVersion: v1, kind: Namespace, metadata: {name: vicinity-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: webhook}}
`); err != nil {
		t.Fatal(err)
	}
	o.Secret, o.Names = types.NamespacedName{Namespace: namespace, Name: "webhook"}, []string{"webhook.vicinity-system.svc", "localhost"}
	var ports []int
	for i := range replicas {
		ports = append(ports, freePort(t))
		name := fmt.Sprintf("replica-%d.vicinity.dev", i)
		if s.register(name, ports[i], i%2 == 0); i%2 == 0 {
			o.Mutating = append(o.Mutating, name)
		} else {
			o.Validating = append(o.Validating, name)
		}
	}
	s.options = o
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	for i, port := range ports {
		run := s.replica(i, port)
		work.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
	}
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// register makes a webhook configuration that calls a port of this machine for
// ConfigMaps.
func (s *scene) register(name string, port int, mutating bool) {
	s.Helper()
	kind, reinvocation := "ValidatingWebhookConfiguration", ""
	if mutating {
		kind, reinvocation = "MutatingWebhookConfiguration", "reinvocationPolicy: Never,"
	}
	if err := s.Apply(s.Context(), "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s}
webhooks:
- {name: %s, clientConfig: {url: "https://localhost:%d/"}, %s failurePolicy: Fail, timeoutSeconds: 5,
   sideEffects: None, admissionReviewVersions: [v1], objectSelector: {matchLabels: {test: rotation}},
   rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}
`, kind, name, name, port, reinvocation)); err != nil {
		s.Fatal(err)
	}
}

// replica makes a manager that serves webhooks and returns what runs it.
func (s *scene) replica(i, port int) func(context.Context) error {
	s.Helper()
	s.options.Controller = fmt.Sprintf("%s-%d", s.Name(), i)
	c, err := New(s.options)
	if err != nil {
		s.Fatal(err)
	}
	mgr, err := manager.New(s.Config(), manager.Options{
		Logger:        testr.NewWithOptions(s.T, testr.Options{LogTimestamp: true}),
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "localhost", Port: port, TLSOpts: []func(*tls.Config){c.Configure}}),
	})
	if err != nil {
		s.Fatal(err)
	}
	if err := c.Register(mgr); err != nil {
		s.Fatal(err)
	}
	handler := &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		s.calls.Add(1)
		return admission.Allowed("")
	})}
	mgr.GetWebhookServer().Register("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The API server comes back by a new connection, with a new look at the certificate.
		w.Header().Set("Connection", "close")
		handler.ServeHTTP(w, r)
	}))
	return func(ctx context.Context) error {
		go func() {
			if err := s.wait(ctx, "the certificates", func(context.Context) (string, error) { return "", c.Ready(nil) }); err != nil && ctx.Err() == nil {
				s.Error(err)
			}
		}()
		return mgr.Start(ctx)
	}
}

// wait waits until a condition holds.
func (s *scene) wait(ctx context.Context, what string, condition func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return kube.Wait(ctx, what, condition)
}

// call makes the API server call all webhooks.
func (s *scene) call(ctx context.Context) error {
	_, err := s.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "call-", Labels: map[string]string{"test": "rotation"}},
	}, metav1.CreateOptions{})
	return err
}

// bundles are the authorities in the webhook configurations.
func (s *scene) bundles(ctx context.Context) ([][]byte, error) {
	var bundles [][]byte
	add := func(c admissionregistrationv1.WebhookClientConfig) { bundles = append(bundles, c.CABundle) }
	for _, name := range s.options.Mutating {
		c, err := s.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		add(c.Webhooks[0].ClientConfig)
	}
	for _, name := range s.options.Validating {
		c, err := s.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		add(c.Webhooks[0].ClientConfig)
	}
	return bundles, nil
}

// stored is the certificate in the Secret.
func (s *scene) stored(ctx context.Context) (leaf *x509.Certificate, authority []byte, err error) {
	secret, err := s.CoreV1().Secrets(namespace).Get(ctx, s.options.Secret.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, nil, err
	}
	return pair.Leaf, secret.Data["ca.crt"], nil
}

// settled waits until all webhooks answer and have the authority that is stored, and
// returns what is.
func (s *scene) settled() (leaf *x509.Certificate, authority []byte) {
	s.Helper()
	err := s.wait(s.Context(), "the webhooks to answer", func(ctx context.Context) (string, error) {
		var err error
		if leaf, authority, err = s.stored(ctx); err != nil {
			return "", err
		}
		bundles, err := s.bundles(ctx)
		if err != nil {
			return "", err
		}
		for _, bundle := range bundles {
			if !bytes.Equal(bundle, authority) {
				return "the authority in a configuration", nil
			}
		}
		return "", s.call(ctx)
	})
	if err != nil {
		s.Fatal(err)
	}
	return leaf, authority
}

// TestRenewal renews the certificate of two replicas again and again, while the API
// server calls both by new connections. No call may fail.
func TestRenewal(t *testing.T) {
	const renewals = 2
	s := start(t, 2, Options{Lifetime: 40 * time.Second, RenewBefore: 38 * time.Second, CheckEvery: 200 * time.Millisecond})
	first, authority := s.settled()
	seen, calls, before := first, 0, s.calls.Load()
	changes := 0
	if err := s.wait(t.Context(), "renewals", func(ctx context.Context) (string, error) {
		if err := s.call(ctx); err != nil {
			t.Errorf("a call failed: %v", err)
		}
		calls++
		leaf, same, err := s.stored(ctx)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(same, authority) {
			return "", errors.New("the authority changed, which was not due")
		}
		if !leaf.Equal(seen) {
			seen = leaf
			changes++
		}
		if changes < renewals {
			return fmt.Sprintf("%d of %d", changes, renewals), nil
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	if had := s.calls.Load() - before; had < 2*int64(calls) {
		t.Errorf("the replicas had %d calls of %d that were made, twice each", had, calls)
	}
	// The replicas go on without their Secret.
	if err := errors.Join(s.CoreV1().Secrets(namespace).Delete(t.Context(), s.options.Secret.Name, metav1.DeleteOptions{}), s.call(t.Context())); err != nil {
		t.Errorf("without the Secret: %v", err)
	}
	t.Logf("%d calls of two replicas during %d renewals, none failed", calls, changes)
}

// TestNewAuthority replaces the authority. Webhooks are refused until the API server
// has heard of it, and answer then.
func TestNewAuthority(t *testing.T) {
	s := start(t, 2, Options{AuthorityLifetime: 40 * time.Second, Lifetime: 40 * time.Second, RenewBefore: 37 * time.Second, CheckEvery: 200 * time.Millisecond})
	_, first := s.settled()
	calls, failed := 0, 0
	if err := s.wait(t.Context(), "another authority", func(ctx context.Context) (string, error) {
		calls++
		if err := s.call(ctx); err != nil {
			failed++
		}
		_, authority, err := s.stored(ctx)
		if err == nil && bytes.Equal(authority, first) {
			return "the first is still there", nil
		}
		return "", err
	}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, second := s.settled()
	if bytes.Equal(first, second) {
		t.Error("the authority is the first again")
	}
	t.Logf("%d of %d calls failed before the change was seen; all answer %v after it", failed, calls, time.Since(begin).Round(time.Millisecond))
}
