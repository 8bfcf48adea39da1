package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// specTarget is the object of Vicinity's API whose spec a command changes, and where the result goes.
type specTarget struct {
	resource, kind, name string
	dryRun               bool
	out                  io.Writer
	output               *outputFlag
}

// specChange is a patch of a spec. Without fields nothing is written: the spec has the requested value already.
type specChange struct {
	fields  map[string]any
	message string // the result, and the next command
}

// changeSpec writes and prints the change that decide returns, if the object still has the version that decide read. Otherwise
// it decides again: each write of the status by the controller is a new version.
func (r *clusterReader) changeSpec(ctx context.Context, c specTarget, decide func() (version string, change specChange, err error)) error {
	object := c.kind + " " + path.Join(r.namespace, c.name)
	api := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource(c.resource)).Namespace(r.namespace)
	var options metav1.PatchOptions
	if c.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var change specChange
	err := retry.RetryOnConflict(wait.Backoff{Steps: 20, Duration: 50 * time.Millisecond}, func() (err error) {
		var version string
		if version, change, err = decide(); err != nil || len(change.fields) == 0 {
			return err
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "spec": change.fields})
		if err != nil {
			return err
		}
		if _, err = api.Patch(ctx, c.name, types.MergePatchType, body, options); apierrors.IsConflict(err) {
			return err
		}
		return r.explained("writing "+object, err)
	})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%s keeps changing; run the command again", object)
	}
	if err != nil {
		return err
	}
	return c.output.write(c.out, map[string]any{"object": object, "changes": change.fields, "message": change.message}, func(p *page) { p.printf("%s %s\n", object, change.message) })
}
