// Command calico prints the endpoints that Calico's eBPF proxy of each node chooses, by Calico's own code, with maps in
// memory instead of the kernel's. It reads a Service, its EndpointSlices and the nodes as JSON.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/projectcalico/calico/felix/bpf/mock"
	"github.com/projectcalico/calico/felix/bpf/nat"
	"github.com/projectcalico/calico/felix/bpf/proxy"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// syncer says when it has written the endpoints of a Service.
type syncer struct {
	*proxy.Syncer
	written chan error
}

func (s syncer) Apply(state proxy.DPSyncerState) error {
	err := s.Syncer.Apply(state)
	if err != nil || len(state.SvcMap) > 0 && len(state.EpsMap) > 0 {
		select {
		case s.written <- err:
		default:
		}
	}
	return err
}

func main() {
	logrus.SetLevel(logrus.WarnLevel)
	var in struct {
		Service *corev1.Service
		Slices  []*discoveryv1.EndpointSlice
		Nodes   []corev1.Node
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatalf("reading the document: %v", err)
	}
	objects := []runtime.Object{in.Service}
	for _, slice := range in.Slices {
		objects = append(objects, slice)
	}
	chosen := map[string][]string{}
	for i := range in.Nodes {
		endpoints, err := choose(&in.Nodes[i], objects)
		if err != nil {
			log.Fatal(err)
		}
		chosen[in.Nodes[i].Name] = endpoints
	}
	if err := json.NewEncoder(os.Stdout).Encode(chosen); err != nil {
		log.Fatal(err)
	}
}

func choose(node *corev1.Node, objects []runtime.Object) ([]string, error) {
	backends := mock.NewMockMap(nat.BackendMapParameters)
	made, err := proxy.NewSyncer(4, nil, mock.NewMockMap(nat.FrontendMapParameters), backends,
		mock.NewMockMap(nat.AffinityMapParameters), proxy.NewRTCache(), nil)
	if err != nil {
		return nil, err
	}
	synced := syncer{Syncer: made, written: make(chan error, 1)}
	started, err := proxy.New(fake.NewSimpleClientset(objects...), synced, node.Name,
		proxy.WithImmediateSync(), proxy.WithTopologyNodeZone(node.Labels[corev1.LabelTopologyZone]))
	if err != nil {
		return nil, err
	}
	if err := <-synced.written; err != nil {
		return nil, err
	}
	started.Stop()
	var endpoints []string
	for _, value := range backends.Contents {
		endpoints = append(endpoints, nat.BackendValueFromBytes([]byte(value)).Addr().String())
	}
	return endpoints, nil
}
