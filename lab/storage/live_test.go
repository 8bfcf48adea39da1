package storage

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/test/rig"
)

// user is the runtime's as a provisioner; the lab gives it its rights.
const user = "vicinity:lab-storage"

// Claims of the real controllers get a folder, which goes with them if their class does not say otherwise.
func TestClaimsGetFolders(t *testing.T) {
	l := rig.Start(t)
	class := &storagev1.StorageClass{}
	if err := yaml.UnmarshalStrict([]byte(ClassManifest), class); err != nil {
		t.Fatal(err)
	}
	kept := class.DeepCopy()
	kept.Name, kept.Annotations, kept.ReclaimPolicy = "kept", nil, new(corev1.PersistentVolumeReclaimRetain)
	for _, class := range []*storagev1.StorageClass{class, kept} {
		if _, err := l.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	folder := start(t, l)
	for class, stays := range map[string]bool{"": false, Class: false, kept.Name: true} {
		claimOf(t, l, folder, class, stays)
	}
}

// claimOf makes a claim of a class, or of the default one, and removes it.
func claimOf(t *testing.T, l rig.ControlPlane, folder, class string, stays bool) {
	t.Helper()
	claims := l.CoreV1().PersistentVolumeClaims("default")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.Await("the claim is bound", func(ctx context.Context) (string, error) {
		var err error
		if claim, err = claims.Get(ctx, "data", metav1.GetOptions{}); err != nil || claim.Status.Phase == corev1.ClaimBound {
			return "", err
		}
		return "it is " + string(claim.Status.Phase), nil
	})
	path := filepath.Join(folder, claim.Spec.VolumeName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatalf("its folder is %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.Await("the volume is gone or released", func(ctx context.Context) (string, error) {
		volume, err := l.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && !stays || err == nil && stays && volume.Status.Phase == corev1.VolumeReleased {
			return "", nil
		} else if err != nil {
			return "", err
		}
		return "it is " + string(volume.Status.Phase), nil
	})
	if _, err := os.Stat(path); (err == nil) != stays {
		t.Errorf("of a claim of the class %q, the folder: %v", class, err)
	}
}

// start runs the provisioner for the time of a test, with its own rights.
func start(t *testing.T, l rig.ControlPlane) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "volumes")
	config := rest.CopyConfig(l.Config())
	config.Impersonate.UserName = user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := Run(ctx, Options{Client: client, Folder: folder, Log: slog.Default()}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return folder
}
