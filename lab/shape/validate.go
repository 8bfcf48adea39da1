package shape

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Limits of a lab.
const (
	maxLabName   = 30
	maxFakeNodes = 20000
	maxNodes     = 500
	maxDelay     = 10 * time.Second
)

// ownLabels are set by the lab.
var ownLabels = []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}

// FieldError reports an invalid field of a shape.
type FieldError struct {
	// Field is the path of the field, such as zones.nodes.cpu.
	Field string
	// Problem follows the field in the message: the value, if any, and the allowed values.
	Problem string
}

func (e *FieldError) Error() string { return e.Field + e.Problem }

// fieldErrorf returns an error about a field. The format is for its Problem.
func fieldErrorf(field, format string, args ...any) *FieldError {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// ValidateName checks the name of a lab.
func ValidateName(name string) error {
	if len(name) > maxLabName {
		return fieldErrorf("name", " %q: a lab's name has up to %d characters", name, maxLabName)
	}
	return checkLabel("name", name)
}

func checkLabel(field, name string) error {
	if problems := content.IsDNS1123Label(name); len(problems) > 0 {
		return fieldErrorf(field, " %q: %s", name, problems[0])
	}
	return nil
}

// Validate checks an impairment.
func (i Impairment) Validate() error {
	switch {
	case i.Loss < 0 || i.Loss > 100:
		return fieldErrorf("loss", " %d: write a percentage from 0 to 100", i.Loss)
	case i.Delay.Duration < 0 || i.Delay.Duration > maxDelay:
		return fieldErrorf("delay", " %s: write a time from 0s to %s", i.Delay.Duration, maxDelay)
	case i == Impairment{}:
		return fieldErrorf("loss", " is 0 and so is the delay: write at least one of them")
	}
	return nil
}

// Validate returns an error about the first invalid field of a complete shape, with its value and what
// is allowed.
func (s Shape) Validate() error {
	if err := ValidateName(s.Name); err != nil {
		return err
	}
	if !slices.Contains(proxies, s.Proxy) {
		return fieldErrorf("proxy", " %q: write one of %v", s.Proxy, proxies)
	}
	if err := s.validateDNS(); err != nil {
		return err
	}
	if s.FakeNodes < 0 || s.FakeNodes > maxFakeNodes {
		return fieldErrorf("fakeNodes", " %d: write a number from 0 to %d", s.FakeNodes, maxFakeNodes)
	}
	return s.validateZones()
}

func (s Shape) validateDNS() error {
	if s.DNS != "" && !slices.Contains(dnsServers, s.DNS) {
		return fieldErrorf("dns", " %q: write one of %v", s.DNS, dnsServers)
	}
	if why := s.WhyNoDNS(); why != "" && s.DNSServer() != DNSNone {
		return fieldErrorf("dns", " %q: %s; write %s", s.DNS, why, DNSNone)
	}
	return nil
}

func (s Shape) validateZones() error {
	if len(s.Zones) == 0 {
		return fieldErrorf("zones", ": a lab has at least one zone")
	}
	if n := len(s.Nodes()); n > maxNodes {
		return fieldErrorf("zones", ": they have %d nodes in all, a lab has at most %d; use fake nodes for more", n, maxNodes)
	}
	zones, names := map[string]bool{}, map[string]bool{}
	for _, zone := range s.Zones {
		if zones[zone.Name] {
			return fieldErrorf("zones.name", " %q: another zone has this name, and each needs its own", zone.Name)
		}
		zones[zone.Name] = true
		if err := checkLabel("zones.name", zone.Name); err != nil {
			return err
		}
		if err := checkLabel("zones.region", zone.Region); err != nil {
			return err
		}
		for _, node := range zone.Nodes {
			if err := node.validate(); err != nil {
				return err
			}
			if names[node.Name] || s.isFake(node.Name) {
				return fieldErrorf("zones.nodes.name", " %q: another node has this name, and each needs its own", node.Name)
			}
			names[node.Name] = true
		}
	}
	return nil
}

func (s Shape) isFake(name string) bool {
	var n int
	if _, err := fmt.Sscanf(name, "fake-%d", &n); err != nil {
		return false
	}
	return n >= 1 && n <= s.FakeNodes && name == fmt.Sprintf("fake-%d", n)
}

func (n Node) validate() error {
	if err := checkLabel("zones.nodes.name", n.Name); err != nil {
		return err
	}
	switch {
	case !isQuantity(n.CPU):
		return fieldErrorf("zones.nodes.cpu", " %q: write cores, such as 4, 0.5 or 500m", n.CPU)
	case !isQuantity(n.Memory):
		return fieldErrorf("zones.nodes.memory", " %q: write bytes with or without a unit, such as 512Mi or 8Gi", n.Memory)
	}
	return validateLabels(n.Labels)
}

func isQuantity(text string) bool {
	quantity, err := resource.ParseQuantity(text)
	return err == nil && quantity.Sign() >= 0
}

func validateLabels(labels map[string]string) error {
	const at = "zones.nodes.labels"
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if slices.Contains(ownLabels, key) {
			return fieldErrorf(at, ": %q is set by the lab; name the node, its zone or its region instead", key)
		}
		if problems := content.IsLabelKey(key); len(problems) > 0 {
			return fieldErrorf(at, ": key %q: %s", key, problems[0])
		}
		if problems := content.IsLabelValue(labels[key]); len(problems) > 0 {
			return fieldErrorf(at, ": value %q of key %q: %s", labels[key], key, problems[0])
		}
	}
	return nil
}
