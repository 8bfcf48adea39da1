package ordinal

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/webhook/admission"
)

// patch has a pod require something of its node beside what it requires already. One of its terms has to match, so each of
// them gets the requirement.
func patch(spec *corev1.PodSpec, requirement corev1.NodeSelectorRequirement) ([]byte, error) {
	const affinity = "/spec/affinity"
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}}}}
	node := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	switch there := spec.Affinity; {
	case there == nil:
		return json.Marshal([]admission.Operation{{Op: "add", Path: affinity, Value: &corev1.Affinity{NodeAffinity: node}}})
	case there.NodeAffinity == nil:
		return json.Marshal([]admission.Operation{{Op: "add", Path: affinity + "/nodeAffinity", Value: node}})
	case there.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil:
		return json.Marshal([]admission.Operation{{Op: "add", Path: affinity + "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution", Value: required}})
	}
	var operations []admission.Operation
	for i, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		path := fmt.Sprintf("%s/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/%d/matchExpressions", affinity, i)
		switch {
		case len(term.MatchExpressions) > 0:
			operations = append(operations, admission.Operation{Op: "add", Path: path + "/-", Value: requirement})
		case len(term.MatchFields) > 0:
			operations = append(operations, admission.Operation{Op: "add", Path: path, Value: []corev1.NodeSelectorRequirement{requirement}})
		}
		// An empty term matches no node, and would match some with the requirement.
	}
	return json.Marshal(operations)
}
