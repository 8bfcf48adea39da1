package lab

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

// Client talks to the API of a lab as its administrator.
type Client struct {
	kubernetes.Interface
	config  *rest.Config
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// fieldManager is who the API says applied an object.
const fieldManager = "vicinity-lab"

// newClient makes a client from a kubeconfig. It is fit for tests: it does not wait
// before a request because there were many before.
func newClient(kubeconfig string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the lab: %w", err)
	}
	config.QPS = -1
	config.UserAgent = fieldManager
	// Warnings of the API are for the user of an API, not of a lab.
	config.WarningHandler = rest.NoWarnings{}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the lab: %w", err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the lab: %w", err)
	}
	return &Client{
		Interface: typed,
		config:    config,
		dynamic:   untyped,
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery())),
	}, nil
}

// Config is what other clients of the lab's API are made from. It is a copy.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Apply creates or changes the objects of a YAML text, as kubectl apply --server-side
// does. Objects that have a namespace and name none go to the one given.
func (c *Client) Apply(ctx context.Context, namespace, manifests string) error {
	return c.each(manifests, namespace, func(object *unstructured.Unstructured, resource dynamic.ResourceInterface) error {
		_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
}

// Delete removes the objects of a YAML text. One that is not there is no error.
func (c *Client) Delete(ctx context.Context, namespace, manifests string) error {
	return c.each(manifests, namespace, func(object *unstructured.Unstructured, resource dynamic.ResourceInterface) error {
		err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// PatchService changes a Service by a merge patch, written in JSON.
func (c *Client) PatchService(ctx context.Context, namespace, name, patch string) error {
	_, err := c.CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("changing Service %s/%s: %w", namespace, name, err)
	}
	return nil
}

// each calls a function with each object of a YAML text, and with the means to reach
// it. It stops at the first error.
func (c *Client) each(manifests, namespace string, do func(*unstructured.Unstructured, dynamic.ResourceInterface) error) error {
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
		resource, err := c.resource(object, namespace)
		if err == nil {
			err = do(object, resource)
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// resource is where the API keeps objects like the one given.
func (c *Client) resource(object *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		// It may have been defined since the API was last asked what there is.
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

// poll is how often a condition is looked at again.
const poll = 20 * time.Millisecond

// Wait waits until a condition holds. The condition says what is still missing, or
// nothing when it holds. Its errors may pass, as those of an API server that is being
// restarted do, so they count as missing. When the context ends, the error says what
// was waited for and what was missing last.
func Wait(ctx context.Context, what string, condition func(context.Context) (missing string, err error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	last := "not looked at yet"
	for {
		missing, err := condition(ctx)
		switch {
		case err == nil && missing == "":
			return nil
		case ctx.Err() != nil:
			// What an interrupted look says is less than what the last whole one said.
		case err != nil:
			last = err.Error()
		default:
			last = missing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (%s): %w", what, last, ctx.Err())
		case <-ticker.C:
		}
	}
}
