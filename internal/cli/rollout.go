package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
)

const rolloutResource = "domainrollouts"

var rolloutKinds = []string{"dr", "domainrollout", rolloutResource}

func newRolloutCommand(s command.Streams, reach connector) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Follow and control updates by failure domain",
		Long: `Rollout shows how far DomainRollouts are, and pauses, resumes, aborts or rolls them back. Adopt
creates them for workloads. docs/rollouts.md explains DomainRollouts.

NAME is the name of the DomainRollout, or dr/NAME.`,
	}
	cmd.AddCommand(
		newRolloutAdoptCommand(s, reach),
		newRolloutStatusCommand(s, reach),
		newRolloutChangeCommand(s, reach, rolloutPause),
		newRolloutChangeCommand(s, reach, rolloutResume),
		newRolloutChangeCommand(s, reach, rolloutAbort),
		newRolloutChangeCommand(s, reach, rolloutRollback),
	)
	return cmd
}

func rolloutName(arg string) (string, error) {
	kind, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		kind, name = rolloutKinds[0], arg
	}
	if name == "" || strings.Contains(name, "/") || !slices.Contains(rolloutKinds, strings.ToLower(kind)) {
		return "", command.UsageErrorf("%q names no DomainRollout; give NAME or dr/NAME, with -n for its namespace: \"vicinity rollout status\" lists them", arg)
	}
	return name, nil
}

func oneName(kind string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%q takes the NAME of one %s, and got %d", cmd.CommandPath(), kind, len(args))
		}
		return nil
	}
}

func (r *clusterReader) rollouts() dynamic.ResourceInterface {
	return r.dynamic.Resource(v1alpha1.GroupVersion.WithResource(rolloutResource)).Namespace(r.namespace)
}

func (r *clusterReader) rollout(ctx context.Context, name string) (*v1alpha1.DomainRollout, error) {
	object, err := r.rollouts().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, r.rolloutNotFound(ctx, name)
	}
	if err != nil {
		return nil, r.explained("reading DomainRollout "+r.namespace+"/"+name, err)
	}
	return convertTo[v1alpha1.DomainRollout](object)
}

// listRollouts lists a namespace, or all namespaces if it is empty, sorted by namespace and name.
func (r *clusterReader) listRollouts(ctx context.Context, namespace string) ([]*v1alpha1.DomainRollout, error) {
	list, err := listOwn[v1alpha1.DomainRollout](ctx, r, ownList{rolloutResource, namespace, ""})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errNoRollouts
	case apierrors.IsForbidden(err) && namespace == metav1.NamespaceAll:
		return nil, fmt.Errorf("%w; use -n for one namespace", r.explained("reading DomainRollouts", err))
	case err != nil:
		return nil, r.explained("reading DomainRollouts", err)
	}
	slices.SortFunc(list, func(a, b *v1alpha1.DomainRollout) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

var errNoRollouts = errNotServed("DomainRollouts")

func errNotServed(kind string) error {
	return fmt.Errorf("the cluster does not serve %s: Vicinity's CRDs are missing or old; apply those of the packaged chart (docs/install.md)", kind)
}

// rolloutNotFound names the DomainRollouts of the namespace, or the one whose target has the name.
func (r *clusterReader) rolloutNotFound(ctx context.Context, name string) error {
	list, err := r.listRollouts(ctx, r.namespace)
	if errors.Is(err, errNoRollouts) {
		return err
	}
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
		if d.Spec.TargetRef.Name == name {
			return fmt.Errorf("no DomainRollout %q is in namespace %q; %s %s is updated by the DomainRollout %s", name, r.namespace, d.Spec.TargetRef.Kind, name, d.Name)
		}
	}
	return r.notFound(ctx, fmt.Sprintf("DomainRollout %q", name), names, err)
}
