// Package routingflags declares the flags of vicinity-controller that affect its decisions, for the controller and for
// the commands that decide like the controller of a cluster.
package routingflags

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// AddNamespace declares the flag of Vicinity's own namespace.
func AddNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "namespace", *namespace, "namespace of Vicinity (default $POD_NAMESPACE)")
}

// Add declares the other flags. Their defaults are the present values.
func Add(flags *pflag.FlagSet, s *routing.Settings, exclusion *intent.Exclusion) {
	switchOff(flags, &s.WithoutRouting, "routing", "route Services; if false, earlier hints, groups and labels stay")
	flags.StringSliceVar(&exclusion.Namespaces, "exclude-namespaces", exclusion.Namespaces, "namespaces whose Services Vicinity ignores, besides its own")
	flags.BoolVar(&s.TakeOverAuto, "take-over-auto", s.TakeOverAuto, "plan for topology-mode: Auto instead of Kubernetes")
	flags.DurationVar(&s.ShrinkGrace, "shrink-grace", s.ShrinkGrace, "how long zones keep endpoints that a new plan takes from them")
	flags.BoolVar(&s.GroupsByDefault, "groups-by-default", s.GroupsByDefault, "deliver plans by groups, unless a Service or its policy says otherwise")
	switchOff(flags, &s.WithoutHints, "hints", "write hints for Services that do not ask for vicinity-proxy")
	switchOff(flags, &s.WithoutGroups, "groups", "write EndpointGroups for Services that ask for vicinity-proxy, and for headless ones")
	flags.IntVar(&s.GroupSize, "group-size", s.GroupSize, fmt.Sprintf("endpoints to fill a group with, at most %d", groups.MaxSize))
}

// switchOff declares a flag that is true unless something is switched off.
func switchOff(flags *pflag.FlagSet, off *bool, name, usage string) {
	flags.VarPF((*opposite)(off), name, "", usage).NoOptDefVal = "true"
}

// opposite is a flag that stores the negated value.
type opposite bool

func (o *opposite) Set(text string) error {
	value, err := strconv.ParseBool(text)
	*o = opposite(!value)
	return err
}

func (o *opposite) String() string { return strconv.FormatBool(!bool(*o)) }

// Type returns the type of a flag that needs no value.
func (*opposite) Type() string { return "bool" }
