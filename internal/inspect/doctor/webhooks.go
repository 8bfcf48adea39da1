package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/inspect"
)

// expiresSoon is how long before its end the webhooks' authority causes a warning. The controller renews it 90 days
// before.
const expiresSoon = 30 * 24 * time.Hour

// Backend is the state of a Service of webhooks.
type Backend struct {
	// Exists says that the Service does, and Ready counts its endpoints.
	Exists bool
	Ready  int
	// Unreached is why the API server got no answer from it, empty if it got one or was not asked.
	Unreached string
}

// checkWebhooks checks webhook configurations, their certificates and their Services.
func (e *examination) checkWebhooks() {
	if !e.isInstalled() || !e.knows(SourceWebhooks) {
		return // without a controller they are leftovers
	}
	controller := &e.Controllers[0]
	for _, wanted := range []struct {
		kind string
		is   bool
	}{{inspect.Mutating, controller.Mutates}, {inspect.Validating, controller.Validates}} {
		if wanted.is && !slices.ContainsFunc(e.Webhooks, func(w inspect.WebhookConfiguration) bool {
			return w.Kind == wanted.kind && w.Name == controller.WebhookName
		}) {
			object := Object{Kind: wanted.kind, Name: controller.WebhookName}
			e.add(webhookMissing, object, fmt.Sprintf("There is no %s, which %s serves.", object, objectOf("Deployment", controller)), e.upgrade())
		}
	}
	var asked []types.NamespacedName
	for i := range e.Webhooks {
		w := &e.Webhooks[i]
		e.checkAuthority(w)
		for _, webhook := range w.Webhooks {
			client := webhook.Client
			if client.Service == nil {
				continue
			}
			name := types.NamespacedName{Namespace: client.Service.Namespace, Name: client.Service.Name}
			if !slices.Contains(asked, name) {
				asked = append(asked, name)
				e.checkBackend(w, name)
			}
		}
	}
}

// checkAuthority checks the certificates by which the API server trusts the webhooks of a configuration. The controller
// writes the same ones for all webhooks; one that differs is enough for a finding.
func (e *examination) checkAuthority(w *inspect.WebhookConfiguration) {
	object := Object{Kind: w.Kind, Name: w.Name}
	next := "kubectl -n " + e.home() + " rollout restart deployment/" + e.Controllers[0].Name
	for i := range w.Webhooks {
		from, until, found := validity(w.Webhooks[i].Client.CABundle)
		switch now := e.now(); {
		case !found:
			e.add(webhookWithoutAuthority, object, fmt.Sprintf("%s has a webhook with no certificate in its caBundle.", object), next)
		case until.Before(now):
			e.add(webhookExpired, object, fmt.Sprintf("The certificates of %s expired on %s.", object, day(until)), next)
		case from.After(now):
			e.add(webhookExpired, object, fmt.Sprintf("The certificates of %s are not valid before %s.", object, day(from)), next)
		case until.Before(now.Add(expiresSoon)):
			e.add(webhookExpires, object, fmt.Sprintf("The certificates of %s expire on %s.", object, day(until)), next)
		default:
			continue
		}
		return
	}
}

// validity returns the time in which any certificate of a bundle is valid.
func validity(bundle []byte) (from, until time.Time, found bool) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return from, until, found
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if !found || certificate.NotAfter.After(until) {
			until = certificate.NotAfter
		}
		if !found || certificate.NotBefore.Before(from) {
			from = certificate.NotBefore
		}
		found = true
	}
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func (e *examination) checkBackend(w *inspect.WebhookConfiguration, name types.NamespacedName) {
	if !e.knows(SourceBackends) {
		return
	}
	object, backend := Object{Kind: "Service", Namespace: name.Namespace, Name: name.Name}, e.Backends[name]
	endpoints := "kubectl -n " + name.Namespace + " get endpointslices -l kubernetes.io/service-name=" + name.Name
	switch {
	case !backend.Exists:
		e.add(webhookWithoutService, Object{Kind: w.Kind, Name: w.Name}, fmt.Sprintf("%s %s asks %s, which does not exist.", w.Kind, w.Name, object), e.upgrade())
	case backend.Ready == 0:
		e.add(webhookWithoutEndpoint, object, fmt.Sprintf("%s has no ready endpoint.", object), endpoints)
	case backend.Unreached != "":
		e.add(webhookUnreachable, object, fmt.Sprintf("The API server does not reach %s: %s.", object, backend.Unreached), endpoints)
	}
}
