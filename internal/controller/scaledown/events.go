package scaledown

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/spread"
)

// Reasons of events of workloads.
const (
	eventInvalid    = "KeepSpreadInvalid"
	eventForeign    = "DeletionCostKept"
	eventNoRoom     = "DeletionCostsHaveNoRoom"
	eventRepair     = "SpreadRepair"
	eventRepairEnds = "SpreadRepairEnds"
)

// announce writes an event about a workload, once while there is a message.
func (n *notes) announce(r *reconciler, owner client.Object, reason, message string) {
	if message == "" {
		delete(n.announced, reason)
		return
	}
	if n.announced[reason] {
		return
	}
	n.announced[reason] = true
	r.recorder.Eventf(owner, nil, corev1.EventTypeWarning, reason, "KeepSpread", "%s", message)
}

func foreignMessage(pods []spread.Pod) string {
	var names []string
	for i := range pods {
		if pods[i].Foreign {
			names = append(names, pods[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %d pods was set by another owner and is kept, that of %s first; only the others are deleted in the order that keeps the spread. Remove it from pods and their template to have all of them ordered",
		corev1.PodDeletionCost, len(names), names[0])
}

func noRoomMessage(sets []string) string {
	if len(sets) == 0 {
		return ""
	}
	return fmt.Sprintf("The spread is not kept in ReplicaSet %s: other owners have set negative values of %s and others so close to them that none is left between for the rest of the pods. Remove these, or have them thousands apart",
		strings.Join(sets, ", "), corev1.PodDeletionCost)
}
