package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// pretendUp writes down that labs are up of which nothing runs.
func pretendUp(t *testing.T, names ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	t.Setenv("VICINITY_LAB_DIR", root)
	t.Setenv("VICINITY_KUBERNETES", "/bin/sh")
	for _, name := range names {
		dir, err := state.Create(root, name)
		if err != nil {
			t.Fatal(err)
		}
		s := shape.Default()
		s.Name = name
		if err := dir.Save(state.Lab{Shape: s, Up: true}); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// What a user says of the shape of a lab that is up is refused, and which lab that is
// says the flag, or else the file, or else the environment.
func TestDemoKeepsALabThatIsUp(t *testing.T) {
	pretendUp(t, "flagged", "filed", "set")
	t.Setenv("VICINITY_LAB_NAME", "set")
	folder := t.TempDir()
	named, unnamed := filepath.Join(folder, "named.yaml"), filepath.Join(folder, "unnamed.yaml")
	for path, text := range map[string]string{named: "name: filed\nzones: [{name: a}]", unnamed: "zones: [{name: a}]"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--zones", "a", "--ha"}, `lab "set" is up already and stays as it is, so --zones, --ha does nothing`},
		{[]string{"--file", unnamed}, `lab "set" is up already and stays as it is, so --file does nothing`},
		{[]string{"--file", named}, `lab "filed" is up already and stays as it is, so --file does nothing`},
		{[]string{"--file", named, "--name", "flagged"}, `lab "flagged" is up already and stays as it is, so --file does nothing`},
	} {
		var out, err bytes.Buffer
		code := Main(t.Context(), append([]string{"demo"}, test.args...), strings.NewReader(""), &out, &err)
		if code != command.ExitUsage || !strings.Contains(err.String(), test.want) {
			t.Errorf("demo %q: exit code %d, %q, want %d and %q", test.args, code, &err, command.ExitUsage, test.want)
		}
	}
}

// What a variable that is not set gives must not stand for the default.
func TestEmptyNamesAreRefused(t *testing.T) {
	pretendUp(t, "default")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"down", "--name", ""}, "--name is empty"},
		{[]string{"status", "--name", ""}, "--name is empty"},
		{[]string{"up", "--name", "other", "--zones", ""}, "--zones is empty"},
	} {
		var out, err bytes.Buffer
		code := Main(t.Context(), test.args, strings.NewReader(""), &out, &err)
		if code != command.ExitUsage || !strings.Contains(err.String(), test.want) {
			t.Errorf("lab %q: exit code %d, %q, want %d and %q", test.args, code, &err, command.ExitUsage, test.want)
		}
	}
}

// What is wrong is said of the flag that says it, and of the field where a file does.
func TestErrorsNameFlags(t *testing.T) {
	pretendUp(t, "default")
	file := filepath.Join(t.TempDir(), "shape.yaml")
	if err := os.WriteFile(file, []byte("zones: [{name: a, nodes: [{name: fake-1}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args     []string
		variable string
		code     int
		want     string
	}{
		{args: []string{"up", "--fake-nodes", "-1"}, code: command.ExitUsage, want: "--fake-nodes -1: write a number from 0 to 20000"},
		{args: []string{"up", "--cross-zone-latency", "1h"}, code: command.ExitUsage, want: "--cross-zone-latency 1h0m0s: write a duration from 0s to 10s"},
		{args: []string{"up", "--proxy", "mine"}, code: command.ExitUsage, want: `--proxy "mine": write one of`},
		{args: []string{"up", "--dns", "bind"}, code: command.ExitUsage, want: `--dns "bind": write one of [vicinity coredns none]`},
		{args: []string{"up", "--dns", "coredns", "--proxy", "none"}, code: command.ExitUsage, want: `--dns "coredns": without a proxy on the nodes no pod reaches it`},
		{args: []string{"up", "--file", file, "--dns", "coredns", "--control-plane-only"}, code: command.ExitUsage, want: `--dns "coredns": pods do not run`},
		{args: []string{"dns", "bind"}, code: command.ExitUsage, want: `KIND "bind": write one of [vicinity coredns none]`},
		{args: []string{"dns", "vicinity", "--replicas", "0"}, code: command.ExitUsage, want: "--replicas 0 is not allowed"},
		{args: []string{"dig", "a.b"}, code: command.ExitUsage, want: "say who asks: either --pod or --node"},
		{args: []string{"dig", "a.b", "--pod", "x", "--node", "y"}, code: command.ExitUsage, want: "say who asks: either --pod or --node"},
		{args: []string{"dig", "a.b", "--pod", "x", "--server", "dns"}, code: command.ExitUsage, want: `--server "dns": write an IP address`},
		{args: []string{"dig", "a.b", "--pod", "x", "--subnet", "10.0.0.1"}, code: command.ExitUsage, want: `--subnet "10.0.0.1": write an address with a length`},
		{args: []string{"dig", "a.b", "--pod", "x", "--type", "B"}, code: command.ExitUsage, want: `--type "B": write a type of records`},
		{args: []string{"dig", "a..b", "--pod", "x"}, code: command.ExitUsage, want: `name "a..b": write a domain name`},
		{args: []string{"up", "--zones", "a,B"}, code: command.ExitUsage, want: `--zones "B": a zone's name is up to`},
		{args: []string{"up", "--zones", "a,a"}, code: command.ExitUsage, want: `--zones "a": another zone has this name`},
		{args: []string{"up", "--nodes-per-zone", "400"}, code: command.ExitUsage, want: "--zones: they have 1200 nodes in all, a lab has at most 500; fake nodes are for more"},
		{args: []string{"up", "--nodes-per-zone", "-1"}, code: command.ExitUsage, want: "--nodes-per-zone -1: write a number from 0 to 500"},
		{args: []string{"up", "--region", "R!"}, code: command.ExitUsage, want: `--region "R!": a region's name is up to`},
		{args: []string{"up", "--cpu", "many"}, code: command.ExitUsage, want: `--cpu "many": write cores`},
		{args: []string{"up", "--memory", "1,2"}, code: command.ExitUsage, want: "--memory: there are 2 values for 3 zones"},
		{args: []string{"up", "--node-labels", "kubernetes.io/hostname=x"}, code: command.ExitUsage, want: `--node-labels: "kubernetes.io/hostname" is set by the lab`},
		{args: []string{"up", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"up", "--file", file, "--cross-region-latency", "-1s"}, code: command.ExitUsage, want: "--cross-region-latency -1s: write a duration"},
		{args: []string{"up", "--file", file, "--fake-nodes", "2"}, code: command.ExitFailure, want: `zones[0].nodes[0].name "fake-1": another node has this name`},
		{args: []string{"up", "--images", file + "-none"}, code: command.ExitFailure, want: "--images: open " + file + "-none: no such file"},
		{args: []string{"up", "--images", file}, code: command.ExitFailure, want: "--images " + file + `: field "zones" is unknown: write one of images`},
		{args: []string{"up", "--images", file, "--control-plane-only"}, code: command.ExitUsage, want: "--images has no effect: a lab that is only a control plane runs no containers"},
		{args: []string{"down", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"down"}, variable: "No!", code: command.ExitUsage, want: `VICINITY_LAB_NAME "No!": a lab's name is up to`},
		{args: []string{"status", "--name", "No!"}, code: command.ExitUsage, want: `--name "No!": a lab's name is up to`},
		{args: []string{"node", "add", "--zone", "B", "--cpu", "x"}, code: command.ExitUsage, want: `--zone "B": a zone's name is up to`},
		{args: []string{"node", "add", "--zone", "zone-a", "--cpu", "x"}, code: command.ExitUsage, want: `--cpu "x": write cores`},
		{args: []string{"node", "add", "zone-b-1", "--zone", "zone-a"}, code: command.ExitUsage, want: `NODE "zone-b-1": another node has this name`},
	} {
		t.Setenv("VICINITY_LAB_NAME", test.variable)
		var out, err bytes.Buffer
		code := Main(t.Context(), test.args, strings.NewReader(""), &out, &err)
		if code != test.code || !strings.HasPrefix(err.String(), "vicinity lab: "+test.want) {
			t.Errorf("lab %q: exit code %d, %q, want %d and %q", test.args, code, &err, test.code, test.want)
		}
	}
}

// Each flag of a shape is known as one.
func TestFlagsOfAShape(t *testing.T) {
	root := newRootCommand(command.Streams{})
	up, _, err := root.Find([]string{"up"})
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, match := range regexp.MustCompile(`(?m)^ .{5}--([a-z-]+)`).FindAllStringSubmatch(up.NonInheritedFlags().FlagUsages(), -1) {
		flags = append(flags, match[1])
	}
	want := slices.Concat(fileFlags, otherFlags, []string{"images", "keep", "vicinity", "release", "set"})
	slices.Sort(flags)
	slices.Sort(want)
	if !slices.Equal(flags, want) {
		t.Errorf("up has the flags %q, want %q", flags, want)
	}
}

func TestGoOnNamesThePrograms(t *testing.T) {
	root := pretendUp(t, "default", "other")
	for _, test := range []struct {
		lab, program string
		want         []string
	}{
		{"default", "vicinity", []string{"  vicinity explain svc/echo -n demo\n", `"vicinity lab down" removes it`}},
		{"other", "/some/vicinity", []string{"=" + root + "/other/kubeconfig", "  /some/vicinity lab load echo -n demo --live --name other\n"}},
	} {
		cluster, err := lab.Open(test.lab, lab.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text := (&demo{cluster: cluster}).goOn(test.program, measurement{}, measurement{})
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
	}
}

// The DNS server of a shape is that of the flag, which a file cannot keep from being said.
func TestDNSOfAShape(t *testing.T) {
	pretendUp(t)
	file := filepath.Join(t.TempDir(), "shape.yaml")
	if err := os.WriteFile(file, []byte("zones: [{name: a}]\ndns: coredns"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want shape.DNS
	}{
		{nil, shape.DNSVicinity},
		{[]string{"--dns", "coredns"}, shape.DNSCoreDNS},
		{[]string{"--dns", "none"}, shape.DNSNone},
		{[]string{"--proxy", "none"}, shape.DNSNone},
		{[]string{"--file", file}, shape.DNSCoreDNS},
		{[]string{"--file", file, "--dns", "vicinity"}, shape.DNSVicinity},
	} {
		shaped := &shapeFlags{}
		cmd := &cobra.Command{}
		cmd.Flags().String("name", "", "")
		shaped.register(cmd)
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		got, err := shaped.shape(command.Streams{}, cmd, &labFlags{})
		if err != nil {
			t.Errorf("up %q: %v", test.args, err)
			continue
		}
		if got.DNSServer() != test.want {
			t.Errorf("up %q has the DNS server %s, want %s", test.args, got.DNSServer(), test.want)
		}
	}
}

// Only a DNS server that was asked for is one whose program must be there.
func TestDNSWithoutItsProgram(t *testing.T) {
	folder := t.TempDir()
	options := lab.Options{Root: folder, Program: filepath.Join(folder, "vicinity-lab")}
	wanted := shape.Default()
	if _, err := dnsInstaller(wanted, options); err != nil {
		t.Errorf("by default: %v", err)
	}
	wanted.DNS = shape.DNSVicinity
	if _, err := dnsInstaller(wanted, options); err == nil || !strings.Contains(err.Error(), "--dns vicinity: there is no program "+folder+"/vicinity-dns") {
		t.Errorf("asked for: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "vicinity-dns"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := dnsInstaller(wanted, options); err != nil {
		t.Errorf("with the program: %v", err)
	}
}

// What the API does not say is not said to be nothing.
func TestStatusOfUnknownPods(t *testing.T) {
	three := 3
	for _, test := range []struct {
		pods *int
		want []string
	}{{&three, []string{", 3 pods, ", " 3      Ready"}}, {nil, []string{", pods unknown, ", " unknown   Ready"}}} {
		var out bytes.Buffer
		if err := writeStatus(&out, lab.Status{Pods: test.pods, Nodes: []lab.NodeStatus{{Name: "a-1", State: "Ready", Pods: test.pods}}}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in %q", want, &out)
			}
		}
	}
}
