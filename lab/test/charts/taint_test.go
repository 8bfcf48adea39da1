package charts_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	withTaint     = "proxy.enabled=true,proxy.startupTaint=true"
	policyOfTaint = "vicinity-proxy-taint"
)

const theNode = `
metadata: {name: n1, labels: {a: b}, annotations: {c: d}}
spec: {podCIDR: 10.0.0.0/24, taints: [{key: first, effect: NoSchedule}, {key: vicinity.dev/proxy-not-ready, effect: NoSchedule}, {key: last, effect: NoExecute}]}
`

// A proxy may only remove the start-up taint, and only from the node that its token names.
func TestProxyRemovesItsTaintOnly(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, withTaint), "ValidatingAdmissionPolicy "+policyOfTaint))
	proxyOf := func(node ...any) map[string]any {
		return map[string]any{
			"username": "system:serviceaccount:" + namespace + ":vicinity-proxy",
			"extra":    map[string]any{"authentication.kubernetes.io/node-name": node},
		}
	}
	set := func(part, field string, value any) func(map[string]any) {
		return func(object map[string]any) { object[part].(map[string]any)[field] = value }
	}
	remove := func(part, field string) func(map[string]any) {
		return func(object map[string]any) { delete(object[part].(map[string]any), field) }
	}
	taint := func(key string) map[string]any { return map[string]any{"key": key, "effect": "NoSchedule"} }
	last := map[string]any{"key": "last", "effect": "NoExecute"}
	tainted := func(all ...any) func(map[string]any) { return set("spec", "taints", all) }
	const another, rest, meta = "no other taint", "nothing but taints", "labels, annotations"
	for name, test := range map[string]struct {
		user   map[string]any
		change func(map[string]any) // after the removal of the taint
		want   string
	}{
		"the taint goes":   {change: func(map[string]any) {}},
		"it stays":         {change: tainted(taint("first"), taint(v1alpha1.TaintProxyNotReady), last), want: another},
		"another goes":     {change: tainted(taint("first")), want: another},
		"all go":           {change: remove("spec", "taints"), want: another},
		"one comes":        {change: tainted(taint("first"), last, taint("new")), want: another},
		"an effect":        {change: tainted(taint("first"), taint("last")), want: another},
		"a cordon":         {change: set("spec", "unschedulable", true), want: rest},
		"a pod range":      {change: set("spec", "podCIDR", "10.1.0.0/24"), want: rest},
		"a pod range goes": {change: remove("spec", "podCIDR"), want: rest},
		"a field to come":  {change: set("spec", "later", []any{"x"}), want: rest},
		"a label":          {change: set("metadata", "labels", map[string]any{"a": "c"}), want: meta},
		"labels go":        {change: remove("metadata", "labels"), want: meta},
		"an annotation":    {change: set("metadata", "annotations", map[string]any{"c": "e"}), want: meta},
		"an owner":         {change: set("metadata", "ownerReferences", []any{map[string]any{"name": "o"}}), want: meta},
		"a finalizer":      {change: set("metadata", "finalizers", []any{"example.com/keep"}), want: meta},
		"another node":     {user: proxyOf("n2"), change: func(map[string]any) {}, want: "its own Node only"},
		"no node":          {user: proxyOf(), change: func(map[string]any) {}, want: "its own Node only"},
		"an empty name":    {user: proxyOf(""), change: func(map[string]any) {}, want: "its own Node only"},
		"an administrator": {user: map[string]any{"username": "admin"}, change: remove("spec", "podCIDR")},
	} {
		before, after := parsed(t, theNode), parsed(t, theNode)
		tainted(taint("first"), last)(after)
		test.change(after)
		if p.user = test.user; p.user == nil {
			p.user = proxyOf("n1")
		}
		if got, _ := p.refuses(t, "nodes", before, after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused %q, want %q", name, got, test.want)
		}
	}
}
