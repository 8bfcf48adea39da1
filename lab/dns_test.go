package lab

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/shape"
)

var update = flag.Bool("update", false, "write the manifests anew")

// TestDNSManifests compares the objects of each kind with what is in testdata; with -update
// ("make generate") it writes the files.
func TestDNSManifests(t *testing.T) {
	for _, kind := range []shape.DNS{shape.DNSVicinity, shape.DNSCoreDNS} {
		file := filepath.Join("testdata", "dns-"+string(kind)+".yaml")
		got := []byte(dnsManifests(shape.Default(), DNSOptions{Kind: kind}, "a version"))
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s does not have what the lab applies; run \"make generate\"", file)
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
		".:53 {\n    kubernetes {\n        pods   verified\n    }\n}\n",
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
		if verified := strings.Contains(corefile, "verified"); strings.Contains(manifests, "[namespaces, pods, services]") != verified {
			t.Errorf("with %q that it may read pods is %t", corefile, !verified)
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
