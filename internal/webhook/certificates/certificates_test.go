package certificates

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// secretOf is a Secret with a certificate.
func secretOf(t *testing.T, certificate *tls.Certificate) *corev1.Secret {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(certificate.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
	}}
}

// A certificate is served as soon as the Secret has it. A Secret that is deleted or holds none takes nothing away.
func TestRenewal(t *testing.T) {
	c := &Certificates{}
	l := &loader{certificates: c, folder: t.TempDir(), log: logr.Discard()}
	if _, err := c.get(nil); err == nil {
		t.Error("a certificate is served before there is one")
	}
	first, second := issue(t, nil), issue(t, nil)
	for _, step := range []struct {
		name string
		load func()
		want *tls.Certificate
	}{
		{"the first", func() { l.load(secretOf(t, first)) }, first},
		{"renewed", func() { l.load(secretOf(t, second)) }, second},
		{"empty", func() { l.load(&corev1.Secret{}) }, second},
		{"broken", func() { l.load(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: []byte("x")}}) }, second},
		{"deleted", func() { l.gone(nil) }, second},
	} {
		step.load()
		if got, err := c.get(nil); err != nil || !got.Leaf.Equal(step.want.Leaf) {
			t.Errorf("%s: served is %v, %v", step.name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(l.folder, corev1.TLSCertKey)); err != nil {
		t.Errorf("the rotator is not told: %v", err)
	}
}
