package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// objects reads what pods refer to. It caches only the ConfigMap of the cluster's
// certificate, which nearly every pod refers to.
type objects struct {
	client  kubernetes.Interface
	mu      sync.Mutex
	roots   map[string]rootCertificate
	dns     []string
	dnsRead time.Time
}

type rootCertificate struct {
	object *corev1.ConfigMap
	read   time.Time
}

const (
	rootCertificateName = "kube-root-ca.crt"
	rootCertificateAge  = time.Minute
)

func newObjects(client kubernetes.Interface) *objects {
	return &objects{client: client, roots: map[string]rootCertificate{}}
}

func (o *objects) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if name == rootCertificateName {
		o.mu.Lock()
		have, ok := o.roots[namespace]
		o.mu.Unlock()
		if ok && time.Since(have.read) < rootCertificateAge {
			return have.object, nil
		}
	}
	object, err := o.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && name == rootCertificateName {
		o.mu.Lock()
		o.roots[namespace] = rootCertificate{object, time.Now()}
		o.mu.Unlock()
	}
	return object, err
}

func (o *objects) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return o.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// The Service of the cluster's DNS server, which has the same name in all clusters.
const (
	dnsNamespace = metav1.NamespaceSystem
	dnsService   = "kube-dns"
	dnsAge       = 10 * time.Second
)

// nameservers returns the addresses of the cluster's DNS server; none if there is no
// server.
func (o *objects) nameservers(ctx context.Context) ([]string, error) {
	o.mu.Lock()
	have, read := o.dns, o.dnsRead
	o.mu.Unlock()
	if len(have) > 0 && time.Since(read) < dnsAge {
		return have, nil
	}
	service, err := o.client.CoreV1().Services(dnsNamespace).Get(ctx, dnsService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		service, err = &corev1.Service{}, nil
	}
	if err != nil {
		return nil, err
	}
	addrs := slices.DeleteFunc(service.Spec.ClusterIPs, func(ip string) bool { return ip == corev1.ClusterIPNone })
	o.mu.Lock()
	o.dns, o.dnsRead = addrs, time.Now()
	o.mu.Unlock()
	return addrs, nil
}

// token requests a token of the pod's service account that is bound to the pod.
func (o *objects) token(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (*authenticationv1.TokenRequestStatus, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	request, err := o.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &request.Status, nil
}
