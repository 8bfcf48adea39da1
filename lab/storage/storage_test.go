package storage

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestClaimsOfOthers(t *testing.T) {
	asked := map[string]string{annotationAsked: Provisioner}
	block := corev1.PersistentVolumeBlock
	now := metav1.Now()
	for name, test := range map[string]struct {
		claim  corev1.PersistentVolumeClaim
		wanted bool
	}{
		"asked for":   {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: asked}}, true},
		"of no one":   {corev1.PersistentVolumeClaim{}, false},
		"of another":  {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationAsked: "other"}}}, false},
		"bound":       {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: asked}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "a"}}, false},
		"going":       {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: asked, DeletionTimestamp: &now}}, false},
		"a device":    {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: asked}, Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: &block}}, false},
		"of a choice": {corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: asked}, Spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}}}, false},
	} {
		if got := isWanted(&test.claim); got != test.wanted {
			t.Errorf("a claim %s is wanted: %v", name, got)
		}
	}
}

func TestVolumesThatAreOver(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := newVolume(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, &storagev1.StorageClass{}, "/volumes")
		v.Status.Phase = corev1.VolumeReleased
		change(v)
		return v
	}
	if !isOver(volume(func(*corev1.PersistentVolume) {})) {
		t.Error("a volume without its claim is kept")
	}
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"that is bound": func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound },
		"that is kept": func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		"of another":      func(v *corev1.PersistentVolume) { v.Annotations = nil },
		"that is removed": func(v *corev1.PersistentVolume) { now := metav1.Now(); v.DeletionTimestamp = &now },
	} {
		if isOver(volume(change)) {
			t.Errorf("a volume %s is over", name)
		}
	}
}

// A volume that was written by someone else may name any folder.
func TestRemoveLeavesOtherFolders(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	for _, made := range []string{filepath.Join(folder, "pvc-1"), filepath.Join(folder, "pvc-2")} {
		if err := os.Mkdir(made, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	p := &provisioner{Options: Options{Client: fake.NewClientset(), Folder: folder, Log: slog.Default()}}
	for _, path := range []string{other, folder, filepath.Join(folder, "pvc-2"), filepath.Join(folder, "pvc-1", "..", "pvc-2")} {
		volume := newVolume(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, &storagev1.StorageClass{}, folder)
		volume.Spec.HostPath.Path = path
		if err := p.remove(t.Context(), volume); err == nil {
			t.Errorf("a volume that is %s is removed", path)
		}
	}
	volume := newVolume(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, &storagev1.StorageClass{}, folder)
	if err := p.remove(t.Context(), volume); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]bool{other: true, filepath.Join(folder, "pvc-1"): false, filepath.Join(folder, "pvc-2"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
