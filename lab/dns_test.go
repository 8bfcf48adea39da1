package lab

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/shape"
)

var update = flag.Bool("update", false, "write the manifests anew")

// TestDNSManifests compares the objects of one kind with what is in testdata; with -update
// ("make generate") it writes the file.
func TestDNSManifests(t *testing.T) {
	file := filepath.Join("testdata", "dns.yaml")
	got := []byte(dnsManifests(shape.Default(), DNSOptions{Kind: shape.DNSVicinity}, "a version"))
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not have what the lab applies; run \"make generate\"", file)
	}
}

// A kind decides about plugins and rights, and a Corefile about the rights to pods.
func TestDNSKinds(t *testing.T) {
	const slices = "endpointslices.discovery.k8s.io"
	for _, test := range []struct {
		kind     shape.DNS
		corefile string // the kind's if empty
		plugins  string
		reads    string
	}{
		{shape.DNSCoreDNS, "", "kubernetes", "namespaces services " + slices},
		{shape.DNSVicinity, "", "vicinity kubernetes", "namespaces nodes services " + slices + " endpointgroups.vicinity.dev podlocators.vicinity.dev"},
		{shape.DNSCoreDNS, ".:53 {\n    kubernetes {\n        pods verified\n    }\n}\n", "kubernetes", "namespaces pods services " + slices},
		{shape.DNSVicinity, ".:53 {\n    vicinity\n    kubernetes {\n        pods verified\n    }\n}\n", "vicinity kubernetes", "namespaces nodes pods services " + slices + " endpointgroups.vicinity.dev podlocators.vicinity.dev"},
	} {
		corefile := cmp.Or(test.corefile, DNSCorefile(test.kind))
		var plugins, reads []string
		for line := range strings.Lines(corefile) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name == "vicinity" || name == "kubernetes" {
				plugins = append(plugins, name)
			}
		}
		var rules []rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(dnsRules(test.kind, corefile)), &rules); err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			if strings.Join(rule.Verbs, " ") != "list watch" {
				t.Errorf("%s may %q", test.kind, rule.Verbs)
			}
			for _, name := range rule.Resources {
				reads = append(reads, strings.TrimSuffix(name+"."+rule.APIGroups[0], "."))
			}
		}
		if got := strings.Join(plugins, " "); got != test.plugins {
			t.Errorf("%s: the plugins are %q, want %q", test.kind, got, test.plugins)
		}
		if got := strings.Join(reads, " "); got != test.reads {
			t.Errorf("%s with %q reads %q, want %q", test.kind, corefile, got, test.reads)
		}
	}
}

// dnsObject finds an object of the manifests by its kind.
func dnsObject(t *testing.T, manifests, kind string, into any) {
	t.Helper()
	for document := range strings.SplitSeq(manifests, "---\n") {
		if !strings.Contains(document, "\nkind: "+kind+"\n") {
			continue
		}
		if err := yaml.Unmarshal([]byte(document), into); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("there is no %s", kind)
}

func TestDNSService(t *testing.T) {
	for _, single := range []bool{false, true} {
		s := shape.Default()
		s.SingleStack = single
		var service corev1.Service
		dnsObject(t, dnsManifests(s, DNSOptions{Kind: shape.DNSVicinity}, ""), "Service", &service)
		want, policy := []string{"10.96.0.10", "fd00:10:96::a"}, corev1.IPFamilyPolicyRequireDualStack
		if single {
			want, policy = want[:1], corev1.IPFamilyPolicySingleStack
		}
		if got := service.Spec; got.ClusterIP != want[0] || strings.Join(got.ClusterIPs, " ") != strings.Join(want, " ") || *got.IPFamilyPolicy != policy {
			t.Errorf("single stack %t: %v, %v, %v", single, got.ClusterIP, got.ClusterIPs, *got.IPFamilyPolicy)
		}
	}
}

// A Corefile arrives as it was written, and pods are replaced when it changes.
func TestDNSCorefileOfItsOwn(t *testing.T) {
	hashes := map[string]bool{}
	for _, corefile := range []string{
		".:53 {\n    whoami\n}\n",
		"    .:53 {\n\n\twhoami # $HASH: \"x\"\n    }\n",
		".:53 {\n    kubernetes\n}\n",
	} {
		manifests := dnsManifests(shape.Default(), DNSOptions{Kind: shape.DNSCoreDNS, Corefile: corefile, Replicas: 3}, "")
		var config corev1.ConfigMap
		dnsObject(t, manifests, "ConfigMap", &config)
		if got := config.Data["Corefile"]; got != corefile {
			t.Errorf("got %q, want %q", got, corefile)
		}
		var deployment struct {
			Spec struct {
				Replicas int
				Template corev1.PodTemplateSpec
			}
		}
		dnsObject(t, manifests, "Deployment", &deployment)
		hashes[deployment.Spec.Template.Annotations["lab.vicinity.dev/corefile"]] = true
		if deployment.Spec.Replicas != 3 {
			t.Errorf("there are %d replicas, want 3", deployment.Spec.Replicas)
		}
	}
	if len(hashes) != 3 {
		t.Errorf("three Corefiles are told apart by %v", hashes)
	}
}

func TestWhyNoDNS(t *testing.T) {
	folder := t.TempDir()
	options := Options{Root: folder, Program: filepath.Join(folder, "vicinity-lab")}
	program := filepath.Join(folder, "vicinity-dns")
	why := func(s shape.Shape) string {
		t.Helper()
		text, err := WhyNoDNS(s, options)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := why(shape.Default()); !strings.Contains(got, program) || !strings.Contains(got, "make build") {
		t.Errorf("without the program: %q", got)
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := why(shape.Default()); got != "" {
		t.Errorf("with the program: %q", got)
	}
	alone := shape.Default()
	alone.Proxy = shape.ProxyNone
	if got := why(alone); !strings.Contains(got, "without a proxy") {
		t.Errorf("without a proxy: %q", got)
	}
}
