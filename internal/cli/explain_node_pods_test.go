package cli

import (
	"strings"
	"testing"
)

// How the node's proxy tells pods is what its flags say, if they make sense.
func TestExplainNodeKnowsHowPodsAreTold(t *testing.T) {
	const told, untold = "kept for pods, else the node's", "kept"
	for _, test := range []struct {
		args  []string
		want  string // the source address of connections to the cluster IP
		wrong string // what is said of the flags
	}{
		{args: []string{"--cluster-cidr=10.0.0.0/8"}, want: told},
		{args: []string{"--cluster-cidr=fd00::/8"}, want: told}, // by the node's prefix
		{args: []string{"--detect-local-mode=ClusterCIDR", "--cluster-cidr=fd00::/8"}, want: untold},
		{args: []string{"--detect-local-mode=NodeCIDR"}, want: told},
		{args: []string{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"}, want: told},
		{args: []string{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"}, want: told},
		{
			args: []string{"--detect-local-mode=BridgeInterface"}, want: told,
			wrong: "(--pod-bridge-interface: it is needed with --detect-local-mode=BridgeInterface); its default flags are assumed",
		},
	} {
		c := newProxiedCluster(proxiedService(), aGroup("near", "1@a1 2@a2", nil))
		c.objects[len(c.objects)-1] = aProxySet(test.args...)
		code, stdout, stderr := c.explain(t.Context(), "a1")
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit code %d: %s", test.args, code, stderr)
		}
		if !strings.Contains(stdout, test.wrong) || strings.Contains(stdout, "makes no sense") != (test.wrong != "") {
			t.Errorf("%q: %q is not said in\n%s", test.args, test.wrong, stdout)
		}
		found := ""
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, "cluster IP") {
				found = line
			}
		}
		if !strings.Contains(found, "  "+test.want+"  ") {
			t.Errorf("%q: the source is not %q in %q", test.args, test.want, found)
		}
	}
}
