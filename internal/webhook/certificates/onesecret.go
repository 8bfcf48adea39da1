package certificates

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

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
