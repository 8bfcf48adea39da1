package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Definition is the part of a CRD that is compared.
type Definition struct {
	// Name is PLURAL.GROUP.
	Name string
	// Established says that the API server serves it.
	Established bool
	// Versions are the properties of the schemas of served versions, by name.
	Versions map[string]map[string]any
}

func (d *Definition) plural() string {
	name, _, _ := strings.Cut(d.Name, ".")
	return name
}

// checkDefinitions checks for CRDs that are missing or too old for the controller. CRDs of another version of Vicinity than
// this program's are not compared.
func (e *examination) checkDefinitions() {
	if !e.isInstalled() {
		return
	}
	have := map[string]*Definition{}
	for i := range e.Definitions {
		have[e.Definitions[i].Name] = &e.Definitions[i]
	}
	compare := !e.isOtherVersion()
	// This program does not know the CRDs of another version.
	elsewhere, apply := "", e.applyCRDs()
	if !compare {
		elsewhere = fmt.Sprintf(" of version %s, which this program needs; %s has version %s, so apply the CRDs of that",
			e.Charts[0], objectOf("Deployment", e.Controllers[0]), e.controllerChart())
	}
	for i := range e.Needed {
		needed := &e.Needed[i]
		object := Object{Kind: "CustomResourceDefinition", Name: needed.Name}
		if !e.knows(SourceDefinitions) {
			if e.knows(SourceServed) && !slices.Contains(e.Served, needed.plural()) {
				e.add(crdMissing, object, fmt.Sprintf("The API server does not serve %s%s.", needed.Name, elsewhere), apply)
			}
			continue
		}
		found := have[needed.Name]
		if found == nil {
			e.add(crdMissing, object, fmt.Sprintf("The cluster has no CRD %s%s.", needed.Name, elsewhere), apply)
			continue
		}
		if !compare {
			continue
		}
		for _, version := range slices.Sorted(maps.Keys(needed.Versions)) {
			schema, served := found.Versions[version]
			if !served || !found.Established {
				e.add(crdNotReady, object, fmt.Sprintf("CRD %s does not serve the version %s.", needed.Name, version), apply)
				continue
			}
			if missing := missingFields("", needed.Versions[version], schema); len(missing) > 0 {
				e.add(crdOld, object, fmt.Sprintf("CRD %s lacks %s that this version has: %s.", needed.Name, plaintext.Plural(len(missing), "field"), firstOf(missing)), apply)
			}
		}
	}
}

// missingFields returns the fields of a schema that another lacks, as sorted paths. Fields inside a missing field are not
// listed.
func missingFields(path string, needed, have map[string]any) []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		field := strings.TrimPrefix(path+"."+name, ".")
		other, found := have[name]
		if !found {
			missing = append(missing, field)
			continue
		}
		missing = append(missing, missingFields(field, propertiesOf(needed[name]), propertiesOf(other))...)
	}
	return missing
}

// propertiesOf returns the properties of a schema, or of the items of a list or a map.
func propertiesOf(schema any) map[string]any {
	for {
		fields, ok := schema.(map[string]any)
		if !ok {
			return nil
		}
		if properties, ok := fields["properties"].(map[string]any); ok {
			return properties
		}
		next, ok := fields["items"]
		if !ok {
			if next, ok = fields["additionalProperties"]; !ok {
				return nil
			}
		}
		schema = next
	}
}

func firstOf(names []string) string { return plaintext.FirstOf(names, 3) }
