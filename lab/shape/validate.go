package shape

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Sizes beyond which a lab has no names or addresses.
const (
	maxLabName   = 30
	maxNodeName  = 63
	maxLabel     = 63
	maxFakeNodes = 20000
	maxNodes     = 500
	maxLatency   = 10 * time.Second
)

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelForm    = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	prefixForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	cpuForm      = regexp.MustCompile(`^([0-9]+m|[0-9]+(\.[0-9]{1,3})?)$`)
	memoryForm   = regexp.MustCompile(`^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$`)
	ownLabels    = []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"}
	nameAllowed  = "lower-case letters, digits and dashes, beginning and ending with a letter or digit"
	labelAllowed = "letters, digits, dashes, underscores and dots, beginning and ending with a letter or digit"
)

// ValidateName checks the name of a lab.
func ValidateName(name string) error {
	if len(name) > maxLabName || !nameForm.MatchString(name) {
		return fmt.Errorf("name %q: a lab's name is up to %d %s", name, maxLabName, nameAllowed)
	}
	return nil
}

// Validate finds the first thing that is wrong with a complete shape. The error names
// the field, the value and what is allowed.
func (s Shape) Validate() error {
	if err := ValidateName(s.Name); err != nil {
		return err
	}
	if !slices.Contains(proxies, s.Proxy) {
		return fmt.Errorf("proxy %q: write one of %v", s.Proxy, proxies)
	}
	if s.FakeNodes < 0 || s.FakeNodes > maxFakeNodes {
		return fmt.Errorf("fakeNodes %d: write a number from 0 to %d", s.FakeNodes, maxFakeNodes)
	}
	for _, latency := range []struct {
		field string
		value Duration
	}{{"crossZoneLatency", s.CrossZoneLatency}, {"crossRegionLatency", s.CrossRegionLatency}} {
		if latency.value.Duration < 0 || latency.value.Duration > maxLatency {
			return fmt.Errorf("%s %s: write a duration from 0s to %s", latency.field, latency.value, maxLatency)
		}
	}
	if err := s.Timing.validate(); err != nil {
		return err
	}
	return s.validateZones()
}

func (t Timing) validate() error {
	for _, timing := range []struct {
		field string
		value Duration
	}{
		{"timing.leaseDuration", t.LeaseDuration},
		{"timing.leaseRenewal", t.LeaseRenewal},
		{"timing.monitorPeriod", t.MonitorPeriod},
		{"timing.monitorGrace", t.MonitorGrace},
		{"timing.toleration", t.Toleration},
	} {
		if timing.value.Duration <= 0 {
			return fmt.Errorf("%s %s: write a duration above 0s", timing.field, timing.value)
		}
	}
	// Leases and tolerations of Kubernetes count in whole seconds.
	for _, whole := range []struct {
		field string
		value Duration
	}{{"timing.leaseDuration", t.LeaseDuration}, {"timing.toleration", t.Toleration}} {
		if whole.value.Duration%time.Second != 0 {
			return fmt.Errorf("%s %s: write whole seconds", whole.field, whole.value)
		}
	}
	if t.LeaseRenewal.Duration >= t.MonitorGrace.Duration {
		return fmt.Errorf("timing.leaseRenewal %s: write a duration below timing.monitorGrace, which is %s, or no node stays ready",
			t.LeaseRenewal, t.MonitorGrace)
	}
	return nil
}

func (s Shape) validateZones() error {
	if len(s.Zones) == 0 {
		return fmt.Errorf("zones: a lab has at least one")
	}
	if n := len(s.Nodes()); n > maxNodes {
		return fmt.Errorf("zones: they have %d nodes in all, a lab has at most %d; fakeNodes are for more", n, maxNodes)
	}
	zones := map[string]bool{}
	names := map[string]bool{}
	indices := map[int]string{}
	for i, zone := range s.Zones {
		at := fmt.Sprintf("zones[%d]", i)
		if zones[zone.Name] {
			return fmt.Errorf("%s.name %q: another zone has this name, and each needs its own", at, zone.Name)
		}
		zones[zone.Name] = true
		if len(zone.Name) > maxLabel || !nameForm.MatchString(zone.Name) {
			return fmt.Errorf("%s.name %q: a zone's name is up to %d %s", at, zone.Name, maxLabel, nameAllowed)
		}
		if len(zone.Region) > maxLabel || !nameForm.MatchString(zone.Region) {
			return fmt.Errorf("%s.region %q: a region's name is up to %d %s", at, zone.Region, maxLabel, nameAllowed)
		}
		for j, node := range zone.Nodes {
			at := fmt.Sprintf("%s.nodes[%d]", at, j)
			if err := node.validate(at); err != nil {
				return err
			}
			if names[node.Name] || s.isFake(node.Name) {
				return fmt.Errorf("%s.name %q: another node has this name, and each needs its own", at, node.Name)
			}
			names[node.Name] = true
			if other, taken := indices[node.Index]; taken {
				return fmt.Errorf("%s.index %d: node %q has this index, and each needs its own", at, node.Index, other)
			}
			indices[node.Index] = node.Name
		}
	}
	return nil
}

// isFake reports whether a name is that of a node without network.
func (s Shape) isFake(name string) bool {
	var n int
	if _, err := fmt.Sscanf(name, "fake-%d", &n); err != nil {
		return false
	}
	return n >= 1 && n <= s.FakeNodes && name == fmt.Sprintf("fake-%d", n)
}

func (n Node) validate(at string) error {
	switch {
	case len(n.Name) > maxNodeName || !nameForm.MatchString(n.Name):
		return fmt.Errorf("%s.name %q: a node's name is up to %d %s", at, n.Name, maxNodeName, nameAllowed)
	case n.Index < 1 || n.Index > MaxIndex-maxFakeNodes:
		return fmt.Errorf("%s.index %d: write a number from 1 to %d", at, n.Index, MaxIndex-maxFakeNodes)
	case !cpuForm.MatchString(n.CPU):
		return fmt.Errorf("%s.cpu %q: write cores, such as 4, 0.5 or 500m", at, n.CPU)
	case !memoryForm.MatchString(n.Memory):
		return fmt.Errorf("%s.memory %q: write bytes with or without a unit, such as 512Mi or 8Gi", at, n.Memory)
	case n.Pods < 1 || n.Pods > MaxPods:
		return fmt.Errorf("%s.pods %d: write a number from 1 to %d", at, n.Pods, MaxPods)
	}
	return validateLabels(at+".labels", n.Labels)
}

func validateLabels(at string, labels map[string]string) error {
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			prefix, name = "", key
		}
		switch value := labels[key]; {
		case slices.Contains(ownLabels, key):
			return fmt.Errorf("%s: %q is set by the lab; name the node, its zone or its region instead", at, key)
		case prefixed && (len(prefix) > 253 || !prefixForm.MatchString(prefix)):
			return fmt.Errorf("%s: prefix %q of key %q: a prefix is a domain name in lower case", at, prefix, key)
		case len(name) > maxLabel || !labelForm.MatchString(name):
			return fmt.Errorf("%s: key %q: a key is up to %d %s, after an optional prefix and a slash", at, key, maxLabel, labelAllowed)
		case value != "" && (len(value) > maxLabel || !labelForm.MatchString(value)):
			return fmt.Errorf("%s: value %q of key %q: a value is empty or up to %d %s", at, value, key, maxLabel, labelAllowed)
		}
	}
	return nil
}
