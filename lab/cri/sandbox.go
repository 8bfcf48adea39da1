package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

type sandbox struct {
	sandboxRecord
	folder string
	// stopping serializes stops: the kubelet may stop a sandbox twice.
	stopping sync.Mutex
}

// sandboxRecord is for a later runtime.
type sandboxRecord struct {
	ID        string                       `json:"id"`
	Node      shape.Node                   `json:"node"`
	Created   time.Time                    `json:"created"`
	Config    *runtimeapi.PodSandboxConfig `json:"config"`
	Slot      int                          `json:"slot,omitempty"`
	Addresses []netip.Addr                 `json:"addresses,omitempty"`
	// PortsOpen means that host ports may lead to the pod.
	PortsOpen bool `json:"portsOpen,omitempty"`
	// Made means that the sandbox is complete.
	Made bool `json:"made,omitempty"`
	// Stopped means that the network was removed.
	Stopped bool `json:"stopped,omitempty"`
}

// The files of a sandbox's folder.
const (
	sandboxFile      = "sandbox.json"
	resolverFile     = "resolv.conf"
	containersFolder = "containers"
)

func newID() string {
	var id [32]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

func (r *sandboxRecord) uid() string { return r.Config.GetMetadata().GetUid() }

func (r *sandboxRecord) inHostNetwork() bool {
	return r.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (n *node) namespaceOf(s *sandbox) string {
	if s.inHostNetwork() {
		return n.namespace()
	}
	return shape.PodNamespace(n.shape.Name, s.uid())
}

func (s *sandbox) save() error {
	return writeJSON(filepath.Join(s.folder, sandboxFile), s.sandboxRecord)
}

// readSandboxes reads the records of a lab's sandboxes.
func readSandboxes(d state.Dir) ([]*sandboxRecord, error) {
	folders, err := os.ReadDir(d.Pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the records of sandboxes: %w", err)
	}
	var records []*sandboxRecord
	for _, folder := range folders {
		record := &sandboxRecord{}
		err := readJSON(filepath.Join(d.Pods(), folder.Name(), sandboxFile), record)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the runtime ended before it recorded anything
		} else if err != nil {
			return records, err
		}
		records = append(records, record)
	}
	return records, nil
}

// RunPodSandbox makes the sandbox of a pod with its network.
func (n *node) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	id := newID()
	s := &sandbox{
		sandboxRecord: sandboxRecord{ID: id, Node: n.Node, Created: time.Now(), Config: r.Config},
		folder:        n.runtime.State.Pod(id),
	}
	if err := n.makeSandbox(s); err != nil {
		return nil, errors.Join(err, n.end(s), os.RemoveAll(s.folder))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sandboxes[id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (n *node) makeSandbox(s *sandbox) error {
	if err := os.MkdirAll(filepath.Join(s.folder, containersFolder), 0o700); err != nil {
		return err
	}
	if s.Config.LogDirectory != "" {
		if err := os.MkdirAll(onMachine(n.runtime.State, s.Config.LogDirectory), 0o755); err != nil {
			return err
		}
	}
	if !s.inHostNetwork() {
		var err error
		if s.Slot, err = n.slots.Take(); err != nil {
			return err
		}
		s.Addresses = n.shape.PodAddrs(n.Node, s.Slot)
	}
	// Recorded before the network: a runtime that ends in between must find it.
	if err := s.save(); err != nil {
		return err
	}
	if !s.inHostNetwork() {
		// Remove the leftovers of an earlier attempt.
		if err := n.network.RemovePod(n.Name, s.uid()); err != nil {
			return err
		}
		if err := n.network.AddPod(n.Name, s.uid(), s.Addresses); err != nil {
			return err
		}
		if err := n.openPorts(s); err != nil {
			return err
		}
	}
	if err := s.writeResolver(); err != nil {
		return err
	}
	s.Made = true
	return s.save()
}

// MachineResolver is the machine's resolv.conf.
const MachineResolver = "/etc/resolv.conf"

// writeResolver writes the sandbox's resolv.conf as the kubelet demands.
func (s *sandbox) writeResolver() error {
	config := s.Config.GetDnsConfig()
	if config == nil {
		return nil
	}
	var text strings.Builder
	for _, server := range config.Servers {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if len(config.Searches) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(config.Searches, " "))
	}
	if len(config.Options) > 0 {
		fmt.Fprintf(&text, "options %s\n", strings.Join(config.Options, " "))
	}
	return state.ReplaceFile(filepath.Join(s.folder, resolverFile), []byte(text.String()), 0o644)
}

// end removes the network of a sandbox, records that, and frees its addresses.
func (n *node) end(s *sandbox) error {
	if s.Stopped {
		return nil
	}
	if s.Slot != 0 {
		if err := errors.Join(n.closePorts(s), n.network.RemovePod(n.Name, s.uid())); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	// Recorded before the addresses are free: otherwise the record of an interrupted runtime could
	// hold addresses of another pod.
	s.Stopped = true
	if err := s.save(); err != nil {
		s.Stopped = false
		return err
	}
	if s.Slot != 0 {
		n.slots.Free(s.Slot)
	}
	return nil
}

func (n *node) findSandbox(id string) (*sandbox, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxes[id]; s != nil {
		return s, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod sandbox %q not found", id)
}

// StopPodSandbox kills the containers of a sandbox, and removes its network.
func (n *node) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, n.stopSandbox(ctx, r.PodSandboxId)
}

func (n *node) stopSandbox(ctx context.Context, id string) error {
	s, err := n.findSandbox(id)
	if err != nil {
		return nil // it was removed
	}
	s.stopping.Lock()
	defer s.stopping.Unlock()
	for _, c := range n.containersOf(s) {
		if err := n.stopContainer(ctx, c, 0); err != nil {
			return err
		}
	}
	return n.end(s)
}

// RemovePodSandbox removes a sandbox with its containers.
func (n *node) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, n.removeSandbox(ctx, r.PodSandboxId)
}

func (n *node) removeSandbox(ctx context.Context, id string) error {
	if err := n.stopSandbox(ctx, id); err != nil {
		return err
	}
	s, err := n.findSandbox(id)
	if err != nil {
		return nil
	}
	for _, c := range n.containersOf(s) {
		if err := n.removeContainer(ctx, c); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.folder); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sandboxes, id)
	return nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.Stopped {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

// status returns the sandbox's status for the kubelet. The caller holds the node's lock.
func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	result := &runtimeapi.PodSandboxStatus{
		Id: s.ID, Metadata: s.Config.Metadata, State: s.state(), CreatedAt: s.Created.UnixNano(),
		Labels: s.Config.Labels, Annotations: s.Config.Annotations, Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	for i, addr := range s.Addresses {
		if i == 0 {
			result.Network.Ip = addr.String()
			continue
		}
		result.Network.AdditionalIps = append(result.Network.AdditionalIps, &runtimeapi.PodIP{Ip: addr.String()})
	}
	return result
}

// PodSandboxStatus returns the state and the addresses of a sandbox.
func (n *node) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s, err := n.findSandbox(r.PodSandboxId)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

// ListPodSandbox lists the sandboxes that match a filter.
func (n *node) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := r.GetFilter()
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range n.sandboxes {
		if filter.GetId() != "" && filter.GetId() != s.ID || filter.GetState() != nil && filter.State.State != s.state() ||
			!hasLabels(s.Config.Labels, filter.GetLabelSelector()) {
			continue
		}
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
			Id: s.ID, Metadata: s.Config.Metadata, State: s.state(), CreatedAt: s.Created.UnixNano(),
			Labels: s.Config.Labels, Annotations: s.Config.Annotations,
		})
	}
	return answer, nil
}

func hasLabels(labels, wanted map[string]string) bool {
	for name, value := range wanted {
		if have, ok := labels[name]; !ok || have != value {
			return false
		}
	}
	return true
}
