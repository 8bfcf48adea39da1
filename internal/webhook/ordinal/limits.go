package ordinal

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// selectedNode is the annotation of a claim whose volume is being made for a node: the scheduler lets the pod go to no other.
const selectedNode = "volume.kubernetes.io/selected-node"

// volumes is what the volumes of a pod say about where it can be.
type volumes struct {
	pinned bool // one is for some nodes alone
	// unbound is a claim, or an ephemeral volume, that may be bound without regard to where the pod goes.
	unbound string
}

func (j judge) volumesOf(ctx context.Context, namespace string, pod *corev1.Pod) (found volumes, err error) {
	for i := range pod.Spec.Volumes {
		if ephemeral := pod.Spec.Volumes[i].Ephemeral; ephemeral != nil && ephemeral.VolumeClaimTemplate != nil { // its claim comes after the pod
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
	// The scheduler goes by these labels of a volume as well.
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if _, labelled := volume.Labels[key]; labelled {
			return true, nil
		}
	}
	return false, nil
}

// waits reports whether a claim of a StorageClass is bound where its pod goes. Which class is meant by none is not looked up.
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

// read reads an object, false if there is none.
func (j judge) read(ctx context.Context, key types.NamespacedName, object client.Object) (bool, error) {
	err := j.live.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// countingDomains is the key of a spread constraint under which a pod with a node affinity for one domain would stay pending:
// the scheduler counts only domains that the affinity allows, and if there are fewer than minDomains, it lets no domain have
// more pods than maxSkew.
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
