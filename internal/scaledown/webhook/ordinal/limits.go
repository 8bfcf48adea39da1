package ordinal

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/kit/scheduling"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// selectedNode is the annotation of a claim whose volume is being provisioned for a node. The scheduler places the pod only there.
const selectedNode = "volume.kubernetes.io/selected-node"

// volumes says how the volumes of a pod limit its nodes.
type volumes struct {
	pinned bool // a volume is only for some nodes
	// unbound is a claim or an ephemeral volume that may be bound before the pod has a node.
	unbound string
}

func (j judge) volumesOf(ctx context.Context, namespace string, pod *corev1.Pod) (found volumes, err error) {
	for i := range pod.Spec.Volumes {
		if ephemeral := pod.Spec.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil { // its claim is created after the pod
			waits, err := j.waits(ctx, ephemeral.VolumeClaimTemplate.Spec.StorageClassName)
			if err != nil {
				return volumes{}, err
			}
			if !waits {
				found.unbound = pod.Spec.Volumes[i].Name
			}
		}
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		exists, err := j.read(ctx, types.NamespacedName{Namespace: namespace, Name: source.ClaimName}, claim)
		switch {
		case err != nil:
			return volumes{}, fmt.Errorf("reading PersistentVolumeClaim %s: %w", source.ClaimName, err)
		case !exists:
			continue
		case claim.Spec.VolumeName != "":
			pinned, err := j.isForSomeNodes(ctx, claim.Spec.VolumeName)
			if err != nil {
				return volumes{}, err
			}
			found.pinned = found.pinned || pinned
		case claim.Annotations[selectedNode] != "":
			found.pinned = true
		default:
			waits, err := j.waits(ctx, claim.Spec.StorageClassName)
			if err != nil {
				return volumes{}, err
			}
			if !waits {
				found.unbound = source.ClaimName
			}
		}
	}
	return found, nil
}

func (j judge) isForSomeNodes(ctx context.Context, name string) (bool, error) {
	volume := &corev1.PersistentVolume{}
	if _, err := j.read(ctx, types.NamespacedName{Name: name}, volume); err != nil {
		return false, fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		return true, nil
	}
	// The scheduler also follows these labels of a volume.
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if _, labelled := volume.Labels[key]; labelled {
			return true, nil
		}
	}
	return false, nil
}

// waits reports whether a claim of a StorageClass is bound only after its pod has a node. It does not look up the default class.
func (j judge) waits(ctx context.Context, name *string) (bool, error) {
	if name == nil || *name == "" {
		return false, nil
	}
	class := &storagev1.StorageClass{}
	if _, err := j.read(ctx, types.NamespacedName{Name: *name}, class); err != nil {
		return false, fmt.Errorf("reading StorageClass %s: %w", *name, err)
	}
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

// read reads an object. It returns false if the object does not exist.
func (j judge) read(ctx context.Context, key types.NamespacedName, object client.Object) (bool, error) {
	err := j.live.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// countingDomains returns the key of a spread constraint that would keep a pod with a node affinity for one domain pending: the
// scheduler counts only domains that the affinity allows. With fewer than minDomains, no domain may have more than maxSkew pods.
func countingDomains(spec *corev1.PodSpec) string {
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		counts := c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && c.MinDomains != nil && *c.MinDomains > 1 && counts {
			return c.TopologyKey
		}
	}
	return ""
}

// placesOf returns the domains where a pod fits, sorted by name. They include domains without a usable node, which may return. Nodes
// of the control plane make no domain, because they never take such a pod.
func placesOf(spec *corev1.PodSpec, key string, nodes []corev1.Node) []spread.Place {
	affinity := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	usable := map[string]bool{}
	for i := range nodes {
		node := &nodes[i]
		domain, found := node.Labels[key]
		matches, err := affinity.Match(node)
		if !found || !matches || err != nil {
			continue
		}
		if scheduling.IsKeptOff(spec, node, func(taint *corev1.Taint) bool { return intent.IsControlPlaneTaint(node, taint) }) {
			continue
		}
		usable[domain] = usable[domain] || !node.Spec.Unschedulable && !scheduling.IsKeptOff(spec, node, nil)
	}
	var places []spread.Place
	for _, name := range slices.Sorted(maps.Keys(usable)) {
		places = append(places, spread.Place{Name: name, Usable: usable[name]})
	}
	return places
}
