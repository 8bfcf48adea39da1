// Command kubeproxy prints the endpoints that the kube-proxy of each node chooses, by kube-proxy's own code. It reads a
// Service, its EndpointSlices and the nodes as JSON.
package main

import (
	"encoding/json"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/kubernetes/pkg/proxy"
)

func main() {
	var in struct {
		Service *corev1.Service
		Slices  []*discoveryv1.EndpointSlice
		Nodes   []corev1.Node
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatalf("reading the document: %v", err)
	}
	services := proxy.NewServiceChangeTracker(corev1.IPv4Protocol, nil, nil)
	services.Update(nil, in.Service)
	ports := proxy.ServicePortMap{}
	ports.Update(services)
	chosen := map[string][]string{}
	for i := range in.Nodes {
		node := &in.Nodes[i]
		slices := proxy.NewEndpointsChangeTracker(corev1.IPv4Protocol, node.Name, nil, nil)
		for _, slice := range in.Slices {
			slices.EndpointSliceUpdate(slice, false)
		}
		endpoints := proxy.EndpointsMap{}
		endpoints.Update(slices)
		for name, port := range ports {
			_, _, reachable, _ := proxy.CategorizeEndpoints(endpoints[name], port, node.Name, node.Labels)
			for _, e := range reachable {
				chosen[node.Name] = append(chosen[node.Name], e.IP())
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(chosen); err != nil {
		log.Fatal(err)
	}
}
