package shell

import (
	"context"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scale reads the subresource scale of an object of any kind, for which the client has no typed subresource.
func Scale(ctx context.Context, c client.SubResourceClientConstructor, object *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	read, scale := &unstructured.Unstructured{}, &autoscalingv1.Scale{}
	if err := c.SubResource("scale").Get(ctx, object, read); err != nil {
		return nil, err
	}
	return scale, runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, scale)
}
