package conventions_test

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsers has the fuzz target of each annotation and spec of the API, as directory and target. A value
// without a target is compared with constants or not read, and the entry says so.
var parsers = map[string]string{
	"AnnotationSameNode":           "./internal/routing/intent FuzzRequestOf",
	"AnnotationSameZone":           "./internal/routing/intent FuzzRequestOf",
	"AnnotationSameRegion":         "./internal/routing/intent FuzzRequestOf",
	"AnnotationTopologyKeys":       "./internal/routing/intent FuzzTopologyKeys",
	"AnnotationTopologyMode":       "./internal/routing/intent FuzzRequestOf",
	"AnnotationTopologyAwareHints": "./internal/routing/intent FuzzRequestOf",
	"AnnotationProxy":              "./internal/routing/intent FuzzRequestOf",
	"AnnotationHeld":               "./internal/routing/hints FuzzHeld",
	"AnnotationGroupMarks":         "./internal/routing/groups FuzzMarks",
	"AnnotationBreakGlass":         "./internal/disruption/coverage FuzzBreakGlass",
	"AnnotationEvictionReason":     "it is written, and not read",
	"AnnotationAdopted":            "./internal/rollout/adopt FuzzUndo",
	"AnnotationDNSBefore":          "the JSON decoder of Go reads it, from the cluster's DNS server only",
	"AnnotationDNS":                "it is written, and not read",
	"AnnotationAbandonedRevision":  "it is compared with the name of a revision",
	"AnnotationReleasedFor":        "./internal/rollout/controller FuzzSlot",
	"AnnotationReleasedAt":         "./internal/rollout/controller FuzzSlot",
	"AnnotationDeploymentRevision": "it is compared with that of another object",
	"AnnotationKeepSpread":         "Kubernetes' own rule of label keys reads it",
	"AnnotationDeletionCost":       "./internal/scaledown/pacing FuzzAnnotations",
	"AnnotationGoesUntil":          "./internal/scaledown/pacing FuzzAnnotations",
	"AnnotationRepairSpread":       "it is compared with true",
	"AnnotationSpreadOrdinals":     "Kubernetes' own rule of label keys reads it",
	"AnnotationWantedReplicas":     "./internal/scaledown/pacing FuzzAnnotations",
	"AnnotationPacedReplicas":      "./internal/scaledown/pacing FuzzAnnotations",
	"AnnotationProgrammed":         "./internal/routing/handover FuzzReady",
	"AnnotationExcept":             "./internal/routing/handover FuzzReady",
	"AnnotationProbeFailure":       "./internal/kit/plaintext FuzzOf",

	"RoutingPolicySpec":            "./internal/routing/intent FuzzRequestOf",
	"ClusterRoutingPolicySpec":     "./internal/routing/intent FuzzRequestOf",
	"Capacity":                     "./internal/routing/capacity FuzzExpression",
	"EndpointGroupSpec":            "./internal/proxy/compile FuzzGroup",
	"PodLocator":                   "./internal/names/location FuzzOfPod",
	"TopologyDisruptionBudgetSpec": "./internal/disruption/coverage FuzzBudget",
	"NodeSelectorTerm":             "./internal/disruption/coverage FuzzTerm",
	"DomainRolloutSpec":            "./internal/rollout/controller FuzzSpec",
	"ZoneShiftSpec":                "./internal/shift FuzzShift",
	"PrometheusGate":               "./internal/rollout/controller FuzzAnswer",
}

// readers are targets for other input: queries of clients, networks, the kernel, and files.
var readers = []string{
	"./internal/names FuzzParse", "./internal/endpoint FuzzChoose", "./internal/names/location FuzzOfNode", "./internal/routing/webhook/endpointslice FuzzReview",
	"./internal/disruption/convert FuzzConvert", "./internal/cli/manifest FuzzRead", "./internal/proxy/kernel FuzzReplies",
	"./internal/proxy/netlink FuzzReplies", "./internal/proxy/accounting FuzzConnection", "./plugin/vicinity FuzzCorefile",
}

// written returns the annotations and specs that a file of the API declares.
func written(file *ast.File) (names []string) {
	for _, declaration := range file.Decls {
		declared, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range declared.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if declared.Tok == token.CONST && strings.HasPrefix(name.Name, "Annotation") {
						names = append(names, name.Name)
					}
				}
			case *ast.TypeSpec:
				if strings.HasSuffix(s.Name.Name, "Spec") {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}

func TestTenantInputIsFuzzed(t *testing.T) {
	var targets, names []string
	for _, p := range list(t) {
		if !ours(p.ImportPath) {
			continue
		}
		targets = append(targets, fuzzTargets(p.sources(t, p.TestGoFiles, p.XTestGoFiles))...)
		if p.path() == "api/v1alpha1" {
			for _, s := range p.sources(t, p.GoFiles) {
				if filepath.Base(s.name) != "zz_generated.deepcopy.go" {
					names = append(names, written(s.file)...)
				}
			}
		}
	}
	for _, name := range names {
		entry, listed := parsers[name]
		switch {
		case !listed:
			t.Errorf("%s has no entry in parsers: name the fuzz target of its reader", name)
		case strings.HasPrefix(entry, "./") && !slices.Contains(targets, entry):
			t.Errorf("parsers has %s with %s, which is not a fuzz target", name, entry)
		}
	}
	for name := range parsers {
		isWritten := strings.HasPrefix(name, "Annotation") || strings.HasSuffix(name, "Spec")
		if isWritten && !slices.Contains(names, name) {
			t.Errorf("%s is in parsers, but not in the API", name)
		}
	}
	for _, target := range readers {
		if !slices.Contains(targets, target) {
			t.Errorf("%s is not a fuzz target", target)
		}
	}
}
