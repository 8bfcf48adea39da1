package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// DNSOptions describe the cluster's DNS server.
type DNSOptions struct {
	// Kind decides the Corefile and the permissions of the server. The default is that of the lab's
	// shape.
	Kind shape.DNS
	// Corefile replaces the Corefile of the kind, if it is not empty.
	Corefile string
}

// dnsImage is the program of both kinds.
const dnsImage = "vicinity-dns"

// Clusters usually have a DNS server with these names.
const (
	dnsNamespace  = metav1.NamespaceSystem
	dnsDeployment = "coredns"
	dnsSelector   = "k8s-app=kube-dns"
)

const dnsTime = 2 * time.Minute

// dnsKnownName is a name that every cluster has.
const dnsKnownName = "kubernetes.default.svc.cluster.local"

// WhyNoDNS returns why no DNS server can be installed in a lab. It is empty if one can.
func WhyNoDNS(s shape.Shape, options Options) (string, error) {
	options, err := options.complete()
	if err != nil {
		return "", err
	}
	if why := s.WhyNoDNS(); why != "" {
		return why, nil
	}
	if program := options.programPath(dnsImage); !isProgram(program) {
		return fmt.Sprintf("there is no program %s; make build builds it", program), nil
	}
	return "", nil
}

// InstallDNS installs a kind of DNS server in place of the existing one, and returns when it answers.
// DNSNone removes it.
func (c *Cluster) InstallDNS(ctx context.Context, kind shape.DNS) error {
	return c.ConfigureDNS(ctx, DNSOptions{Kind: kind})
}

// ConfigureDNS is InstallDNS with more options; options of an earlier call do not count. Old pods end
// when new ones are ready, so that no query fails. It returns when the old pods have ended.
func (c *Cluster) ConfigureDNS(ctx context.Context, o DNSOptions) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := c.current()
	o.Kind = cmp.Or(o.Kind, now.Shape.DNSServer())
	now.Shape.DNS = o.Kind
	if err := now.Shape.Validate(); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dnsTime)
	defer cancel()
	if o.Kind == shape.DNSNone {
		return errors.Join(client.Delete(ctx, dnsNamespace, dnsManifests(now.Shape, o, "")), c.save(now))
	}
	why, err := WhyNoDNS(now.Shape, c.options)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("installing a DNS server: %s", why)
	}
	version, err := programVersion(c.options.programPath(dnsImage))
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := client.Apply(ctx, dnsNamespace, dnsManifests(now.Shape, o, version)); err != nil {
		return err
	}
	if err := c.save(now); err != nil {
		return err
	}
	if err := c.waitDNS(ctx, client); err != nil {
		return err
	}
	c.logf("DNS answers after %.1f s: %s", time.Since(begun).Seconds(), o.Kind)
	return nil
}

// waitDNS waits until only pods of the last change run, and they answer all nodes.
func (c *Cluster) waitDNS(ctx context.Context, client *Client) error {
	if err := client.WaitDeployment(ctx, dnsNamespace, dnsDeployment); err != nil {
		return errors.Join(err, client.explainPods(ctx, dnsNamespace, dnsSelector))
	}
	// A terminating pod answers for a while.
	if err := kube.Wait(ctx, "the replaced pods of the DNS server to end", client.endingDNSPods); err != nil {
		return err
	}
	err := kube.Wait(ctx, "the DNS server to answer all nodes", func(ctx context.Context) (string, error) {
		return "", c.checkDNSFromNodes(ctx, client)
	})
	if err != nil {
		return errors.Join(err, client.explainPods(ctx, dnsNamespace, dnsSelector))
	}
	return nil
}

func (c *Client) endingDNSPods(ctx context.Context) (string, error) {
	list, err := c.CoreV1().Pods(dnsNamespace).List(ctx, metav1.ListOptions{LabelSelector: dnsSelector})
	if err != nil {
		return "", err
	}
	var ending []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			ending = append(ending, list.Items[i].Name)
		}
	}
	return strings.Join(ending, ", "), nil
}

// checkDNSFromNodes returns an error until the DNS server answers all nodes that are ready.
func (c *Cluster) checkDNSFromNodes(ctx context.Context, client *Client) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		node, ok := c.Shape().Node(nodes.Items[i].Name)
		if !ok || !kube.NodeReady(&nodes.Items[i]) {
			continue
		}
		if err := c.checkDNS(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// checkDNS returns an error until the DNS server answers a node at all addresses, over UDP
// and TCP.
func (c *Cluster) checkDNS(ctx context.Context, node shape.Node) error {
	namespace := shape.NodeNamespace(c.Shape().Name, node.Index)
	for _, addr := range c.Shape().DNSAddrs() {
		for _, tcp := range []bool{false, true} {
			query := dnsquery.Query{Name: dnsKnownName, Server: netip.AddrPortFrom(addr, dnsquery.Port), TCP: tcp}
			answer, err := query.Ask(ctx, func(ctx context.Context, network, address string) (net.Conn, error) {
				return fabric.Dial(ctx, namespace, network, address)
			})
			if err != nil {
				return err
			}
			if len(answer.Answers) == 0 {
				return fmt.Errorf("%s answers %s for %s", query.Server, answer.Rcode, query.Name)
			}
		}
	}
	return nil
}

// DNSCorefile is the Corefile of a kind of DNS server. It forwards no other names, since there is no
// resolver, and it does not cache names of the cluster, so that answers follow the API at once.
func DNSCorefile(kind shape.DNS) string {
	plugin := ""
	if kind == shape.DNSVicinity {
		plugin = "    vicinity cluster.local\n"
	}
	return strings.Replace(corefile, "$PLUGIN", plugin, 1)
}

var verifiesPods = regexp.MustCompile(`(?m)^\s*pods\s+verified\b`)

// dnsManifests are all objects of a DNS server. A new version or Corefile replaces its pods.
func dnsManifests(s shape.Shape, o DNSOptions, version string) string {
	text := cmp.Or(o.Corefile, DNSCorefile(o.Kind))
	hash := sha256.Sum256([]byte(text))
	var addrs []string
	for _, addr := range s.DNSAddrs() {
		addrs = append(addrs, strconv.Quote(addr.String()))
	}
	families := "RequireDualStack"
	if s.SingleStack {
		families = "SingleStack"
	}
	return strings.NewReplacer(
		"$RULES", dnsRules(o.Kind, text),
		"$COREFILE", strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    "),
		"$VERSION", strconv.Quote(version),
		"$HASH", strconv.Quote(hex.EncodeToString(hash[:8])),
		"$FAKE", shape.LabelFake,
		"$ADDRESSES", strings.Join(addrs, ", "),
		"$ADDRESS", addrs[0],
		"$FAMILIES", families,
	).Replace(dnsTemplate)
}

// dnsRules returns the least RBAC rules with which a Corefile works.
func dnsRules(kind shape.DNS, corefile string) string {
	core := []string{"namespaces", "services"}
	if verifiesPods.MatchString(corefile) {
		core = append(core, "pods")
	}
	var own string
	if kind == shape.DNSVicinity {
		core = append(core, "nodes")
		own = "\n- {apiGroups: [vicinity.dev], resources: [endpointgroups, podlocators], verbs: [list, watch]}"
	}
	slices.Sort(core)
	return fmt.Sprintf(`- {apiGroups: [""], resources: [%s], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}%s`, strings.Join(core, ", "), own)
}
