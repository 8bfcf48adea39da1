package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/charts"
)

// ApplyCRDs applies the chart's CRDs and waits until the API serves them.
func (c *Client) ApplyCRDs(ctx context.Context) error {
	crds, err := charts.CRDs()
	if err != nil {
		return err
	}
	return c.ApplyCRDsOf(ctx, crds)
}

// ApplyCRDsOf does the same with the CRDs of another chart, as YAML.
func (c *Client) ApplyCRDsOf(ctx context.Context, crds []string) error {
	for _, crd := range crds {
		if err := c.Apply(ctx, "", crd); err != nil {
			return fmt.Errorf("applying CRDs: %w", err)
		}
		if err := c.waitEstablished(ctx, crd); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) waitEstablished(ctx context.Context, crd string) error {
	return c.Each(crd, "", func(object *unstructured.Unstructured, resource dynamic.ResourceInterface) error {
		return Wait(ctx, "CRD "+object.GetName()+" to be established", func(ctx context.Context) (string, error) {
			found, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			conditions, _, err := unstructured.NestedSlice(found.Object, "status", "conditions")
			if err != nil {
				return "", err
			}
			for _, condition := range conditions {
				if fields, ok := condition.(map[string]any); ok && fields["type"] == "Established" && fields["status"] == "True" {
					return c.undiscoveredVersion(found)
				}
			}
			return "not established", nil
		})
	})
}

// undiscoveredVersion returns the version of an established CRD that discovery lacks: the API server
// publishes a kind a moment after it serves it.
func (c *Client) undiscoveredVersion(crd *unstructured.Unstructured) (string, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return "", err
	}
	for _, version := range versions {
		fields, ok := version.(map[string]any)
		if !ok || fields["served"] != true {
			continue
		}
		name := fmt.Sprint(group, "/", fields["name"])
		list, err := c.Discovery().ServerResourcesForGroupVersion(name)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
			return fmt.Sprintf("%s does not list it", name), nil
		}
	}
	return "", nil
}
