package certificates

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// roundTrip is a function that answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestOneSecretIsAskedFor lists and watches the Secret by its name, and leaves all else.
func TestOneSecretIsAskedFor(t *testing.T) {
	sent := ""
	s := selectSecret{secret: types.NamespacedName{Namespace: "system", Name: "webhook"}, next: roundTrip(func(request *http.Request) (*http.Response, error) {
		sent = request.URL.RequestURI()
		return nil, nil
	})}
	for _, test := range []struct{ method, asked, sent string }{
		{"GET", "/api/v1/namespaces/system/secrets?limit=500&resourceVersion=0", "/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3Dwebhook&limit=500&resourceVersion=0"},
		{"GET", "/prefix/api/v1/namespaces/system/secrets?watch=true", "/prefix/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3Dwebhook&watch=true"},
		{"GET", "/api/v1/namespaces/system/secrets/webhook", "/api/v1/namespaces/system/secrets/webhook"},
		{"GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?watch=true", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?watch=true"},
		{"PUT", "/api/v1/namespaces/system/secrets/webhook", "/api/v1/namespaces/system/secrets/webhook"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "https://api"+test.asked, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.RoundTrip(request); err != nil || sent != test.sent {
			t.Errorf("%s %s: sent %s, %v; want %s", test.method, test.asked, sent, err, test.sent)
		}
		if got := request.URL.RequestURI(); got != test.asked {
			t.Errorf("the request of the client is changed to %s", got)
		}
	}
}
