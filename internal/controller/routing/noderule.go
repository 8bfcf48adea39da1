package routing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultProxyNodes is the rule of the chart's DaemonSet by default.
func DefaultProxyNodes() NodeRule {
	return NodeRule{selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{corev1.LabelOSStable: "linux"})}}
}

// NodeRule says which nodes run vicinity-proxy: those that one of its selectors matches, or
// all without any. It is the value of a flag that can be given several times, the first of
// which replaces the default.
type NodeRule struct {
	selectors []labels.Selector
	given     bool // by a flag, so that it is not the default any more
}

// Matches reports whether a node with these labels runs the proxy.
func (r *NodeRule) Matches(node map[string]string) bool {
	return len(r.selectors) == 0 || slices.ContainsFunc(r.selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(node)) })
}

// String is the rule as a flag.
func (r *NodeRule) String() string {
	texts := make([]string, len(r.selectors))
	for i, selector := range r.selectors {
		texts[i] = selector.String()
	}
	return strings.Join(texts, " or ")
}

// Set adds what a flag says.
func (r *NodeRule) Set(selector string) error {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return fmt.Errorf("it must be a selector of labels, such as %s=linux: %w", corev1.LabelOSStable, err)
	}
	if !r.given {
		r.selectors = nil
	}
	r.selectors, r.given = append(r.selectors, parsed), true
	return nil
}

// Type is what the help calls the flag's value.
func (*NodeRule) Type() string { return "selector" }
