// Package storage makes volumes for the claims of a lab. A volume is a folder in the lab's folder,
// which all nodes reach, since they are on one machine.
//
// A volume is as large as its file system, whatever its claim requests. It is removed with its
// claim, unless its reclaim policy retains it. All volumes are removed with the lab.
package storage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// Provisioner is the name of this package in its StorageClass.
const Provisioner = "lab.vicinity.dev/folder"

// The controller-manager sets annotationRequested on a claim to request a volume from a
// provisioner. annotationProvisioned names the provisioner of a volume.
const (
	annotationRequested   = "volume.kubernetes.io/storage-provisioner"
	annotationProvisioned = "pv.kubernetes.io/provisioned-by"
)

// Options are the dependencies of Run.
type Options struct {
	Client kubernetes.Interface
	// Folder contains the folders of volumes.
	Folder string
	Log    *slog.Logger
}

type provisioner struct {
	Options
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	queue   workqueue.TypedRateLimitingInterface[key]
}

// key names a claim, or a volume if it has no namespace.
type key struct{ namespace, name string }

// Run makes and removes volumes until the context ends.
func Run(ctx context.Context, o Options) error {
	factory := informers.NewSharedInformerFactory(o.Client, 0)
	core := factory.Core().V1()
	p := &provisioner{
		Options: o, claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, 10*time.Second)),
	}
	for _, informer := range []cache.SharedIndexInformer{core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: p.enqueue, UpdateFunc: func(_, now any) { p.enqueue(now) },
		}); err != nil {
			return fmt.Errorf("watching volumes: %w", err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, p.queue.ShutDown)
	for {
		k, ended := p.queue.Get()
		if ended {
			return nil
		}
		if err := p.sync(ctx, k); err != nil && ctx.Err() == nil {
			p.Log.Error("volume cannot be made or removed", "namespace", k.namespace, "name", k.name, "error", err)
			p.queue.AddRateLimited(k)
		} else {
			p.queue.Forget(k)
		}
		p.queue.Done(k)
	}
}

func (p *provisioner) enqueue(object any) {
	if one, ok := object.(metav1.Object); ok {
		p.queue.Add(key{one.GetNamespace(), one.GetName()})
	}
}

func (p *provisioner) sync(ctx context.Context, k key) error {
	if k.namespace == "" {
		volume, err := p.volumes.Get(k.name)
		if err != nil || !mustDelete(volume) {
			return ignoreNotFound(err)
		}
		return p.removeVolume(ctx, volume)
	}
	claim, err := p.claims.PersistentVolumeClaims(k.namespace).Get(k.name)
	if err != nil || !needsVolume(claim) {
		return ignoreNotFound(err)
	}
	return p.makeVolume(ctx, claim)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// needsVolume reports whether a claim needs a volume that a folder can be.
func needsVolume(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claim.Annotations[annotationRequested] == Provisioner &&
		claim.Spec.Selector == nil && (claim.Spec.VolumeMode == nil || *claim.Spec.VolumeMode == corev1.PersistentVolumeFilesystem)
}

// mustDelete reports whether a volume of this provisioner has lost its claim and must be deleted.
func mustDelete(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[annotationProvisioned] == Provisioner && volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.DeletionTimestamp == nil
}

func (p *provisioner) makeVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	class, err := p.Client.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading StorageClass %q: %w", name, err)
	}
	volume := newVolume(claim, class, p.Folder)
	folder := volume.Spec.HostPath.Path
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// Containers run as any user: for a hostPath, the kubelet does not change the group.
	if err := os.Chmod(folder, 0o777); err != nil {
		return err
	}
	_, err = p.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func newVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, folder string) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	made := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisioned: Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: claim.Spec.AccessModes,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
				ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:              class.Name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(folder, name), Type: &made},
			},
		},
	}
}

func (p *provisioner) removeVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	// Users may write to volumes, but the runtime removes folders as root.
	folder := filepath.Join(p.Folder, volume.Name)
	if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != folder {
		return fmt.Errorf("it is not a folder of this provisioner in %s", p.Folder)
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return ignoreNotFound(p.Client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}))
}
