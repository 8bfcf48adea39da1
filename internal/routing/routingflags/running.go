package routingflags

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"vicinity.dev/vicinity/internal/kit/bools"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// ControllerSelector finds the controller's Deployment. No value of the chart changes these labels.
const ControllerSelector = "app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=controller"

// Running are the settings of a cluster's controller that affect decisions.
type Running struct {
	routing.Settings
	// Exclusion says which Services it ignores.
	Exclusion intent.Exclusion
	// Stopped is why no controller routes, empty if one does or if that is unknown.
	Stopped string
}

// Defaults returns the settings of a controller without flags.
func Defaults() Running {
	return Running{Settings: routing.DefaultSettings(), Exclusion: intent.Exclusion{Namespaces: intent.DefaultExcluded()}}
}

// ControllerOf returns the controller's Deployment, nil if there is none. ControllerSelector finds the candidates. The
// note names them if there are several.
func ControllerOf(found []*appsv1.Deployment, called string) (controller *appsv1.Deployment, note string) {
	if len(found) == 0 {
		return nil, ""
	}
	found = slices.Clone(found)
	SortControllers(found, called)
	controller = found[0]
	names := []string{controller.Namespace + "/" + controller.Name}
	for _, d := range found[1:] {
		if !isScaledToZero(d) {
			names = append(names, d.Namespace+"/"+d.Name)
		}
	}
	if len(names) == 1 {
		return controller, ""
	}
	why := "although no known webhook calls its namespace"
	if controller.Namespace == called {
		why = "because the webhooks of the cluster call its namespace"
	}
	return controller, fmt.Sprintf("Deployments %s have the labels of vicinity-controller; the first one is used, %s", strings.Join(names, " and "), why)
}

// SortControllers sorts Deployments of controllers: those in the namespace that the webhooks of the cluster call come
// first, since every user who may write a Deployment can set these labels. Deployments that are scaled to zero come
// last. Names decide among the others.
func SortControllers(found []*appsv1.Deployment, called string) {
	slices.SortFunc(found, func(a, b *appsv1.Deployment) int {
		return cmp.Or(
			bools.Compare(a.Namespace != called, b.Namespace != called), bools.Compare(isScaledToZero(a), isScaledToZero(b)),
			strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name),
		)
	})
}

func isScaledToZero(d *appsv1.Deployment) bool {
	return d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// RunningOf returns the settings that the cluster's controller was started with, and defaults for unknown ones. Notes
// name unknown and invalid settings.
func RunningOf(controller *appsv1.Deployment) (running Running, notes []string) {
	running = Defaults()
	if controller == nil {
		running.Stopped = "no vicinity-controller is installed"
		return running, []string{running.Stopped + ", so nothing is written; its default flags are assumed"}
	}
	if controller.Status.ReadyReplicas == 0 {
		running.Stopped = fmt.Sprintf("Deployment %s/%s has no ready pod", controller.Namespace, controller.Name)
		notes = append(notes, running.Stopped+", so nothing is written")
	}
	running.Exclusion.Own = controller.Namespace
	for _, container := range controller.Spec.Template.Spec.Containers {
		if err := running.apply(container.Args); err != nil {
			notes = append(notes, fmt.Sprintf("Deployment %s/%s has an invalid flag (%v); default flags are assumed",
				controller.Namespace, controller.Name, err))
		}
	}
	if running.WithoutRouting && running.Stopped == "" {
		running.Stopped = fmt.Sprintf("routing.enabled is off for Deployment %s/%s", controller.Namespace, controller.Name)
		notes = append(notes, running.Stopped+", so nothing is written")
	}
	return running, notes
}

// apply sets flags of the controller, or none of them if one is invalid.
func (r *Running) apply(args []string) error {
	given := *r
	flags := SetOf("vicinity-controller")
	Add(flags, &given.Settings, &given.Exclusion)
	AddNamespace(flags, &given.Exclusion.Own)
	if err := flags.Parse(args); err != nil {
		return err
	}
	*r = given
	return nil
}

// SetOf returns a flag set for a program's arguments, which ignores unknown flags.
func SetOf(program string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	return flags
}
