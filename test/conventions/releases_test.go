package conventions_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Files that name the supported releases of Kubernetes.
const (
	chartFile   = "charts/vicinity/Chart.yaml"
	installFile = "docs/install.md"
	newestFile  = "lab/kubernetes/go.mod"
	oldestFile  = "lab/kubernetes/oldest.mod"
)

// supported is the number of minor releases of Kubernetes that get patches at a time.
const supported = 3

var (
	labKubernetes = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v1\.(\d+)\.(\d+)$`)
	// staged are the modules of a Kubernetes release, by the replace directives.
	staged      = regexp.MustCompile(`(?m)^\t(k8s\.io/[a-z-]+) => k8s\.io/[a-z-]+ v0\.(\d+)\.(\d+)$`)
	kubeVersion = regexp.MustCompile(`(?m)^kubeVersion: "(.*)"$`)
	// install names the release for readers, without the patch version.
	install = regexp.MustCompile(`Kubernetes 1\.(\d+) or newer`)
	tested  = regexp.MustCompile(`tested with 1\.(\d+) and 1\.(\d+)`)
)

// The oldest release is the same in the chart, the documents and the lab. The newest is the lab's.
// TestModulesHaveOneVersion compares the libraries with the newest.
func TestReleases(t *testing.T) {
	// found returns the groups of an expression in a file.
	found := func(name string, expression *regexp.Regexp) []string {
		match := expression.FindStringSubmatch(read(t, name))
		if match == nil {
			t.Errorf("%s has no match for %s", name, expression)
			return make([]string, expression.NumSubexp()+1)
		}
		return match
	}
	minor := map[string]string{}
	for _, name := range []string{newestFile, oldestFile} {
		release := found(name, labKubernetes)
		minor[name] = release[1]
		for _, module := range staged.FindAllStringSubmatch(read(t, name), -1) {
			if !slices.Equal(module[2:], release[1:]) {
				t.Errorf("%s: %s is v0.%s, and Kubernetes v1.%s", name, module[1], strings.Join(module[2:], "."), strings.Join(release[1:], "."))
			}
		}
	}
	newest, errNewest := strconv.Atoi(minor[newestFile])
	oldest, errOldest := strconv.Atoi(minor[oldestFile])
	if errNewest == nil && errOldest == nil && newest-oldest != supported-1 {
		t.Errorf("%s has Kubernetes 1.%d: with %d releases that get patches and 1.%d as the newest, the oldest is 1.%d",
			oldestFile, oldest, supported, newest, newest-supported+1)
	}
	if got, want := found(chartFile, kubeVersion)[1], ">=1."+minor[oldestFile]+".0-0"; got != want {
		t.Errorf("%s: kubeVersion is %q, but the oldest release in a lab requires %q", chartFile, got, want)
	}
	if got := found(installFile, install)[1]; got != minor[oldestFile] {
		t.Errorf("%s: Kubernetes 1.%s or newer, but the oldest release in a lab is 1.%s", installFile, got, minor[oldestFile])
	}
	if got, want := found(installFile, tested)[1:], []string{minor[oldestFile], minor[newestFile]}; !slices.Equal(got, want) {
		t.Errorf("%s: tested with 1.%s, but labs run 1.%s", installFile, strings.Join(got, " and 1."), strings.Join(want, " and 1."))
	}
}
