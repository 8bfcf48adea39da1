package health

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// Reach counts the endpoints of a Service, in the IP family with more.
type Reach struct {
	// Reachable endpoints get new connections from outside that arrive at this node. Known ones include endpoints that
	// topology excludes, as far as the node sees them.
	Reachable int `json:"reachableEndpoints"`
	Known     int `json:"knownEndpoints"`
}

// SetReach records what the rules do for a Service, nil if the proxy does not serve it.
func (s *State) SetReach(name types.NamespacedName, reach *Reach) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reach == nil {
		delete(s.reaches, name)
		return
	}
	s.reaches[name] = *reach
}

// serviceName is a name as kube-proxy reports it.
type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type reachReport struct {
	Service serviceName `json:"service"`
	Reach
	NodeEligible        bool   `json:"nodeEligible"`
	ServiceProxyHealthy bool   `json:"serviceProxyHealthy"`
	Error               string `json:"error,omitempty"`
}

// answerReach answers 200 if this node can take connections for a Service from outside. The work is the same for any number
// of Services.
func (s *State) answerReach(w http.ResponseWriter, r *http.Request) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	s.mu.Lock()
	reach, served := s.reaches[name]
	s.mu.Unlock()
	made := reachReport{Service: serviceName(name), Reach: reach, NodeEligible: s.nodeEligible(), ServiceProxyHealthy: s.Healthy()}
	code := http.StatusServiceUnavailable
	switch {
	case !served && s.Programmed():
		code = http.StatusNotFound
		made.Error = fmt.Sprintf("vicinity-proxy does not serve this Service on this node; vicinity explain svc/%s -n %s says which proxy does", name.Name, name.Namespace)
	case reach.Reachable > 0 && made.NodeEligible && made.ServiceProxyHealthy:
		code = http.StatusOK
	}
	writeJSON(w, code, made)
}
