// Package kube is an administrator's client of a test cluster: it applies manifests and waits for
// their effects.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Client is an administrator's client of the API.
type Client struct {
	kubernetes.Interface
	config  *rest.Config
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// FieldManager is the field manager of applied and patched objects.
const FieldManager = "vicinity-lab"

// New returns a client for a kubeconfig, without a rate limit.
func New(kubeconfig string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	config.UserAgent = FieldManager
	config.WarningHandler = rest.NoWarnings{}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Client{
		Interface: typed,
		config:    config,
		dynamic:   untyped,
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery())),
	}, nil
}

// Config returns a copy of the connection's configuration.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Apply applies the objects of a YAML text, like kubectl apply --server-side. The namespace is the
// default for objects without one.
func (c *Client) Apply(ctx context.Context, namespace, manifests string) error {
	return c.Each(manifests, namespace, func(object *unstructured.Unstructured, resource dynamic.ResourceInterface) error {
		_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		return err
	})
}

// Delete deletes the objects of a YAML text, if they exist.
func (c *Client) Delete(ctx context.Context, namespace, manifests string) error {
	return c.Each(manifests, namespace, func(object *unstructured.Unstructured, resource dynamic.ResourceInterface) error {
		err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// PatchService applies a JSON merge patch to a Service.
func (c *Client) PatchService(ctx context.Context, namespace, name, patch string) error {
	_, err := c.CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("changing Service %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Each calls a function with each object of a YAML text and its resource, until an error.
func (c *Client) Each(manifests, namespace string, do func(*unstructured.Unstructured, dynamic.ResourceInterface) error) error {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), len(manifests)+1)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading manifests: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		resource, err := c.Resource(object, namespace)
		if err == nil {
			err = do(object, resource)
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// Resource returns the client for an object's kind, in the object's namespace or else the given one.
func (c *Client) Resource(object *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		// The kind may be newer than the last discovery.
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	if object.GetNamespace() != "" {
		namespace = object.GetNamespace()
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// Wait pauses as long as a check took, within these bounds: some checks start a program, and would
// keep a processor busy.
const minPause, maxPause = 20 * time.Millisecond, 250 * time.Millisecond

// Wait waits until the condition returns neither an error nor a text about what is missing. An error
// counts as missing, since an API server may be restarting. When the context ends, the error has what
// was missing last.
func Wait(ctx context.Context, what string, condition func(context.Context) (missing string, err error)) error {
	last := "not checked yet"
	for {
		began := time.Now()
		missing, err := condition(ctx)
		switch {
		case err == nil && missing == "":
			return nil
		case ctx.Err() != nil:
			// The check was interrupted: keep the earlier text.
		case err != nil:
			last = err.Error()
		default:
			last = missing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (%s): %w", what, last, ctx.Err())
		case <-time.After(min(max(minPause, time.Since(began)), maxPause)):
		}
	}
}
