package intent

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/golden"
)

func TestRequestOf(t *testing.T) { compare(t, "services", 45, asked(t)) }

func TestRequestOfPolicies(t *testing.T) { compare(t, "policies", 20, asked(t)) }

func TestRequestOfClusterPolicies(t *testing.T) { compare(t, "clusterpolicies", 13, asked(t)) }

// A policy bounds and delivers what the Service itself asks for, and changes no tier of it.
func TestRequestOfServicesWithPolicies(t *testing.T) { compare(t, "tuned", 30, asked(t)) }

func TestRequestOfHeadlessServices(t *testing.T) { compare(t, "headless", 18, asked(t)) }

// A policy that a Service names is part of its settings. A policy that selects it is not, and has no effect if it is
// impossible.
func TestImpossible(t *testing.T) { compare(t, "faults", 22, asked(t)) }

// A policy without values has the defaults of its algorithm, and invalid stored values fall back to them.
func TestReadPolicyFallsBack(t *testing.T) { compare(t, "read", 53, readPolicy) }

// question is a Service with the policies that may count for it.
type question struct {
	Service         *corev1.Service                  `json:"service"`
	Policies        []*v1alpha1.RoutingPolicy        `json:"policies"`
	ClusterPolicies []*v1alpha1.ClusterRoutingPolicy `json:"clusterPolicies"`
	TakeOverAuto    bool                             `json:"takeOverAuto"`
	GivesNames      bool                             `json:"givesNames"`
	GroupsByDefault bool                             `json:"groupsByDefault"`
}

// compare answers the questions of a file, and compares each answer with the comment above the question: the name of the
// case, then the lines of the answer. The file must have at least least cases. Services are named web in namespace shop
// and labelled app=web, unless the file has other values.
func compare(t *testing.T, file string, least int, answer func(question) []string) {
	t.Helper()
	path := filepath.Join("testdata", "requests", file+".yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	for document := range strings.SplitSeq(string(text), "---\n") {
		var comments, manifest []string
		for line := range strings.Lines(document) {
			if comment, is := strings.CutPrefix(line, "# "); is {
				comments = append(comments, strings.TrimSuffix(comment, "\n"))
			} else {
				manifest = append(manifest, line)
			}
		}
		var q question
		if err := yaml.UnmarshalStrict([]byte(strings.Join(manifest, "")), &q); err != nil {
			t.Fatalf("%s: %v", comments[0], err)
		}
		complete(&q)
		got := answer(q)
		if want := comments[1:]; !golden.IsUpdate() && !slices.Equal(got, want) {
			t.Errorf("%s\ngot\n  %s\nwant\n  %s", comments[0], strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		written = append(written, "# "+strings.Join(append(comments[:1], got...), "\n# ")+"\n"+strings.Join(manifest, ""))
	}
	if len(written) < least {
		t.Fatalf("%s has %d cases, want at least %d", path, len(written), least)
	}
	golden.Compare(t, path, strings.Join(written, "---\n"))
}

func complete(q *question) {
	if s := q.Service; s != nil && s.Namespace == "" {
		s.Namespace, s.Name = "shop", "web"
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels["app"] = "web"
	}
	for _, policy := range q.Policies {
		if policy.Namespace == "" {
			policy.Namespace = "shop"
		}
	}
}

// asked describes the request of a Service and its impossible settings. The order of policies does not matter.
func asked(t *testing.T) func(question) []string {
	return func(q question) []string {
		before := q.Service.DeepCopy()
		answer := func() []string {
			request := RequestOf(q.Service, q.Policies, Options{
				TakeOverAuto: q.TakeOverAuto, GivesNames: q.GivesNames, Defaults: q.ClusterPolicies, GroupsByDefault: q.GroupsByDefault,
			})
			if err := request.Intent.Validate(); err != nil || request.Groups != (request.GroupsBy != "") || request.Headless && (request.Groups || request.WithGroups(true).Groups) {
				t.Errorf("%+v is not valid: %v", request, err)
			}
			lines := describe(request)
			for _, fault := range Impossible(q.Service, q.Policies) {
				lines = append(lines, "impossible: "+fault)
			}
			return lines
		}
		lines := answer()
		slices.Reverse(q.Policies)
		slices.Reverse(q.ClusterPolicies)
		if others := answer(); !slices.Equal(lines, others) || !reflect.DeepEqual(q.Service, before) {
			t.Errorf("in another order it asks for %q instead of %q, or the Service %+v is changed", others, lines, q.Service)
		}
		return lines
	}
}

// describe lists the unusual parts of a request in lines.
func describe(r Request) []string {
	lines := []string{strings.TrimSpace(string(r.Approach) + " " + strings.Join(r.Intent.Tiers, ","))}
	add := func(what string, texts ...string) {
		for _, text := range texts {
			if text != "" {
				lines = append(lines, what+": "+text)
			}
		}
	}
	if b := r.Intent.Bound; b != nil {
		add("bound", fmt.Sprintf("%s below %g, start %s, padding %d", b.Algorithm, b.OverloadThreshold, b.Start, b.Padding))
	}
	if usual := (Capacity{Type: CapacityNodes}); r.Capacity != usual {
		add("capacity", fmt.Sprintf("%+v", r.Capacity))
	}
	add("from", r.Source)
	add("policy", r.Policy)
	add("policy of the cluster", r.ClusterPolicy)
	for _, flag := range []struct {
		name string
		set  bool
	}{{"selected", r.Selected}, {"own zone", r.OwnZone}, {"upstream", r.Upstream}, {"headless", r.Headless}} {
		if flag.set {
			lines = append(lines, flag.name)
		}
	}
	add("groups", r.GroupsBy)
	add("no plan", r.NoPlan)
	add("hides", r.Hides)
	add("declined", r.Declined)
	add("warning", r.Warnings...)
	return lines
}

// readPolicy describes a policy.
func readPolicy(q question) []string {
	read := ReadPolicy(q.Policies[0])
	return describe(Request{Intent: read.Intent, Approach: read.Approach, Capacity: read.Capacity, Warnings: read.Faults})
}
