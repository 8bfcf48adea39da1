package corefile

import (
	"slices"
	"strings"
	"testing"
)

// installed is the Corefile of kubeadm, with a comment and a snippet.
const installed = `# kubernetes is below
(shared) {
    log
}
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa { # the cluster
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    import shared
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
}
`

func TestChangesLines(t *testing.T) {
	for _, test := range []struct{ name, before, added, domain string }{
		{"of kubeadm", installed, "    vicinity cluster.local\n", "cluster.local"},
		{"zones of the block", "dns://Cluster.Example:53, 10.0.0.0/8 {\n\tkubernetes\n}", "\tvicinity Cluster.Example\n", "cluster.example"},
		{"quotes over lines", ".:53 {\n  template IN A x {\n    answer \"a\nb\"\n  }\n  kubernetes a.local b.local\n}\n", "  vicinity a.local b.local\n", "a.local"},
		{"reverse names apart", "IN-ADDR.ARPA:53 {\n  kubernetes\n}\n.:53 {\n  kubernetes cluster.local {$OTHER_DOMAIN}\n}\n", "  vicinity cluster.local {$OTHER_DOMAIN}\n", "cluster.local"},
		{"imports between blocks", "import custom/*.server\n.:53 {\n  kubernetes cluster.local\n}\n", "  vicinity cluster.local\n", "cluster.local"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if domain, err := Domain(test.before); err != nil || domain != test.domain {
				t.Errorf("the domain is %q, %v, want %q", domain, err, test.domain)
			}
			after := With(test.before)
			at := strings.Index(after, test.added)
			if at < 0 || after[:at]+after[at+len(test.added):] != test.before || !strings.Contains(after[at+len(test.added):], "kubernetes") {
				t.Errorf("got\n%s\nwant %q added before kubernetes in\n%s", after, test.added, test.before)
			}
			if again := With(after); again != after {
				t.Errorf("a second change makes\n%s", again)
			}
			if got := Without(after); got != test.before || Has(got) || !Has(after) {
				t.Errorf("without the line it is\n%s\nwant\n%s", got, test.before)
			}
		})
	}
}

// A line that has got a block since goes with its block.
func TestWithoutBlock(t *testing.T) {
	edited := strings.Replace(With(installed), "vicinity cluster.local\n", "vicinity cluster.local {\n        plan\n    }\n", 1)
	if got := Without(edited); got != installed {
		t.Errorf("got\n%s", got)
	}
}

func TestEachKubernetesGetsALine(t *testing.T) {
	two := "a.local:53 {\n  kubernetes a.local\n}\nb.local:53 {\n  kubernetes b.local\n}\n"
	if got, want := With(two), strings.NewReplacer("  kubernetes a", "  vicinity a.local\n  kubernetes a", "  kubernetes b", "  vicinity b.local\n  kubernetes b").Replace(two); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnfit(t *testing.T) {
	for text, want := range map[string]string{
		".:53 {\n  forward . 1.1.1.1\n}\n": "no plugin kubernetes",
		"":                                 "no plugin kubernetes",
		"}}\n{":                            "no plugin kubernetes",
		".:53 {\n  kubernetes\n}\n":        "line 2: kubernetes must name the zone",
		".:53 {\n  kubernetes in-addr.arpa 10.0.0.0/8\n}\n": "must name the zone",
	} {
		if _, err := Domain(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	plugins, imports := Missing(strings.Replace(installed, "    ready\n", "    ready\n    route53 example.com.:Z1\n    import custom/*.override\n    etcd\n    etcd\n", 1))
	if !slices.Equal(plugins, []string{"route53", "etcd"}) || !slices.Equal(imports, []string{"custom/*.override"}) {
		t.Errorf("it lacks %v, and does not read %v", plugins, imports)
	}
}
