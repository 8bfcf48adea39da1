package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// pretended is a lab without network that says it is up, of which nothing runs.
func pretended(t *testing.T) *Cluster {
	t.Helper()
	root := t.TempDir()
	dir, err := state.Create(root, "pretended")
	if err != nil {
		t.Fatal(err)
	}
	s, err := shape.FromOptions(shape.Options{Name: "pretended", ControlPlaneOnly: true, Zones: []string{"a"}, NodesPerZone: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	port, err := controlplane.FreePort(t.Context(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(state.Lab{Shape: s, Port: port, Up: true, NextIndex: 2}); err != nil {
		t.Fatal(err)
	}
	c, err := Open("pretended", Options{Root: root, Kubernetes: "/bin/sh"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// For the race detector: a lab can be read while it is being changed.
func TestShapeIsReadWhileItChanges(t *testing.T) {
	c := pretended(t)
	var work sync.WaitGroup
	work.Go(func() {
		for range 20 {
			unlock, err := c.lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			unlock()
		}
	})
	for range 1000 {
		if len(c.Shape().Zones) != 1 {
			t.Error("the lab has no zone")
		}
	}
	work.Wait()
}

// A command that changes a lab does not make it again if it was taken down.
func TestChangesOfALabThatIsGone(t *testing.T) {
	c := pretended(t)
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.StopNode(t.Context(), "a-1"); err == nil || !strings.HasPrefix(err.Error(), `there is no lab "pretended"`) {
		t.Errorf("stopping a node of a lab that is gone: %v", err)
	}
	if _, err := os.Stat(c.dir.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}

func TestUpRefusesAProxyThatIsNotThere(t *testing.T) {
	folder := t.TempDir()
	s := shape.Default()
	s.Proxy = shape.ProxyBoth
	_, err := Up(t.Context(), s, Options{Root: folder, Program: filepath.Join(folder, "vicinity"), Kubernetes: "/bin/sh"})
	if err == nil || !strings.HasPrefix(err.Error(), `proxy "both": there is no program `+folder+"/vicinity-proxy; make build builds it") {
		t.Errorf("Up() without a vicinity-proxy: %v", err)
	}
}

// The link beside the program may point to another release when a lab is opened again.
func TestALabKeepsItsKubernetes(t *testing.T) {
	folder := t.TempDir()
	link := filepath.Join(folder, "vicinity-kubernetes")
	options := Options{Program: filepath.Join(folder, "vicinity")}
	choose := func(release string) string {
		t.Helper()
		path := filepath.Join(folder, release)
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(release, link); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oldest := choose("oldest")
	chosen, err := options.kubernetes()
	if err != nil || chosen != oldest {
		t.Fatalf("a new lab runs %q: %v; want %q", chosen, err, oldest)
	}
	newest := choose("newest")
	found := state.Lab{Kubernetes: chosen}
	named := options
	named.Kubernetes = newest
	for _, test := range []struct {
		options Options
		found   state.Lab
		want    string
	}{
		{options, found, oldest},
		{named, found, newest},
		{options, state.Lab{}, newest},
		{options, state.Lab{Kubernetes: filepath.Join(folder, "removed")}, newest},
	} {
		if got, err := test.options.kubernetesOf(test.found); err != nil || got != test.want {
			t.Errorf("with --kubernetes=%q, a lab of %q runs %q: %v; want %q", test.options.Kubernetes, test.found.Kubernetes, got, err, test.want)
		}
	}
}

func TestLastLines(t *testing.T) {
	for tail, want := range map[int64]int{-1: 3, 0: 0, 2: 2, 9: 3} {
		if got := lastLines([]byte("a\nb\nc\n"), &tail); len(got) != want {
			t.Errorf("of 3 lines the last %d are %q", tail, got)
		}
	}
}

func TestClientsAreKnownByAnyNameOfTheirImage(t *testing.T) {
	for image, want := range map[string]bool{"registry.example/lab/client:v1": true, "lab/echo": false} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
		if isClient(pod) != want {
			t.Errorf("a pod of the image %s is one to send from: %t", image, !want)
		}
	}
}

// asked answers as an API does that has one node, with the agent's heartbeat since a
// process began.
func asked(t *testing.T, c *Cluster, since *process.Process) *httptest.Server {
	t.Helper()
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(since.Started),
	}}
	lists := map[string]any{
		"/api/v1/nodes": corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: []corev1.Node{node}},
		"/api/v1/pods":  corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "a-1"}}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(lists[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.clientOnce.Do(func() { c.client = &Client{&kube.Client{Interface: typed}} })
	return server
}

// A component that does not answer delays neither the others nor the status for long.
func TestStatusOfASilentComponent(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a component that does not answer")
	}
	c := pretended(t)
	for _, name := range []string{"etcd", agentName} {
		if _, err := process.Start(c.dir, process.Spec{Name: name, Args: []string{"/bin/sleep", "1000"}}); err != nil {
			t.Fatal(err)
		}
	}
	// It accepts what etcd is asked for its health, and is silent.
	etcd, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.current().Port+3)))
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	agent, err := process.Find(c.dir, agentName)
	if err != nil {
		t.Fatal(err)
	}
	api := asked(t, c, agent)
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, component := range status.Components {
		states[component.Name] = component.State
	}
	if !strings.HasPrefix(states["etcd"], "not ready: ") || states[agentName] != "ready" {
		t.Errorf("the components are %q", states)
	}
	if status.Pods == nil || *status.Pods != 1 || status.Nodes[0].State != "Ready" || *status.Nodes[0].Pods != 1 {
		t.Errorf("there are %v pods, and the nodes are %+v", status.Pods, status.Nodes)
	}

	api.Close()
	if status, err = c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status.Pods != nil || status.Nodes[0].Pods != nil || status.Nodes[0].State != "Unknown" {
		t.Errorf("of an API that does not answer there are %v pods, and the nodes are %+v", status.Pods, status.Nodes)
	}
}

// An agent is ready once it has registered its nodes, except stopped ones.
func TestAgentReady(t *testing.T) {
	c := pretended(t)
	agent, err := process.Start(c.dir, process.Spec{Name: agentName, Args: []string{"/bin/sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	asked(t, c, agent)
	if err := c.agentReady(t.Context(), agent); err != nil {
		t.Errorf("an agent that registered its node: %v", err)
	}
	agent.Started = agent.Started.Add(2 * time.Second)
	if err := c.agentReady(t.Context(), agent); err == nil || !strings.Contains(err.Error(), "it has not registered a-1") {
		t.Errorf("an agent that began after its node was heard: %v", err)
	}
	if err := c.StopNode(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.agentReady(t.Context(), agent); err != nil {
		t.Errorf("an agent whose node is stopped: %v", err)
	}
}

// Servers of tests have certificates that the API servers of their lab trust.
func TestListenTLS(t *testing.T) {
	c := pretended(t)
	if _, err := c.controlPlane(); err != nil {
		t.Fatal(err)
	}
	listener, authority, err := c.ListenTLS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
	server.Start()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("the answer is %s", response.Status)
	}
}
