package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/inspect"
)

// serveConsole runs the command until the test ends, and returns the address that it prints.
func (c *fakeCluster) serveConsole(t *testing.T, args ...string) *url.URL {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var said bytes.Buffer
	cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: writer, Err: &said}, c.connect)
	go func() { ended <- command.Execute(ctx, cmd, args) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d when it is interrupted: %s", code, &said)
		}
	})
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	address, err := url.Parse(strings.TrimSpace(string(line[:n])))
	if err != nil || address.Hostname() != "127.0.0.1" || address.Query().Get("token") == "" {
		t.Fatalf("it prints %q, %v", line[:n], err)
	}
	return address
}

// ask reads a view once all is read.
func ask(t *testing.T, address *url.URL, path string, view any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Host+"/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+address.Query().Get("token"))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		whole := struct {
			About struct{ Waiting []string }
			View  any
		}{View: view}
		if err == nil && answer.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, &whole)
		}
		if err == nil && answer.StatusCode == http.StatusOK && len(whole.About.Waiting) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s: %s: %s, %v", path, answer.Status, text, err)
		}
	}
}

// What the console has is what the commands print.
func TestConsoleShowsWhatCommandsPrint(t *testing.T) {
	c := newFakeCluster(t)
	address := c.serveConsole(t, "--traffic-interval", "0")
	printed := func(args ...string) map[string]any {
		code, stdout, stderr := c.run(t.Context(), append(args, "-o", "json")...)
		var said map[string]any
		if err := json.Unmarshal([]byte(stdout), &said); code != 0 || err != nil {
			t.Fatalf("%q: exit code %d, %v: %s", args, code, err, stderr)
		}
		return said
	}
	for _, name := range []string{"shop/web", "shop/near", "shop/grouped", "data/db", "ops/both", "ops/governed", "team/api", "shop/elsewhere", "shop/empty"} {
		namespace, short, _ := strings.Cut(name, "/")
		var view struct{ Explanation map[string]any }
		ask(t, address, "/services/"+name, &view)
		if want := printed("explain", "svc/"+short, "-n", namespace); !reflect.DeepEqual(view.Explanation, want) {
			t.Errorf("%s: the console has\n%v\nexplain prints\n%v", name, view.Explanation, want)
		}
	}
	var list struct{ Services []map[string]any }
	ask(t, address, "/services?per=200", &list)
	rows := []any{}
	for _, row := range list.Services {
		delete(row, "handOver")
		rows = append(rows, row)
	}
	if want := printed("status")["services"]; !reflect.DeepEqual(rows, want) {
		t.Errorf("the console has\n%v\nstatus prints\n%v", rows, want)
	}
	var names struct {
		Explanation map[string]any
		Problem     string
	}
	ask(t, address, "/names?name=db.data&from=10.99.0.1", &names)
	if want := printed("explain", "dns", "db.data", "--from", "10.99.0.1"); !reflect.DeepEqual(names.Explanation, want) {
		t.Errorf("the console has\n%v (%s)\nexplain dns prints\n%v", names.Explanation, names.Problem, want)
	}
}

// manifestsWithout writes the nodes, Services and EndpointSlices of a cluster to a file, without a zone.
func (c *fakeCluster) manifestsWithout(t *testing.T, zone string) string {
	t.Helper()
	var items []any
	nodes, err := c.typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Labels[corev1.LabelTopologyZone] != zone {
			node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			items = append(items, node)
		}
	}
	services, err := c.typed.CoreV1().Services("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		services.Items[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		items = append(items, &services.Items[i])
	}
	all, err := c.typed.DiscoveryV1().EndpointSlices("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		slice := &all.Items[i]
		slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Zone == zone })
		items = append(items, slice)
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "manifests.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What a change would do is what plan prints for manifests after it.
func TestWhatIfIsWhatPlanPrints(t *testing.T) {
	c := newFakeCluster(t)
	address := c.serveConsole(t, "--traffic-interval", "0")
	for _, zone := range []string{"", "zone-a", "zone-c"} {
		file := c.manifestsWithout(t, zone)
		for _, name := range []string{"web", "grouped", "crowded", "lonely", "hard"} {
			var sections []inspect.Section
			code, stdout, stderr := runPlan(t, nil, "-f", file, "-o", "json", "shop/"+name)
			if code != 0 {
				t.Fatalf("%s: exit code %d: %s", name, code, stderr)
			}
			if err := json.Unmarshal([]byte(stdout), &sections); err != nil || len(sections) != 1 {
				t.Fatalf("%s: %v, %s", name, err, stdout)
			}
			for _, algorithm := range sections[0].Algorithms {
				query := "service=shop/" + name + "&zone=" + zone
				if !algorithm.Asked {
					query += "&algorithm=" + algorithm.Algorithm
				}
				var view struct{ Families []inspect.WhatIf }
				ask(t, address, "/whatif?"+query, &view)
				if len(view.Families) != 1 || view.Families[0].Then == nil {
					t.Errorf("%s: the console has %+v", query, view.Families)
					continue
				}
				then := view.Families[0].Then
				if then.Algorithm != algorithm.Algorithm || then.Expected.InZone != algorithm.InZone || then.Expected.MaxOverload != algorithm.MaxOverload ||
					!reflect.DeepEqual(then.Zones, sections[0].Zones) {
					t.Errorf("%s: the console has %+v of %+v; plan prints %+v of %+v", query, then, then.Expected, algorithm, sections[0].Zones)
				}
			}
			if len(sections[0].Algorithms) == 0 && sections[0].NoPlan == "" {
				t.Errorf("%s: plan prints no algorithm", name)
			}
		}
	}
}

// Messages about a client name it as the page does.
func TestConsoleNamesTheClient(t *testing.T) {
	address := newFakeCluster(t).serveConsole(t, "--traffic-interval", "0")
	for from, says := range map[string]string{
		"10.0.0.0/8": `client "10.0.0.0/8" is a range`, "1.2.3": `client "1.2.3" is neither a pod's name nor an address`, "a/B": `client "a/B" is neither`,
		"nowhere/x": "what stands before the slash in client is the namespace of the pod",
	} {
		var view struct{ Problem string }
		ask(t, address, "/names?name=db.data&from="+url.QueryEscape(from), &view)
		if !strings.Contains(view.Problem, says) || strings.Contains(view.Problem, "--from") {
			t.Errorf("%s: %q, want %q", from, view.Problem, says)
		}
	}
}

// Origins are allowed as browsers write them.
func TestConsoleAllowsAnOrigin(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "http://localhost:4466": "http://localhost:4466", "http://127.0.0.1:4466": "http://127.0.0.1:4466", "http://[::1]:80": "http://[::1]",
		"https://Headlamp.Example:443": "https://headlamp.example", "https://headlamp.example:8443": "https://headlamp.example:8443",
	} {
		f := consoleFlags{allowOrigin: given}
		if got, err := f.origin(); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
	address := newFakeCluster(t).serveConsole(t, "--traffic-interval", "0", "--allow-origin", "http://localhost:4466")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Host+"/api/v1/cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", "http://localhost:4466")
	request.Header.Set("Authorization", "Bearer "+address.Query().Get("token"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Access-Control-Allow-Origin") != "http://localhost:4466" {
		t.Errorf("%s %v", answer.Status, answer.Header)
	}
}

// What the console has about a pod is what explain prints.
func TestConsoleExplainsPods(t *testing.T) {
	c := newBudgeted().budget("zonal").down(1).cluster(t)
	var view struct{ Explanation map[string]any }
	ask(t, c.serveConsole(t, "--traffic-interval", "0"), "/pods/shop/web-0", &view)
	code, stdout, stderr := c.run(t.Context(), "explain", "pod/web-0", "-n", "shop", "-o", "json")
	var want map[string]any
	if err := json.Unmarshal([]byte(stdout), &want); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if !reflect.DeepEqual(view.Explanation, want) {
		t.Errorf("the console has\n%v\nexplain prints\n%v", view.Explanation, want)
	}
}

// A namespace limits what is read.
func TestConsoleOfANamespace(t *testing.T) {
	address := newFakeCluster(t).serveConsole(t, "-n", "ops", "--traffic-interval", "0")
	var list struct{ Services []struct{ Namespace string } }
	ask(t, address, "/services", &list)
	if len(list.Services) != 2 || list.Services[0].Namespace != "ops" {
		t.Errorf("got %v", list.Services)
	}
}

func TestConsoleRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--address", "0.0.0.0"}, `--address "0.0.0.0" is not allowed; it must be an address of this machine alone`},
		{[]string{"--address", "192.0.2.1"}, "--address"},
		{[]string{"--address", "localhost"}, "--address"},
		{[]string{"--port", "70000"}, "--port 70000 is not allowed; it must be from 0 to 65535"},
		{[]string{"--port", "-1"}, "--port -1"},
		{[]string{"--traffic-interval", "10ms"}, "--traffic-interval 10ms is not allowed; it must be 0, or 1s or more"},
		{[]string{"--zone", "a b"}, `--zone "a b" is no domain`},
		{[]string{"--allow-origin", "*"}, `--allow-origin "*" is not allowed; it must be the origin of one site without a path`},
		{[]string{"--allow-origin", "null"}, `--allow-origin "null"`},
		{[]string{"--allow-origin", "http://localhost:4466/"}, "without a path"},
		{[]string{"--allow-origin", "https://*.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://a.example,https://b.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://user@a.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://a.example:"}, "--allow-origin"},
		{[]string{"--allow-origin", "http://headlamp.example"}, "https://HOST"},
		{[]string{"--allow-origin", "file://x"}, "--allow-origin"},
		{[]string{"--allow-origin", "localhost:4466"}, "--allow-origin"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, newFakeCluster(t).connect)
		cmd.SetErr(&stderr)
		if code := command.Execute(t.Context(), cmd, test.args); code != command.ExitUsage || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, code, &stderr)
		}
	}
}
