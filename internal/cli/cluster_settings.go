package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routingflags"
	"vicinity.dev/vicinity/internal/translate"
)

// controllerSelector finds the controller's Deployment: no value of the chart changes these
// labels.
const controllerSelector = "app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=controller"

// controllerSettings are those of a cluster's controller that decisions depend on.
type controllerSettings struct {
	routing.Settings
	// exclusion says which Services it leaves alone.
	exclusion translate.Exclusion
	// stopped is why no controller runs; it is empty if one does, or if that is not known.
	stopped string
}

func defaultSettings() controllerSettings {
	return controllerSettings{Settings: routing.DefaultSettings(), exclusion: translate.Exclusion{Namespaces: translate.DefaultExcluded()}}
}

// reading is what was read for the decision about a Service.
func (r *clusterReader) reading(s *controllerSettings, in routing.Input) inspect.Reading {
	in.Settings = s.Settings
	return inspect.Reading{
		Input: in, LeftAlone: s.exclusion.Reason(in.Service.Namespace, in.Service.Name), Stopped: s.stopped, Unread: r.unread, Now: r.now,
	}
}

// controller is the Deployment of vicinity-controller, nil if the cluster has none.
func (r *clusterReader) controller(ctx context.Context) (*appsv1.Deployment, error) {
	list, err := listAll[appsv1.Deployment](ctx, metav1.ListOptions{LabelSelector: controllerSelector}, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.typed.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, o)
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return slices.MinFunc(list, func(a, b *appsv1.Deployment) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	}), nil
}

// settings are those that the cluster's controller was started with, and the defaults
// where that cannot be known.
func (r *clusterReader) settings(ctx context.Context) (controllerSettings, error) {
	settings := defaultSettings()
	first, err := r.controller(ctx)
	switch {
	case err != nil:
		return settings, r.optional("Deployments", "vicinity-controller is taken to have its default flags", err)
	case first == nil:
		settings.stopped = "no vicinity-controller is installed"
		r.leaveOut(settings.stopped + ", so nothing is written; its default flags are assumed")
		return settings, nil
	}
	if first.Status.ReadyReplicas == 0 {
		settings.stopped = fmt.Sprintf("Deployment %s/%s has no ready pod", first.Namespace, first.Name)
		r.leaveOut(settings.stopped + ", so nothing is written")
	}
	settings.exclusion.Own = first.Namespace
	for _, container := range first.Spec.Template.Spec.Containers {
		if err := settings.apply(container.Args); err != nil {
			r.leaveOut(fmt.Sprintf("Deployment %s/%s has a flag that makes no sense (%v); its default flags are assumed",
				first.Namespace, first.Name, err))
		}
	}
	return settings, nil
}

// apply takes over flags of the controller, or none of them if one makes no sense.
func (s *controllerSettings) apply(args []string) error {
	given := *s
	flags := flagsOf("vicinity-controller")
	routingflags.Add(flags, &given.Settings, &given.exclusion)
	routingflags.AddNamespace(flags, &given.exclusion.Own)
	if err := flags.Parse(args); err != nil {
		return err
	}
	*s = given
	return nil
}

// flagsOf is for the arguments of a program, of which unknown ones do not matter.
func flagsOf(program string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	return flags
}
