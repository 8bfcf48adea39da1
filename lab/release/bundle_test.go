package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/util"
)

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenBundle(t *testing.T) {
	own, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if _, err := OpenBundle(folder); err == nil || !strings.Contains(err.Error(), "has 0 files vicinity-VERSION.tgz, and must have one; make package makes such a folder") {
		t.Errorf("of an empty folder: %v", err)
	}
	if _, err := util.Save(own.chart, folder); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBundle(folder); err == nil || !strings.Contains(err.Error(), "has no archive of an image, NAME-VERSION.oci.tar") {
		t.Errorf("without images: %v", err)
	}
	write(t, filepath.Join(folder, "images", "b-1.oci.tar"))
	write(t, filepath.Join(folder, "a-1.oci.tar"))
	write(t, filepath.Join(folder, "a-1-linux-amd64.tar"))
	b, err := OpenBundle(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Images) != 2 || !strings.HasSuffix(b.Images[0], "/a-1.oci.tar") || !strings.HasSuffix(b.Images[1], "/images/b-1.oci.tar") {
		t.Errorf("the images are %q", b.Images)
	}
	if b.Chart.Version() != own.Version() || len(b.Chart.CRDs()) != len(own.CRDs()) || len(own.CRDs()) == 0 {
		t.Errorf("the chart is of version %s with %d CRDs, want %s with %d", b.Chart.Version(), len(b.Chart.CRDs()), own.Version(), len(own.CRDs()))
	}
	write(t, filepath.Join(folder, "vicinity-2.tgz"))
	if _, err := OpenBundle(folder); err == nil || !strings.Contains(err.Error(), "has 2 files") {
		t.Errorf("of two charts: %v", err)
	}
}
