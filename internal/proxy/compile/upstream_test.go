package compile

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology"
)

// leastCategorized is the number of cases in kube-proxy's table of Kubernetes 1.37.2.
const leastCategorized = 32

// categorizedOtherwise are the cases that have another outcome here, with the reason.
var categorizedOtherwise = map[string]string{
	"PreferSameNode falls back to same-zone when feature gate disabled": "hints for nodes always count: the feature gate cannot be turned off since Kubernetes 1.35",
}

// categorized is a case of kube-proxy's table, with the names of its fields there.
type categorized struct {
	Name string
	// PreferSameEnabled is the feature gate of hints for nodes, which always count here.
	PreferSameEnabled bool
	NodeName          string
	NodeLabels        map[string]string
	ServiceInfo       struct {
		InternalPolicyLocal, ExternalPolicyLocal bool
		NodePort                                 int32
	}
	Endpoints []struct {
		Endpoint                             string
		IsLocal, Ready, Serving, Terminating bool
		ZoneHints, NodeHints                 []string
	}
	ClusterEndpoints, LocalEndpoints []string
	// AllEndpoints may be left out where only one of the two before has endpoints.
	AllEndpoints []string
	// OnlyRemoteEndpoints means that there are endpoints, though none for this node.
	OnlyRemoteEndpoints bool
}

// kube-proxy's own cases for the endpoints of a Service that a node uses.
func TestTableOfKubeProxy(t *testing.T) {
	cases := readCategorized(t)
	if len(cases) < leastCategorized {
		t.Errorf("the table has %d cases, fewer than %d: a part of it may not have been read", len(cases), leastCategorized)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got, want := c.outcome(t), c.expected()
			reason, isListed := categorizedOtherwise[c.Name]
			switch {
			case isListed && got == want:
				t.Errorf("the outcome is the one of kube-proxy but is listed as different: %s", reason)
			case !isListed && got != want:
				t.Errorf("\n       got %s\nkube-proxy %s", got, want)
			}
		})
	}
	for name := range categorizedOtherwise {
		if !slices.ContainsFunc(cases, func(c categorized) bool { return c.Name == name }) {
			t.Errorf("%q is listed with a different outcome and is not in the table", name)
		}
	}
}

// outcome returns the endpoints of the rules for the case.
func (c *categorized) outcome(t *testing.T) string {
	node := Node{Name: c.NodeName, Zone: c.NodeLabels[topology.Zone], Labels: c.NodeLabels, NodePortAddresses: addressList("192.0.2.1")}
	if node.Name == "" {
		node.Name = "this-node"
	}
	service := testService()
	if c.ServiceInfo.InternalPolicyLocal {
		insideLocal(service)
	}
	if c.ServiceInfo.ExternalPolicyLocal {
		outsideLocal(service)
	}
	if c.ServiceInfo.NodePort != 0 {
		nodePort(service)
	}
	slice := sliceOf("s", "")
	for _, e := range c.Endpoints {
		at := netip.MustParseAddrPort(e.Endpoint)
		slice.Ports[0].Port = new(int32(at.Port()))
		endpoint := discoveryv1.Endpoint{
			Addresses:  []string{at.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &e.Ready, Serving: &e.Serving, Terminating: &e.Terminating},
			NodeName:   new("another-node"),
			Hints:      &discoveryv1.EndpointHints{},
		}
		if e.IsLocal {
			endpoint.NodeName = &node.Name
		}
		for _, zone := range e.ZoneHints {
			endpoint.Hints.ForZones = append(endpoint.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
		for _, name := range e.NodeHints {
			endpoint.Hints.ForNodes = append(endpoint.Hints.ForNodes, discoveryv1.ForNode{Name: name})
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	r := Service(Input{Service: service, Slices: []*discoveryv1.EndpointSlice{slice}}, Options{Node: node, AllServices: true})
	if len(r.Families) != 1 || len(r.Families[0].Ports) != 1 {
		t.Fatalf("no rules of one port:\n%s", strings.Join(lines(r), "\n"))
	}
	port := r.Families[0].Ports[0]
	var cluster, local []string
	for _, target := range port.Cluster {
		cluster = append(cluster, target.String())
	}
	for _, target := range port.Local {
		local = append(local, target.String())
	}
	// Connections that a traffic policy keeps from all endpoints are dropped, not rejected.
	exists := len(cluster) > 0 || slices.ContainsFunc(port.Fronts, func(f ruleset.FrontEnd) bool { return f.Empty != ruleset.Reject })
	return categories(cluster, local, slices.Concat(cluster, local), exists)
}

// expected returns the outcome in the table.
func (c *categorized) expected() string {
	all := c.AllEndpoints
	if len(c.ClusterEndpoints) == 0 || len(c.LocalEndpoints) == 0 {
		all = slices.Concat(c.ClusterEndpoints, c.LocalEndpoints, all)
	}
	return categories(c.ClusterEndpoints, c.LocalEndpoints, all, len(all) > 0 || c.OnlyRemoteEndpoints)
}

func categories(cluster, local, all []string, exists bool) string {
	set := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	return fmt.Sprintf("cluster %v, local %v, all %v, some in the cluster: %t", set(cluster), set(local), set(all), exists)
}

// readCategorized reads the table out of the source of the Kubernetes that labs run: the
// tests of a package cannot be imported.
func readCategorized(t *testing.T) []categorized {
	list := exec.CommandContext(t.Context(), "go", "list", "-find", "-f", "{{.Dir}}", "k8s.io/kubernetes/pkg/proxy")
	list.Dir = filepath.FromSlash("../../../lab/kubernetes")
	// The go command repeats a test whose result it has if a file changed that the test looked at.
	if _, err := os.Stat(filepath.Join(list.Dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	var problem strings.Builder
	list.Stderr = &problem
	folder, err := list.Output()
	if err != nil {
		t.Fatalf("finding the source of kube-proxy, which the go command downloads once: %v\n%s", err, &problem)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(strings.TrimSpace(string(folder)), "topology_test.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var table ast.Expr
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Name.Name == "TestCategorizeEndpoints" && len(f.Body.List) > 0 {
			if first, ok := f.Body.List[0].(*ast.AssignStmt); ok {
				table = first.Rhs[0]
			}
		}
	}
	if table == nil {
		t.Fatalf("%s has no TestCategorizeEndpoints that begins with a table", files.File(file.Pos()).Name())
	}
	text, err := json.Marshal(literals{t, files}.value(table))
	if err != nil {
		t.Fatal(err)
	}
	var cases []categorized
	known := json.NewDecoder(strings.NewReader(string(text)))
	known.DisallowUnknownFields()
	if err := known.Decode(&cases); err != nil {
		t.Fatalf("the table of %s has changed: %v", files.File(file.Pos()).Name(), err)
	}
	return cases
}

// literals reads values out of source.
type literals struct {
	t     *testing.T
	files *token.FileSet
}

// value converts an expression to JSON: a struct or map is an object, a slice or set a list.
func (l literals) value(e ast.Expr) any {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.Val(constant.MakeFromLiteral(e.Value, e.Kind, 0))
	case *ast.Ident, *ast.SelectorExpr:
		named := map[string]any{"true": true, "false": false, "nil": nil, "v1.LabelTopologyZone": corev1.LabelTopologyZone}
		if value, ok := named[types.ExprString(e)]; ok {
			return value
		}
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return l.value(e.X)
		}
	case *ast.CallExpr:
		if types.ExprString(e.Fun) == "sets.New[string]" {
			return l.list(e.Args)
		}
	case *ast.CompositeLit:
		if _, ok := e.Type.(*ast.ArrayType); ok {
			return l.list(e.Elts)
		}
		return l.object(e.Elts)
	}
	l.t.Fatalf("%s: this test cannot read %s", l.files.Position(e.Pos()), types.ExprString(e))
	return nil
}

func (l literals) list(elements []ast.Expr) []any {
	list := []any{}
	for _, e := range elements {
		list = append(list, l.value(e))
	}
	return list
}

func (l literals) object(elements []ast.Expr) map[string]any {
	object := map[string]any{}
	for _, e := range elements {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			l.t.Fatalf("%s: a value without its key", l.files.Position(e.Pos()))
		}
		key := types.ExprString(pair.Key)
		if _, isField := pair.Key.(*ast.Ident); !isField {
			key = fmt.Sprint(l.value(pair.Key))
		}
		object[key] = l.value(pair.Value)
	}
	return object
}
