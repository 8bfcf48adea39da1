package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/intent"
)

type namesView struct {
	Name string `json:"name"`
	From string `json:"from"`
	// Address is the address of the node that was chosen as the client.
	Address     string                   `json:"address,omitempty"`
	Explanation *inspect.NameExplanation `json:"explanation,omitempty"`
	// Problem says why there is no explanation.
	Problem string `json:"problem,omitempty"`

	// Headless and Nodes are suggestions for the form.
	Headless []string `json:"-"`
	Nodes    []string `json:"-"`
}

func (*namesView) title() string { return "Names" }

func (v *namesView) parts() []part {
	if v.Explanation == nil || v.Explanation.Service == "" {
		return []part{partServices, partCluster}
	}
	return []part{partService(v.Explanation.Namespace, v.Explanation.Service), partCluster}
}

// suggested limits the Services and nodes of the form.
const suggested = 100

// nodePrefix marks a node as the client.
const nodePrefix = "node/"

func (c *console) namesView(ctx context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	query := r.URL.Query()
	v := &namesView{Name: strings.TrimSpace(query.Get("name")), From: strings.TrimSpace(query.Get("from"))}
	for _, service := range s.services {
		if intent.IsHeadless(service) && len(v.Headless) < suggested {
			v.Headless = append(v.Headless, service.Name+"."+service.Namespace)
		}
	}
	for _, node := range s.nodes[:min(suggested, len(s.nodes))] {
		v.Nodes = append(v.Nodes, nodePrefix+node.Name)
	}
	a := c.about(s)
	switch {
	case v.Name == "" && v.From == "":
		return v, &a, nil
	case v.Name == "" || v.From == "":
		return nil, nil, badRequestf("name and from must both be given: the name of a Service such as db.shop, and a pod as NAMESPACE/NAME, an address, or node/NAME")
	}
	from := v.From
	if name, isNode := strings.CutPrefix(from, nodePrefix); isNode {
		address, err := s.addressOf(name)
		if err != nil {
			return nil, nil, err
		}
		from, v.Address = address, address
	}
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	e, err := c.options.Cluster.ExplainName(ctx, v.Name, from)
	if err != nil {
		// The page has the form to ask again.
		v.Problem = err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			v.Problem = "the cluster does not answer in time"
		}
		return v, &a, nil
	}
	v.Explanation = e
	a.NotKnown = append(a.NotKnown, e.NotKnown...)
	return v, &a, nil
}

// addressOf returns the address of a node, which its host processes and hostNetwork pods use.
func (s *snapshot) addressOf(name string) (string, error) {
	for _, node := range s.nodes {
		if node.Name != name {
			continue
		}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return address.Address, nil
			}
		}
		return "", badRequestf("from %q: the node has no internal address; give a pod as NAMESPACE/NAME or an address", nodePrefix+name)
	}
	return "", badRequestf("from %q: there is no such node, or nodes may not be read", nodePrefix+name)
}
