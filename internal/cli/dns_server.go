package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
)

// dnsKey is the key of the Corefile in the ConfigMap.
const dnsKey = "Corefile"

// dnsServer is the cluster's DNS server. A change and its record in an annotation are one write, so either command continues from
// the state that a killed one leaves. While the Deployment has a record, there is something to give back.
type dnsServer struct {
	*clusterReader
	*dnsFlags
	ask      dnsAsker
	page     *page
	messages io.Writer

	deployment *appsv1.Deployment
	container  *corev1.Container // of CoreDNS
	config     *corev1.ConfigMap
	before     *dnsBefore // nil without a record
}

// dnsBefore is the Deployment's AnnotationDNSBefore. That of the ConfigMap is the Corefile.
type dnsBefore struct {
	Image string `json:"image"`
	// With is the image that enable set.
	With string `json:"with"`
}

// isOurs reports whether an image is of vicinity-dns: the image of enable, or one of another registry or version.
func (b *dnsBefore) isOurs(image string) bool {
	return image == b.With || strings.Contains(image, "vicinity-dns")
}

func (f *dnsFlags) server(ctx context.Context, s command.Streams, reach connector) (*dnsServer, error) {
	if f.timeout <= 0 {
		return nil, command.UsageErrorf("--timeout %s is not allowed; it must be positive, such as 5m", f.timeout)
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return nil, err
	}
	r.in(cmp.Or(f.cluster.namespace, metav1.NamespaceSystem))
	d := &dnsServer{clusterReader: r, dnsFlags: f, page: &page{w: printable{s.Out}}, messages: printable{s.Err}}
	return d, d.read(ctx)
}

func (d *dnsServer) title() string { return "Deployment " + d.namespace + "/" + d.name }

func (d *dnsServer) configTitle() string { return "ConfigMap " + d.namespace + "/" + d.config.Name }

func (d *dnsServer) corefile() string { return d.config.Data[dnsKey] }

// read reads the Deployment and the ConfigMap.
func (d *dnsServer) read(ctx context.Context) (err error) {
	d.deployment, err = d.typed.AppsV1().Deployments(d.namespace).Get(ctx, d.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s: name that of CoreDNS by -n and --deployment. Beside another DNS server, such as kube-dns of GKE, run vicinity-dns by docs/dns.md#as-a-dns-server-of-its-own", d.title())
	}
	if err != nil {
		return d.explained("reading "+d.title(), err)
	}
	template := &d.deployment.Spec.Template.Spec
	volume := slices.IndexFunc(template.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && !ptr.Deref(v.ConfigMap.Optional, false) })
	container := slices.IndexFunc(template.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return volume >= 0 && m.Name == template.Volumes[volume].Name })
	})
	if container < 0 {
		return fmt.Errorf("%s has no container with a ConfigMap, and so no Corefile: name that of CoreDNS by -n and --deployment", d.title())
	}
	d.container = &template.Containers[container]
	d.config, err = d.typed.CoreV1().ConfigMaps(d.namespace).Get(ctx, template.Volumes[volume].ConfigMap.Name, metav1.GetOptions{})
	if err != nil {
		return d.explained("reading the Corefile of "+d.title(), err)
	}
	d.before = nil
	if text := d.deployment.Annotations[v1alpha1.AnnotationDNSBefore]; text != "" {
		d.before = &dnsBefore{}
		if err := json.Unmarshal([]byte(text), d.before); err != nil || d.before.Image == "" {
			return fmt.Errorf(`annotation %s of %s is %q: correct it to {"image": "THE-IMAGE-BEFORE", "with": %q}`, v1alpha1.AnnotationDNSBefore, d.title(), text, d.container.Image)
		}
	}
	return nil
}

// awaitPods waits until only pods of the last change run, and are available.
func (d *dnsServer) awaitPods(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	for {
		now, err := d.typed.AppsV1().Deployments(d.namespace).Get(limit, d.name, metav1.GetOptions{})
		if err == nil {
			wanted, is := ptr.Deref(now.Spec.Replicas, 1), now.Status
			if is.ObservedGeneration >= now.Generation && is.UpdatedReplicas == wanted && is.Replicas == wanted && is.AvailableReplicas == wanted {
				return nil
			}
			err = errors.New("not all new pods are available")
		}
		if command.Pause(limit, time.Second) != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("%s: after %s %w%s", d.title(), d.timeout, err, d.whyNotReady(ctx)))
		}
	}
}

// pods lists the pods of the Deployment, without ending ones.
func (d *dnsServer) pods(ctx context.Context) ([]*corev1.Pod, error) {
	selector := metav1.FormatLabelSelector(d.deployment.Spec.Selector)
	pods, err := listAll[corev1.Pod](ctx, d.typed.CoreV1().Pods(d.namespace), metav1.ListOptions{LabelSelector: selector})
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }), d.explained("reading the pods of "+d.title(), err)
}

// whyNotReady describes a pod that is not ready. The pod goes when the command goes back, and its log with it.
func (d *dnsServer) whyNotReady(ctx context.Context) string {
	pods, _ := d.pods(ctx) // the caller has an error already
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if status.Ready || status.Name != d.container.Name {
				continue
			}
			waiting := ptr.Deref(status.State.Waiting, corev1.ContainerStateWaiting{Reason: "not ready"})
			log, _ := d.typed.CoreV1().Pods(d.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: status.Name, TailLines: new(int64(3))}).DoRaw(ctx)
			return fmt.Sprintf("; pod %s: %s %s; the end of its log: %s", pod.Name, waiting.Reason, waiting.Message, strings.TrimSpace(string(log)))
		}
	}
	return ""
}
