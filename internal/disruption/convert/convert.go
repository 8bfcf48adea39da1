// Package convert makes TopologyDisruptionBudgets of other kinds of budgets, and says where
// the two differ. It converts one object at a time, and knows nothing of a cluster: what
// depends on where pods run is said as an assumption.
//
// A budget that would mean something else in a way that cannot be told in advance is not
// converted: the error says why, and what to do.
package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/plaintext"
)

// Options are what an object does not say.
type Options struct {
	// ZoneKey is the label of nodes that says their zone, topology.kubernetes.io/zone if it
	// is empty.
	ZoneKey string
	// GroupBy is the label of pods that has the part of their names that a budget groups
	// them by. It is needed only if no label of Kubernetes has it.
	GroupBy string
}

// Conversion is what was made of an object.
type Conversion struct {
	// Source is its kind, namespace and name, for people.
	Source string
	Budget *v1alpha1.TopologyDisruptionBudget
	Notes  []Note
}

// Note is where the two budgets differ.
type Note struct {
	Effect Effect
	Text   string
}

// IsWeaker reports whether the difference may let evictions through that the original refuses.
func (n Note) IsWeaker() bool { return n.Effect == AllowsMore || n.Effect == Assumes }

// String is for people.
func (n Note) String() string { return string(n.Effect) + ": " + n.Text }

// Effect is what a difference leads to.
type Effect string

// The effects.
const (
	// AllowsMore lets through evictions that the original refuses.
	AllowsMore Effect = "allows more"
	// RefusesMore refuses evictions that the original lets through.
	RefusesMore Effect = "refuses more"
	// Assumes holds for most clusters, and would otherwise change what the budget means.
	Assumes Effect = "assumes"
	// Remark changes nothing of the meaning.
	Remark Effect = "note"
)

// IsWeaker reports whether evictions may be let through that the original refuses.
func (c *Conversion) IsWeaker() bool {
	return slices.ContainsFunc(c.Notes, Note.IsWeaker)
}

// The groups of the kinds that are converted.
const (
	grafanaGroup = "rollout-operator.grafana.com"
	awsGroup     = "zonecontrol.k8s.aws"
)

// kinds are converted, each by its own function.
var kinds = map[schema.GroupVersionKind]func(*object) error{
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"):                  (*object).native,
	{Group: policyv1.GroupName, Version: "v1beta1", Kind: "PodDisruptionBudget"}: (*object).nativeBeta,
	{Group: grafanaGroup, Version: "v1", Kind: "ZoneAwarePodDisruptionBudget"}:   (*object).grafana,
	{Group: awsGroup, Version: "v1", Kind: "ZoneDisruptionBudget"}:               (*object).aws,
}

// Kinds names what is converted.
const Kinds = "PodDisruptionBudget (policy/v1, policy/v1beta1), ZoneAwarePodDisruptionBudget (" + grafanaGroup + "/v1) and ZoneDisruptionBudget (" + awsGroup + "/v1)"

// Is reports whether objects of the kind are converted. A known kind in an unknown version
// is one: Convert refuses it, since it would go unseen otherwise.
func Is(gvk schema.GroupVersionKind) bool {
	for known := range kinds {
		if known.GroupKind() == gvk.GroupKind() {
			return true
		}
	}
	return false
}

// object is one that is converted.
type object struct {
	metadata
	spec json.RawMessage

	kind    string
	options Options
	budget  v1alpha1.TopologyDisruptionBudgetSpec
	notes   []Note
}

// metadata is what a budget keeps of that of the original.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (o *object) note(effect Effect, format string, args ...any) {
	o.notes = append(o.notes, Note{effect, fmt.Sprintf(format, args...)})
}

// Convert makes a budget of an object in JSON. Its kind is given beside it, since items of a
// list may leave it out.
func Convert(kind schema.GroupVersionKind, data []byte, options Options) (*Conversion, error) {
	convert, found := kinds[kind]
	switch {
	case !found && Is(kind):
		return nil, fmt.Errorf("apiVersion %q is not read; it must be %s", kind.GroupVersion(), strings.Join(versions(kind.GroupKind()), " or "))
	case !found:
		return nil, fmt.Errorf("kind %q of apiVersion %q is not converted; allowed are %s", kind.Kind, kind.GroupVersion(), Kinds)
	}
	var read struct {
		Metadata metadata        `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object: %w", err)
	}
	switch {
	case read.Metadata.Name == "":
		return nil, errors.New("metadata.name is missing")
	case len(read.Spec) == 0 || string(read.Spec) == "null":
		return nil, errors.New("spec is missing; it must say what the budget allows")
	}
	o := object{metadata: read.Metadata, spec: read.Spec, kind: kind.Kind, options: options}
	if err := convert(&o); err != nil {
		return nil, err
	}
	if faults := coverage.Faults(&o.budget); len(faults) > 0 {
		return nil, errors.New(plaintext.Line(faults.ToAggregate().Error()))
	}
	if o.budget.Selector == nil {
		o.note(Remark, "the selector chooses no pod, here as there")
	}
	return o.conversion(), nil
}

// specOf reads the spec of an object. It refuses fields that are not known here: what they mean would be lost.
func specOf[T any](o *object) (spec T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(o.spec))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&spec)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		return spec, fmt.Errorf("%s: a %s is not allowed; it must be of type %s", strings.TrimSuffix("spec."+mistyped.Field, "."), mistyped.Value, mistyped.Type)
	case err != nil:
		return spec, fmt.Errorf("spec: %w; it must have the fields of a %s that are known here, since the meaning of others would be lost", err, o.kind)
	}
	return spec, nil
}

// notAllowed says which value of a field is not allowed, and what is.
func notAllowed(field string, value any, allowed string) error {
	if text, ok := value.(string); ok {
		value = strconv.Quote(plaintext.Of(text))
	}
	return fmt.Errorf("spec.%s: %v is not allowed; it must be %s", field, value, allowed)
}

// versions are the ones of a kind that are read, in their order.
func versions(kind schema.GroupKind) (all []string) {
	for known := range kinds {
		if known.GroupKind() == kind {
			all = append(all, known.GroupVersion().String())
		}
	}
	slices.Sort(all)
	return all
}

func (o *object) conversion() *Conversion {
	annotations := maps.Clone(o.Annotations)
	// kubectl would take its own record of the original for that of the budget.
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return &Conversion{
		Source: o.kind + " " + name,
		Budget: &v1alpha1.TopologyDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TopologyDisruptionBudget"},
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, Labels: o.Labels, Annotations: annotations},
			Spec:       o.budget,
		},
		Notes: o.notes,
	}
}

// byZone divides nodes into zones.
func (o *object) byZone() {
	key := o.options.ZoneKey
	if key == "" {
		key = corev1.LabelTopologyZone
	}
	o.budget.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{
		MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}},
	}
}

// zoneKey is the key that byZone divided by.
func (o *object) zoneKey() string { return o.budget.NodeSelectorTerm.MatchExpressions[0].Key }

func isEmpty(selector *metav1.LabelSelector) bool {
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}
