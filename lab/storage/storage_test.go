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

// A volume of another writer may name any folder.
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
		if err := p.removeVolume(t.Context(), volume); err == nil {
			t.Errorf("a volume with the path %s was removed", path)
		}
	}
	volume := newVolume(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, &storagev1.StorageClass{}, folder)
	if err := p.removeVolume(t.Context(), volume); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]bool{other: true, filepath.Join(folder, "pvc-1"): false, filepath.Join(folder, "pvc-2"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it to exist: %t", path, err, want)
		}
	}
}
