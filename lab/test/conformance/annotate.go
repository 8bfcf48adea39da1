package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/test/kube"
)

// annotator is a webhook that annotates the Services of tests, because the tests do not know
// Vicinity. It also records Vicinity's writes to these Services.
type annotator struct {
	// handOver annotates for vicinity-proxy, prefer for traffic within zones.
	handOver, prefer bool

	// These are set while the webhook runs.
	client *kube.Client
	server *http.Server

	mu sync.Mutex
	// annotated has the Services of tests by namespace and name. Of these, served belong to
	// vicinity-proxy, and planned have a plan.
	annotated, served, planned map[string]bool
}

func newAnnotator(handOver, prefer bool) *annotator {
	return &annotator{
		handOver: handOver, prefer: prefer,
		annotated: map[string]bool{}, served: map[string]bool{}, planned: map[string]bool{},
	}
}

// missing returns the annotations that a Service lacks.
func (a *annotator) missing(s *corev1.Service) map[string]string {
	proxy, named := s.Labels[v1alpha1.LabelServiceProxyName]
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName, s.Spec.ClusterIP == corev1.ClusterIPNone,
		named && proxy != v1alpha1.ServiceProxyName:
		return nil // no proxy of the lab serves it
	}
	missing := map[string]string{}
	if _, given := s.Annotations[v1alpha1.AnnotationProxy]; a.handOver && !given {
		missing[v1alpha1.AnnotationProxy] = "true"
	}
	if a.prefer && !asks(s) {
		missing[v1alpha1.AnnotationSameZone] = v1alpha1.Prefer
	}
	return missing
}

func asks(s *corev1.Service) bool {
	for _, name := range []string{
		v1alpha1.AnnotationSameNode, v1alpha1.AnnotationSameZone, v1alpha1.AnnotationSameRegion, v1alpha1.AnnotationTopologyKeys,
		v1alpha1.AnnotationTopologyMode, v1alpha1.AnnotationTopologyAwareHints,
	} {
		if _, given := s.Annotations[name]; given {
			return true
		}
	}
	_, ownZone := s.Labels[v1alpha1.LabelOwnZone]
	return ownZone || s.Spec.TrafficDistribution != nil
}

// ServeHTTP answers an API server. When the answer is not a review, the request fails.
func (a *annotator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var err error
	if err = json.NewDecoder(r.Body).Decode(&review); err == nil {
		review.Response, err = a.review(review.Request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server may be gone
}

func (a *annotator) review(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request == nil {
		return nil, errors.New("the review has no request")
	}
	service := &corev1.Service{}
	if err := json.Unmarshal(request.Object.Raw, service); err != nil {
		return nil, fmt.Errorf("reading a Service: %w", err)
	}
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	var missing map[string]string
	if request.SubResource == "" {
		missing = a.missing(service)
	}
	if len(missing) > 0 {
		all := maps.Clone(missing)
		maps.Copy(all, service.Annotations)
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/annotations", "value": all}})
		if err != nil {
			return nil, fmt.Errorf("writing a patch: %w", err)
		}
		response.Patch, response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	// The cluster's own Services do not count as Services of tests.
	if !ptr.Deref(request.DryRun, false) && request.Namespace != metav1.NamespaceSystem && request.Namespace != metav1.NamespaceDefault {
		a.note(request.Namespace+"/"+request.Name, service, len(missing) > 0)
	}
	return response, nil
}

// note records the effects that a write of a Service shows.
func (a *annotator) note(name string, s *corev1.Service, annotated bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if annotated {
		a.annotated[name] = true
	}
	if !a.annotated[name] {
		return
	}
	if s.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName {
		a.served[name] = true
	}
	if meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionTopologyRouting) {
		a.planned[name] = true
	}
}

// effect describes how Vicinity changed the Services of tests. It returns an error if Vicinity
// changed none, because the tests then prove nothing about Vicinity.
func (a *annotator) effect() (string, error) {
	if !a.handOver && !a.prefer {
		return "", nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("the webhook annotated %d Services", len(a.annotated))
	var faults []string
	if len(a.annotated) == 0 {
		faults = append(faults, "no test made a Service to annotate")
	}
	if a.handOver {
		text += fmt.Sprintf("; vicinity-proxy took %d of them over", len(a.served))
		if len(a.served) == 0 {
			faults = append(faults, "vicinity-proxy took no Service of the tests over")
		}
	}
	if a.prefer {
		text += fmt.Sprintf("; %d of them had a plan in force", len(a.planned))
		if len(a.planned) == 0 {
			faults = append(faults, "no Service of the tests had a plan in force")
		}
	}
	if len(faults) > 0 {
		return text, errors.New(strings.Join(faults, "; "))
	}
	return text, nil
}

const (
	webhookName    = "services.conformance.vicinity.dev"
	webhookTimeout = 10 // seconds
	// waitTime limits how long an API server takes to notice a webhook, and how long a hand-over
	// takes.
	waitTime = time.Minute
)

// configuration sends all Services except those of Vicinity to the annotator. A write fails when
// the annotator does not answer, so that no test runs with a Service that is not annotated.
func configuration(url string, authority []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         webhookName,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"services", "services/status"},
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{release.Namespace},
			}}},
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          ptr.To[int32](webhookTimeout),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// start registers the webhook, if it has something to annotate.
func (a *annotator) start(ctx context.Context, cluster *lab.Cluster) error {
	if !a.handOver && !a.prefer {
		return nil
	}
	client, err := cluster.Client()
	if err != nil {
		return err
	}
	listener, authority, err := cluster.ListenTLS()
	if err != nil {
		return err
	}
	return a.serve(ctx, client.Client, listener, authority)
}

// serve starts answering API servers, and returns when they call the webhook. stop ends it.
func (a *annotator) serve(ctx context.Context, client *kube.Client, listener net.Listener, authority []byte) error {
	a.client = client
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: webhookTimeout * time.Second}
	go func() {
		// If it fails, writes of Services fail, and the tests with them.
		_ = a.server.Serve(listener)
	}()
	object := configuration("https://"+listener.Addr().String(), authority)
	if _, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("registering the webhook of the tests: %w", err)
	}
	return a.awaitAnswers(ctx)
}

// stop removes the webhook. The context may have ended.
func (a *annotator) stop(ctx context.Context) error {
	if a.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTime)
	defer cancel()
	err := a.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, webhookName, metav1.DeleteOptions{})
	return errors.Join(err, a.server.Close())
}

func (a *annotator) awaitAnswers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	return kube.Wait(ctx, "the API server to ask the webhook of the tests", func(ctx context.Context) (string, error) {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "conformance-probe"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		service, err := a.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, dry)
		if err != nil {
			return err.Error(), nil
		}
		if len(a.missing(service)) > 0 {
			return "a Service is not annotated", nil
		}
		return "", nil
	})
}

// awaitHandOver waits until vicinity-proxy serves the Services of kube-system too.
func (a *annotator) awaitHandOver(ctx context.Context) error {
	if !a.handOver {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	return kube.Wait(ctx, "vicinity-proxy to serve all of "+metav1.NamespaceSystem, func(ctx context.Context) (string, error) {
		services, err := a.client.CoreV1().Services(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		var waiting []string
		for i := range services.Items {
			s := &services.Items[i]
			if s.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName && s.Spec.ClusterIP != corev1.ClusterIPNone {
				waiting = append(waiting, s.Name)
			}
		}
		return kube.Abbreviate(waiting), nil
	})
}
