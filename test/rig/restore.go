package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// lock waits until no other test, also of another process, uses the shared control plane.
func lock(t testing.TB, kubeconfig string) {
	t.Helper()
	file, err := os.OpenFile(kubeconfig+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("locking the shared control plane: %v", err)
	}
}

// original is the control plane before the first test. The first test writes it to a file beside the
// kubeconfig.
type original struct {
	Objects []string // cluster-scoped, as "resource.group name"
	Nodes   []corev1.Node
}

// changing are cluster-scoped resources that the control plane itself creates and deletes.
var changing = []string{"namespaces", "apiservices.apiregistration.k8s.io", "ipaddresses.networking.k8s.io"}

// permanent are objects that the control plane creates in every namespace, or keeps.
var permanent = []string{"serviceaccounts default", "configmaps kube-root-ca.crt", "services kubernetes", "endpoints kubernetes", "endpointslices.discovery.k8s.io kubernetes"}

// verifyLab refuses a control plane that is not a lab of up's shape: restore would delete everything
// in it.
func verifyLab(server string, nodes []corev1.Node) error {
	at, err := url.Parse(server)
	if err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(at.Hostname()); err != nil || !addr.IsLoopback() {
		return errors.New("its address is not a loopback address")
	}
	wanted := []string{"zone-a-1", "zone-b-1", "zone-c-1"}
	for i := range FakeNodes {
		wanted = append(wanted, fmt.Sprintf("fake-%d", i+1))
	}
	for _, name := range wanted {
		found := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		if found < 0 {
			return fmt.Errorf("it has no node %s", name)
		}
		if strings.HasPrefix(name, "fake-") && nodes[found].Labels["lab.vicinity.dev/fake"] == "" {
			return fmt.Errorf("its node %s has no label lab.vicinity.dev/fake", name)
		}
	}
	return nil
}

// restore undoes all changes of earlier tests, also after a crash. It deletes every object that is
// neither in the original nor in a namespace such as kube-system. Namespaces stay, since deleting one
// takes seconds, but lose their labels.
func (c ControlPlane) restore() {
	c.Helper()
	nodes, err := c.CoreV1().Nodes().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	howTo := "start one with: vicinity lab " + strings.Join(up, " ")
	if err := verifyLab(c.Config().Host, nodes.Items); err != nil {
		c.Fatalf("%s=%s is not a lab for tests: %v; tests would delete its objects, so the test stops; %s", Shared, c.Kubeconfig, err, howTo)
	}
	c.installCRDs()
	client, err := metadata.NewForConfig(c.Config())
	if err != nil {
		c.Fatal(err)
	}
	r := &restorer{ControlPlane: c, metadata: client}
	c.Await("the kinds of objects", func(context.Context) (string, error) { // some change while CRDs are deleted
		var err error
		r.resources, err = c.deletable()
		return "", err
	})
	if r.original, err = r.readOriginal(); err != nil {
		c.Fatal(err)
	}
	if len(r.original.Nodes) != FakeNodes+3 {
		c.Fatalf("the control plane of %s has %d nodes, want %d; %s", c.Kubeconfig, len(r.original.Nodes), FakeNodes+3, howTo)
	}
	c.Await("objects of earlier tests to go", r.sweep)
	c.Await("namespaces without labels", r.restoreNamespaces)
	c.Await("nodes as they were", r.restoreNodes)
}

type restorer struct {
	ControlPlane
	metadata  metadata.Interface
	resources []resource
	original  original
}

type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// deletable returns all kinds of objects that can be listed and deleted. Webhooks and policies come
// first, since they judge the deletion of others.
func (c ControlPlane) deletable() ([]resource, error) {
	lists, err := c.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []resource
	for _, list := range lists {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			at := of.WithResource(r.Name)
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && !slices.Contains(changing, at.GroupResource().String()) {
				found = append(found, resource{at, r.Namespaced})
			}
		}
	}
	order := func(r resource) int {
		if r.Group == "admissionregistration.k8s.io" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b resource) int { return order(a) - order(b) })
	return found, nil
}

// readOriginal returns the original, and writes it if no test ran before.
func (r *restorer) readOriginal() (original, error) {
	var o original
	file := r.Kubeconfig + ".original"
	text, err := os.ReadFile(file)
	if err == nil {
		return o, json.Unmarshal(text, &o)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	for _, resource := range r.resources {
		if resource.namespaced {
			continue
		}
		list, err := r.metadata.Resource(resource.GroupVersionResource).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			return o, err
		}
		for _, object := range list.Items {
			o.Objects = append(o.Objects, resource.name(object.Name))
		}
	}
	nodes, err := r.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	o.Nodes = nodes.Items
	if text, err = json.Marshal(o); err != nil {
		return o, err
	}
	return o, os.WriteFile(file, text, 0o600)
}

func (r resource) name(object string) string { return r.GroupResource().String() + " " + object }

// leftover is an object of an earlier test.
type leftover struct {
	resource
	metav1.PartialObjectMetadata
}

// sweep deletes leftovers, and names one of them.
func (r *restorer) sweep(ctx context.Context) (string, error) {
	var all []leftover
	for _, resource := range r.resources {
		list, err := r.metadata.Resource(resource.GroupVersionResource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // a test's own CRD, which is deleted
		} else if err != nil {
			return "", err
		}
		for _, object := range list.Items {
			if l := (leftover{resource, object}); !r.mustKeep(l) {
				all = append(all, l)
			}
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	failures := make([]error, len(all))
	var work sync.WaitGroup
	for worker := range 16 {
		work.Go(func() {
			for i := worker; i < len(all); i += 16 {
				failures[i] = r.remove(ctx, all[i])
			}
		})
	}
	work.Wait()
	return fmt.Sprintf("%d objects still exist, such as %s in namespace %q", len(all), all[0].name(all[0].Name), all[0].Namespace), errors.Join(failures...)
}

func (r *restorer) mustKeep(l leftover) bool {
	if l.namespaced {
		return strings.HasPrefix(l.Namespace, "kube-") || slices.Contains(permanent, l.name(l.Name))
	}
	return slices.Contains(r.original.Objects, l.name(l.Name))
}

// remove deletes an object at once, without grace period and finalizers.
func (r *restorer) remove(ctx context.Context, l leftover) error {
	at := r.metadata.Resource(l.GroupVersionResource).Namespace(l.Namespace)
	err := at.Delete(ctx, l.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err == nil && len(l.Finalizers) > 0 {
		_, err = at.Patch(ctx, l.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// restoreNamespaces removes the labels that tests have put on namespaces.
func (r *restorer) restoreNamespaces(ctx context.Context) (string, error) {
	list, err := r.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		n := &list.Items[i]
		switch {
		case n.DeletionTimestamp != nil:
			return n.Name + " is being deleted", nil
		case strings.HasPrefix(n.Name, "kube-") || len(n.Labels) < 2 && len(n.Annotations) == 0:
			continue
		}
		n.Labels, n.Annotations = nil, nil // the API server sets the label with the name again
		if _, err := r.CoreV1().Namespaces().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			return "", err
		}
	}
	return "", nil
}

// restoreNodes undoes the changes of tests to nodes.
func (r *restorer) restoreNodes(ctx context.Context) (string, error) {
	equal := apiequality.Semantic.DeepEqual
	for i := range r.original.Nodes {
		was := &r.original.Nodes[i]
		n, err := r.CoreV1().Nodes().Get(ctx, was.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if !maps.Equal(n.Labels, was.Labels) || !maps.Equal(n.Annotations, was.Annotations) || !equal(n.Spec, was.Spec) {
			n.Labels, n.Annotations, n.Spec = was.Labels, was.Annotations, was.Spec
			if n, err = r.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
				return "", err
			}
		}
		if !equal(n.Status.Capacity, was.Status.Capacity) || !equal(n.Status.Allocatable, was.Status.Allocatable) {
			n.Status.Capacity, n.Status.Allocatable = was.Status.Capacity, was.Status.Allocatable
			if _, err = r.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}
