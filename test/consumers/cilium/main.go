// Command cilium prints the endpoints that the Cilium of each node chooses, by Cilium's own tables of load balancing, which
// nothing writes to the kernel. It reads a Service, its EndpointSlices and the nodes as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/hive"
	"github.com/cilium/cilium/pkg/k8s"
	clienttest "github.com/cilium/cilium/pkg/k8s/client/testutils"
	"github.com/cilium/cilium/pkg/k8s/resource"
	slimcorev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	slimdiscoveryv1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/discovery/v1"
	k8stables "github.com/cilium/cilium/pkg/k8s/tables"
	"github.com/cilium/cilium/pkg/loadbalancer"
	"github.com/cilium/cilium/pkg/loadbalancer/reflectors"
	"github.com/cilium/cilium/pkg/loadbalancer/writer"
	"github.com/cilium/cilium/pkg/node"
	nodetypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"
)

type document struct {
	Service *slimcorev1.Service
	Slices  []*slimdiscoveryv1.EndpointSlice
	Nodes   []corev1.Node
}

func main() {
	var in document
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatalf("reading the document: %v", err)
	}
	chosen := map[string][]string{}
	for i := range in.Nodes {
		endpoints, err := in.choose(&in.Nodes[i])
		if err != nil {
			log.Fatalf("choosing for %s: %v", in.Nodes[i].Name, err)
		}
		chosen[in.Nodes[i].Name] = endpoints
	}
	if err := json.NewEncoder(os.Stdout).Encode(chosen); err != nil {
		log.Fatal(err)
	}
}

// choose runs the load balancer of a node.
func (d *document) choose(n *corev1.Node) ([]string, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	services := make(chan resource.Event[*slimcorev1.Service], 1)
	slices := make(chan resource.Event[*k8s.Endpoints], len(d.Slices))
	nodetypes.SetName(n.Name)
	config := loadbalancer.Config{UserConfig: loadbalancer.DefaultUserConfig, NodePortMin: loadbalancer.NodePortMinDefault, NodePortMax: loadbalancer.NodePortMaxDefault}
	config.EnableServiceTopology, config.ReflectorWaitTime = true, time.Millisecond
	var balancer *writer.Writer
	var local *node.LocalNodeStore
	h := hive.New(cell.Module("consumer", "Tables of load balancing",
		clienttest.FakeClientCell(),
		node.LocalNodeStoreTestCell,
		k8stables.PodTableCell,
		writer.Cell,
		cell.Provide(
			func() cmtypes.ClusterInfo { return cmtypes.ClusterInfo{} },
			func() loadbalancer.Config { return config },
			func() loadbalancer.ExternalConfig {
				return loadbalancer.ExternalConfig{ZoneMapper: &option.DaemonConfig{}, EnableIPv4: true}
			},
			func() (<-chan resource.Event[*slimcorev1.Service], <-chan resource.Event[*k8s.Endpoints]) {
				return services, slices
			},
			reflectors.EventStreamForBenchmark,
			reflectors.NetnsCookieSupportFunc,
			tables.NewNodeAddressTable,
			statedb.RWTable[tables.NodeAddress].ToTable,
			source.NewSources,
		),
		cell.Invoke(reflectors.RegisterK8sReflector),
		cell.Invoke(func(w *writer.Writer, store *node.LocalNodeStore) {
			balancer, local = w, store
		}),
	))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.Start(logger, ctx); err != nil {
		return nil, err
	}
	defer h.Stop(logger, ctx)
	local.Update(func(l *node.LocalNode) { l.Labels = n.Labels })
	want := 0
	for _, slice := range d.Slices {
		want += len(slice.Endpoints)
		slices <- event(k8s.ParseEndpointSliceV1(logger, slice))
	}
	services <- event(d.Service)
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		txn := balancer.ReadTxn()
		if balancer.Frontends().NumObjects(txn) == 0 || balancer.Backends().NumObjects(txn) < want {
			continue
		}
		var endpoints []string
		for frontend := range balancer.Frontends().All(txn) {
			for backend := range frontend.Backends {
				if backend.State == loadbalancer.BackendStateActive {
					endpoints = append(endpoints, backend.Address.AddrCluster().Addr().String())
				}
			}
		}
		return endpoints, nil
	}
	return nil, fmt.Errorf("waiting for the endpoints: %w", ctx.Err())
}

func event[T runtime.Object](object T) resource.Event[T] {
	return resource.Event[T]{Object: object, Key: resource.NewKey(object), Kind: resource.Upsert, Done: func(error) {}}
}
