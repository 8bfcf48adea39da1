package intent

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Policy is the content of a RoutingPolicy or a ClusterRoutingPolicy.
type Policy struct {
	Intent   allocate.Intent
	Approach Approach
	Capacity Capacity
	// Places says that the policy names tiers. A policy without tiers bounds those of spec.trafficDistribution.
	Places bool
	// Delivery is that of the policy, empty for the default of the cluster.
	Delivery v1alpha1.Delivery
	// bound is for a preference of the Service itself, even if the policy's own tiers have no bound.
	bound allocate.Bound
	// unnamed says that the policy names no algorithm. The bound has the default of hints.
	unnamed bool
	// Faults are sentences about invalid values, each with the default in use. For expressions see Cluster.Fault.
	Faults []string
}

// ReadPolicy reads a policy. Defaults replace invalid values.
func ReadPolicy(policy *v1alpha1.RoutingPolicy) Policy {
	return readSpec(&policy.Spec)
}

// ReadClusterPolicy is ReadPolicy for a ClusterRoutingPolicy.
func ReadClusterPolicy(policy *v1alpha1.ClusterRoutingPolicy) Policy {
	read := readSpec(&policy.Spec.RoutingPolicySpec)
	selector := policy.Spec.NamespaceSelector
	if selector == nil {
		read.Faults = append(read.Faults, "spec.namespaceSelector: it is missing; the policy selects no namespace")
	} else if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		read.Faults = append(read.Faults, fmt.Sprintf("spec.namespaceSelector: %v; the policy selects no namespace", err))
	}
	return read
}

func readSpec(spec *v1alpha1.RoutingPolicySpec) Policy {
	r := policyReader{spec: spec}
	r.readPlaces()
	bound := r.readBound()
	if r.read.bound = bound; r.bounded {
		r.read.Intent.Bound = &bound
	}
	r.readCapacity()
	r.readDelivery()
	if _, err := metav1.LabelSelectorAsSelector(spec.Selector); err != nil {
		r.fault("spec.selector: %v; the policy selects no Service", err)
	}
	return r.read
}

type policyReader struct {
	spec *v1alpha1.RoutingPolicySpec
	read Policy
	// bounded says that a bound applies to the tiers.
	bounded bool
}

func (r *policyReader) fault(format string, args ...any) {
	r.read.Faults = append(r.read.Faults, fmt.Sprintf(format, args...))
}

func (r *policyReader) readPlaces() {
	if len(r.spec.Keys) > 0 {
		tiers := slices.Clone(topology.Tiers(r.spec.Keys))
		err := validateKeys(tiers)
		if err == nil {
			if r.spec.Mode != "" || r.spec.Level != "" {
				r.fault("spec.mode and spec.level have no effect together with spec.keys")
			}
			r.read.Places, r.read.Approach, r.read.Intent.Tiers = true, ApproachKeys, tiers
			r.bounded = canBeBounded(tiers)
			return
		}
		r.fault("spec.keys: %v; they have no effect", err)
	}
	mode := oneOf(r, "spec.mode", r.spec.Mode, v1alpha1.Prefer, [3]v1alpha1.Mode{v1alpha1.Balanced, v1alpha1.Prefer, v1alpha1.Require})
	level := oneOf(r, "spec.level", r.spec.Level, v1alpha1.Zone, [3]v1alpha1.Level{v1alpha1.Node, v1alpha1.Zone, v1alpha1.Region})
	r.read.Places = r.spec.Mode != "" || r.spec.Level != ""
	r.read.Approach = Approach(mode)
	r.read.Intent.Tiers = levelTiers(mode, level)
	r.bounded = canBeBounded(r.read.Intent.Tiers)
}

// canBeBounded reports whether a bound is possible: endpoints are divided among zones, so zones must be preferred and
// something wider allowed.
func canBeBounded(tiers topology.Tiers) bool {
	if !slices.Contains(tiers, topology.Zone) {
		return false
	}
	last := tiers[len(tiers)-1]
	return last == topology.Anywhere || last == topology.Region
}

func levelTiers(mode v1alpha1.Mode, level v1alpha1.Level) topology.Tiers {
	key := map[v1alpha1.Level]string{
		v1alpha1.Node: topology.Hostname, v1alpha1.Zone: topology.Zone, v1alpha1.Region: topology.Region,
	}[level]
	switch {
	case mode == v1alpha1.Balanced:
		return nil
	case mode == v1alpha1.Require:
		return topology.Tiers{key}
	case level == v1alpha1.Node:
		return topology.Tiers{key, topology.Zone, topology.Anywhere}
	}
	return topology.Tiers{key, topology.Anywhere}
}

func oneOf[S ~string](r *policyReader, field string, value, otherwise S, allowed [3]S) S {
	switch {
	case slices.Contains(allowed[:], value):
		return value
	case value != "":
		r.fault("%s: %q is unknown; allowed are %s, %s and %s; %s is used", field, value, allowed[0], allowed[1], allowed[2], otherwise)
	}
	return otherwise
}

func policyAlgorithms() []allocate.Algorithm {
	return []allocate.Algorithm{allocate.Optimal, allocate.Flow, allocate.Local, allocate.LocalShared, allocate.LocalWeighted, allocate.LocalOpt}
}

func (r *policyReader) readBound() allocate.Bound {
	bound := allocate.DefaultBound(DefaultAlgorithm(false))
	r.read.unnamed = true
	if algorithm := allocate.Algorithm(r.spec.Algorithm); algorithm != "" {
		if slices.Contains(policyAlgorithms(), algorithm) {
			bound, r.read.unnamed = allocate.DefaultBound(algorithm), false
		} else {
			r.fault("spec.algorithm: %q is unknown; allowed are %s; %s is used, or %s by groups", algorithm, list(policyAlgorithms()),
				DefaultAlgorithm(false), DefaultAlgorithm(true))
		}
	}
	var asked allocate.Thresholds
	if text := r.spec.OverloadThreshold; text != "" {
		if threshold, err := parseThreshold(text); err == nil {
			asked.Overload = &threshold
		} else {
			r.fault("spec.overloadThreshold: %q is not allowed; %v; %g%% is used", text, err, 100*bound.OverloadThreshold)
		}
	}
	if value := r.spec.StartingThreshold; value != nil {
		if start, err := parseStart(*value); err == nil {
			asked.Start = &start
		} else {
			r.fault("spec.startingThreshold: %s is not allowed; %v; %s is used", quoted(*value), err, bound.Start)
		}
	}
	if padding := r.spec.Padding; padding != nil {
		if *padding >= 0 && *padding <= maxPadding {
			number := int(*padding)
			asked.Padding = &number
		} else {
			r.fault("spec.padding: %d is not allowed; it must be from 0 to %d; %d is used", *padding, maxPadding, asked.Apply(bound).Padding)
		}
	}
	return asked.Apply(bound)
}

func (r *policyReader) readDelivery() {
	switch given := r.spec.Delivery; given {
	case "", v1alpha1.DeliveryHints, v1alpha1.DeliveryGroups:
		r.read.Delivery = given
	default:
		r.fault("spec.delivery: %q is unknown; allowed are %s and %s; the default of the cluster is used", given, v1alpha1.DeliveryHints, v1alpha1.DeliveryGroups)
	}
}

func (r *policyReader) readCapacity() {
	given, capacity := r.spec.Capacity, &r.read.Capacity
	capacity.Type = CapacityNodes
	types := [3]v1alpha1.CapacityType{v1alpha1.CapacityNodes, v1alpha1.CapacityCPU, v1alpha1.CapacityExpression}
	switch oneOf(r, "spec.capacity.type", given.Type, v1alpha1.CapacityNodes, types) {
	case v1alpha1.CapacityCPU:
		capacity.Type = CapacityCPU
	case v1alpha1.CapacityExpression:
		if given.Expression == "" {
			r.fault("spec.capacity.expression: it is empty; nodes are counted instead")
			break
		}
		capacity.Type, capacity.Expression = CapacityExpression, given.Expression
	}
	if given.Expression != "" && given.Type != v1alpha1.CapacityExpression {
		r.fault("spec.capacity.expression has no effect unless spec.capacity.type is %s", v1alpha1.CapacityExpression)
	}
	if r.spec.NodeSelector == nil {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(r.spec.NodeSelector)
	if err != nil {
		r.fault("spec.nodeSelector: %s; all nodes count", plaintext.Line(err.Error())) // keys are in it as they are
		return
	}
	capacity.NodeSelector = selector.String()
}

func list[S ~string](names []S) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = string(name)
	}
	return strings.Join(words, ", ")
}

// The kinds of policies.
const (
	kindPolicy        = "RoutingPolicy"
	kindClusterPolicy = "ClusterRoutingPolicy"
)

type anyPolicy struct {
	kind, name string
	created    metav1.Time
	spec       *v1alpha1.RoutingPolicySpec
	read       func() Policy
}

func (p *anyPolicy) String() string { return p.kind + " " + p.name }

func ofNamespace(policy *v1alpha1.RoutingPolicy) anyPolicy {
	return anyPolicy{kindPolicy, policy.Name, policy.CreationTimestamp, &policy.Spec, func() Policy { return ReadPolicy(policy) }}
}

func ofCluster(policy *v1alpha1.ClusterRoutingPolicy) anyPolicy {
	return anyPolicy{kindClusterPolicy, policy.Name, policy.CreationTimestamp, &policy.Spec.RoutingPolicySpec, func() Policy { return ReadClusterPolicy(policy) }}
}

// namespacePolicies returns the policies of a namespace, oldest first, then by name.
func namespacePolicies(namespace string, policies []*v1alpha1.RoutingPolicy) []anyPolicy {
	var own []anyPolicy
	for _, policy := range policies {
		if policy.Namespace == namespace {
			own = append(own, ofNamespace(policy))
		}
	}
	return byAge(own)
}

// clusterPolicies sorts policies, oldest first, then by name.
func clusterPolicies(policies []*v1alpha1.ClusterRoutingPolicy) []anyPolicy {
	var all []anyPolicy
	for _, policy := range policies {
		all = append(all, ofCluster(policy))
	}
	return byAge(all)
}

func byAge(policies []anyPolicy) []anyPolicy {
	slices.SortStableFunc(policies, func(a, b anyPolicy) int {
		return cmp.Or(a.created.Compare(b.created.Time), strings.Compare(a.name, b.name))
	})
	return policies
}

// ForNamespace returns the policies that select a namespace with these labels.
func ForNamespace(policies []*v1alpha1.ClusterRoutingPolicy, of map[string]string) []*v1alpha1.ClusterRoutingPolicy {
	var chosen []*v1alpha1.ClusterRoutingPolicy
	for _, policy := range policies {
		// Without a selector it selects none.
		selector, err := metav1.LabelSelectorAsSelector(policy.Spec.NamespaceSelector)
		if err == nil && selector.Matches(labels.Set(of)) {
			chosen = append(chosen, policy)
		}
	}
	return chosen
}

// NamedPolicy returns the RoutingPolicy that a Service names.
func NamedPolicy(service *corev1.Service) (name string, named bool) {
	mode := service.Annotations[v1alpha1.AnnotationTopologyMode]
	name, named = strings.CutPrefix(mode, v1alpha1.PolicyPrefix)
	return name, named && mode != v1alpha1.MarkRouted
}

func namedPolicy(from written) (request Request, warnings []string) {
	name, named := NamedPolicy(from.service)
	if !named {
		return Request{}, nil
	}
	for i := range from.policies {
		policy := &from.policies[i]
		if policy.name != name {
			continue
		}
		source := annotation(v1alpha1.AnnotationTopologyMode, v1alpha1.PolicyPrefix+name)
		if fault := policyLocalKeys(from.service, policy); fault != "" && from.own == nil { // otherwise its keys do not count
			return Request{}, []string{source + ": " + fault}
		}
		return policyRequest(from, policy, source), nil
	}
	return Request{}, []string{fmt.Sprintf("annotation %s: no RoutingPolicy %q is known in namespace %q",
		v1alpha1.AnnotationTopologyMode, name, from.service.Namespace)}
}

func selectingPolicy(from written) (request Request, warnings []string) {
	return selectedRequest(from, from.policies), nil
}

func clusterPolicy(from written) (request Request, warnings []string) {
	return selectedRequest(from, clusterPolicies(from.options.Defaults)), nil
}

func selectedRequest(from written, policies []anyPolicy) (request Request) {
	declined := declineReason(from)
	var first *anyPolicy
	var faults, others []string
	for i := range policies {
		policy := &policies[i]
		if !policy.selects(from.service.Labels) {
			continue
		}
		if declined != "" {
			return Request{Declined: fmt.Sprintf("%s selects the Service and has no effect: %s", policy, declined)}
		}
		switch fault := policyLocalKeys(from.service, policy); {
		case fault != "" && from.own == nil: // otherwise its keys do not count
			faults = append(faults, fault)
		case first == nil:
			first = policy
		default:
			others = append(others, policy.name)
		}
	}
	if first == nil {
		refused := Request{Warnings: faults}
		if unroutableReason(from.service) != "" { // so that it makes no difference
			refused.SelectedWarnings = len(faults)
		}
		return refused
	}
	request = policyRequest(from, first, first.String()+" by its selector")
	if request.FromPolicy() == "" {
		return request
	}
	request.Selected = from.own == nil
	request.Warnings = append(faults, request.Warnings...)
	if len(others) > 0 {
		request.Warnings = append(request.Warnings, fmt.Sprintf("of several policies the oldest counts, then the first by name; these have no effect: %s %s",
			first.kind, strings.Join(others, ", ")))
	}
	request.SelectedWarnings = len(request.Warnings)
	return request
}

// selects reports whether a policy selects Services with these labels. A ClusterRoutingPolicy cannot be named, so
// without a selector it selects all.
func (p *anyPolicy) selects(of map[string]string) bool {
	if p.spec.Selector == nil {
		return p.kind == kindClusterPolicy
	}
	selector, err := metav1.LabelSelectorAsSelector(p.spec.Selector)
	return err == nil && selector.Matches(labels.Set(of))
}

// policyRequest returns the request by a policy. What the Service itself asks for keeps its tiers: the policy bounds its
// preference of a zone, and delivers it. Without an effect the policy is not named.
func policyRequest(from written, policy *anyPolicy, source string) Request {
	read := policy.read()
	request := Request{Intent: read.Intent, Approach: read.Approach, Capacity: read.Capacity, Source: source}
	request.unnamed = read.unnamed && read.Intent.Bound != nil
	request.delivery, request.settled = read.Delivery, true
	if own := from.own; own != nil {
		request.Intent, request.Approach, request.Capacity, request.Source = own.Intent, own.Approach, own.Capacity, own.Source
		request.OwnZone, request.unnamed = own.OwnZone, own.unnamed
		switch {
		case own.unnamed:
			request.Intent.Bound, request.Capacity, request.unnamed = &read.bound, read.Capacity, read.unnamed
			request.boundBy(source)
		case read.Delivery == "":
			return request
		}
	}
	if bound := request.Intent.Bound; bound != nil && IsHeadless(from.service) {
		plain, warning := withoutWeights(*bound)
		request.Intent.Bound = &plain
		if warning != "" {
			request.Warnings = append(request.Warnings, policy.String()+": "+warning)
		}
	}
	if policy.kind == kindClusterPolicy {
		request.ClusterPolicy = policy.name
	} else {
		request.Policy = policy.name
	}
	for _, fault := range read.Faults {
		request.Warnings = append(request.Warnings, policy.String()+": "+fault)
	}
	if distribution := from.service.Spec.TrafficDistribution; distribution != nil && from.own == nil && !read.Places {
		if tiers := distributionTiers(*distribution); tiers != nil {
			request.Intent.Tiers, request.bounds = tiers, distributionSource(*distribution)
			request.Source = request.bounds
			request.boundBy(source)
		}
	}
	return request
}

func (r *Request) boundBy(source string) {
	r.BoundBy = source
	r.Source += ", bounded by " + source
}

// Limits of the values of a policy, as in its schema.
const (
	maxPadding   = 1000
	maxEndpoints = 1_000_000
)

var (
	percentage = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,2})?%$`)
	perZone    = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,2})?x$`)
	digits     = regexp.MustCompile(`^[0-9]+$`)
)

func parseThreshold(text string) (float64, error) {
	if percentage.MatchString(text) {
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		if err == nil && n > 0 && n <= 1000 {
			return n / 100, nil
		}
	}
	return 0, errors.New(`it must be a percentage above 0 and at most 1000, such as "50%"`)
}

func parseStart(value intstr.IntOrString) (allocate.Start, error) {
	switch {
	case value.Type == intstr.Int:
		if value.IntVal >= 0 && value.IntVal <= maxEndpoints {
			return allocate.Start{Endpoints: int(value.IntVal)}, nil
		}
	case perZone.MatchString(value.StrVal):
		if n, err := strconv.ParseFloat(strings.TrimSuffix(value.StrVal, "x"), 64); err == nil {
			return allocate.Start{PerZone: n}, nil
		}
	case digits.MatchString(value.StrVal):
		return allocate.Start{}, fmt.Errorf(`it must be a number, which is written without quotes: %s, or one for each zone, such as "3x"`, value.StrVal)
	}
	return allocate.Start{}, fmt.Errorf(`it must be a number of endpoints from 0 to %d, such as 12, or one for each zone, such as "3x"`, maxEndpoints)
}

// quoted returns a value as in its manifest.
func quoted(value intstr.IntOrString) string {
	if value.Type == intstr.Int {
		return value.String()
	}
	return strconv.Quote(value.StrVal)
}
