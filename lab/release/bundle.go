package release

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Bundle is a folder of "make package" or "make release": a packaged chart, and the archives of its
// images.
type Bundle struct {
	Chart Chart
	// Images are the paths of the archives, which are OCI layouts.
	Images []string
}

// OpenBundle reads a folder. The archives may be in its subfolder images.
func OpenBundle(folder string) (Bundle, error) {
	packages, err := filepath.Glob(filepath.Join(folder, Name+"-*.tgz"))
	if err != nil {
		return Bundle{}, err
	}
	if len(packages) != 1 {
		return Bundle{}, fmt.Errorf("%s has %d files %s-VERSION.tgz, and must have one; make package makes such a folder", folder, len(packages), Name)
	}
	var b Bundle
	if b.Chart, err = Open(packages[0]); err != nil {
		return Bundle{}, err
	}
	for _, pattern := range []string{"*.oci.tar", filepath.Join("images", "*.oci.tar")} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return Bundle{}, err
		}
		b.Images = append(b.Images, found...)
	}
	if len(b.Images) == 0 {
		return Bundle{}, fmt.Errorf("%s has no archive of an image, NAME-VERSION.oci.tar; make package makes such a folder", folder)
	}
	slices.Sort(b.Images)
	return b, nil
}
