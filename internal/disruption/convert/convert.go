// Package convert turns other kinds of budgets into TopologyDisruptionBudgets, and notes the differences. It converts one object at a
// time and reads no cluster, so a note states its assumptions about where pods run.
//
// If the difference depends on more than that, Convert returns an error with the reason and the next step.
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
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Options supply facts that an object lacks.
type Options struct {
	// ZoneKey is the node label of zones. The default is topology.kubernetes.io/zone.
	ZoneKey string
	// GroupBy is the pod label with the part of the name that a budget groups by. It is needed only if Kubernetes sets no such label.
	GroupBy string
}

// Conversion is a converted object.
type Conversion struct {
	// Source has the kind, namespace and name of the original, for people.
	Source string
	Budget *v1alpha1.TopologyDisruptionBudget
	Notes  []Note
}

// Note is a difference between the two budgets.
type Note struct {
	Effect Effect
	Text   string
}

// IsWeaker reports whether the new budget may admit evictions that the original refuses.
func (n Note) IsWeaker() bool { return n.Effect == AllowsMore || n.Effect == Assumes }

func (n Note) String() string { return string(n.Effect) + ": " + n.Text }

// Effect is the effect of a difference.
type Effect string

// The effects.
const (
	// AllowsMore admits evictions that the original refuses.
	AllowsMore Effect = "allows more"
	// RefusesMore refuses evictions that the original admits.
	RefusesMore Effect = "refuses more"
	// Assumes states an assumption that holds for most clusters. If it does not, the budget means something else.
	Assumes Effect = "assumes"
	// Remark does not change the meaning.
	Remark Effect = "note"
)

// IsWeaker reports whether the new budget may admit evictions that the original refuses.
func (c *Conversion) IsWeaker() bool {
	return slices.ContainsFunc(c.Notes, Note.IsWeaker)
}

const (
	grafanaGroup = "rollout-operator.grafana.com"
	awsGroup     = "zonecontrol.k8s.aws"
)

// kinds has the function that converts each kind.
var kinds = map[schema.GroupVersionKind]func(*object) error{
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"):                (*object).native,
	{Group: grafanaGroup, Version: "v1", Kind: "ZoneAwarePodDisruptionBudget"}: (*object).grafana,
	{Group: awsGroup, Version: "v1", Kind: "ZoneDisruptionBudget"}:             (*object).aws,
}

// Kinds names the kinds that Convert supports.
const Kinds = "PodDisruptionBudget (policy/v1), ZoneAwarePodDisruptionBudget (" + grafanaGroup + "/v1) and ZoneDisruptionBudget (" + awsGroup + "/v1)"

// Is reports whether Convert must see objects of the kind. That includes unknown versions, so that Convert refuses them visibly.
func Is(gvk schema.GroupVersionKind) bool {
	for known := range kinds {
		if known.GroupKind() == gvk.GroupKind() {
			return true
		}
	}
	return false
}

// object is an object during its conversion.
type object struct {
	metadata
	spec json.RawMessage

	kind    string
	options Options
	budget  v1alpha1.TopologyDisruptionBudgetSpec
	notes   []Note
}

// metadata has the fields that the new budget keeps.
type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (o *object) note(effect Effect, format string, args ...any) {
	o.notes = append(o.notes, Note{effect, fmt.Sprintf(format, args...)})
}

// Convert converts an object in JSON. The kind is a parameter, because items of a list may lack it.
func Convert(kind schema.GroupVersionKind, data []byte, options Options) (*Conversion, error) {
	convert, found := kinds[kind]
	if !found {
		return nil, fmt.Errorf("kind %q of apiVersion %q cannot be converted; allowed are %s", kind.Kind, kind.GroupVersion(), Kinds)
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
		o.note(Remark, "both budgets select no pods")
	}
	return o.conversion(), nil
}

// specOf reads the spec of an object. It refuses unknown fields, because their meaning would be lost.
func specOf[T any](o *object) (spec T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(o.spec))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&spec)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		return spec, fmt.Errorf("%s: a %s is not allowed; it must be of type %s", strings.TrimSuffix("spec."+mistyped.Field, "."), mistyped.Value, mistyped.Type)
	case err != nil:
		return spec, fmt.Errorf("spec: %w; it must have only fields of a %s that can be converted, as the meaning of others would be lost", err, o.kind)
	}
	return spec, nil
}

// notAllowed returns an error with the wrong value of a field and the allowed values.
func notAllowed(field string, value any, allowed string) error {
	if text, ok := value.(string); ok {
		value = strconv.Quote(plaintext.Of(text))
	}
	return fmt.Errorf("spec.%s: %v is not allowed; it must be %s", field, value, allowed)
}

func (o *object) conversion() *Conversion {
	annotations := maps.Clone(o.Annotations)
	// kubectl would use this record of the original for the new budget.
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

// byZone makes the zones of nodes the domains.
func (o *object) byZone() {
	key := o.options.ZoneKey
	if key == "" {
		key = corev1.LabelTopologyZone
	}
	o.budget.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{
		MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}},
	}
}

// zoneKey returns the label that byZone has set.
func (o *object) zoneKey() string { return o.budget.NodeSelectorTerm.MatchExpressions[0].Key }
