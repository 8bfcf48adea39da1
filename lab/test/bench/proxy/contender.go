package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// The contenders.
const (
	kubeProxy = "kube-proxy"
	vicinity  = "vicinity"
	// weighted is what figures call vicinity-proxy while endpoints have weights.
	weighted = "vicinity-weighted"
)

const (
	// healthPort and metricsPort are those of vicinity-proxy, on its node.
	healthPort  = 10266
	metricsPort = 10267
)

// program is a process of the benchmark.
type program struct {
	name    string
	command *exec.Cmd
	log     *os.File
	began   time.Time
	ended   chan struct{}
	// told says that it was told to end.
	told atomic.Bool
}

// start starts a program, in a network namespace unless that is empty. If it ends by
// itself, so does the context.
func start(name, namespace, folder string, lost context.CancelCauseFunc, args ...string) (*program, error) {
	p := &program{name: name, ended: make(chan struct{})}
	var err error
	if p.log, err = os.OpenFile(filepath.Join(folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	p.command = exec.Command(args[0], args[1:]...)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	// What interrupts this program is not meant for the others.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := func() error {
		p.began = time.Now()
		return p.command.Start()
	}
	if namespace == "" {
		err = begin()
	} else {
		err = fabric.InNamespace(namespace, begin)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), p.log.Close())
	}
	go func() {
		defer close(p.ended)
		if err := p.command.Wait(); !p.told.Load() {
			lost(fmt.Errorf("%s ended (%w): %s", name, err, meter.LogEnd(p.log)))
		}
	}()
	return p, nil
}

// stop ends a program and waits for its end. It is to be called once.
func (p *program) stop() error {
	p.told.Store(true)
	err := p.command.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return errors.Join(err, p.log.Close())
}

// contend starts a proxy on a node, with more flags.
func (b *bench) contend(who string, node shape.Node, flags ...string) (*program, error) {
	c := b.cluster
	namespace := shape.NodeNamespace(c.Shape().Name, node.Index)
	kubeconfig := c.dir.ComponentKubeconfig("kube-proxy")
	var cidrs []string
	for _, cidr := range c.Shape().PodCIDRs() {
		cidrs = append(cidrs, cidr.String())
	}
	if who == kubeProxy {
		// With its defaults, but for what belongs to the kernel as a whole.
		return start(who, namespace, b.folder, b.lost, filepath.Join(b.bin, "vicinity-kubernetes"), kubeProxy,
			"--kubeconfig="+kubeconfig, "--hostname-override="+node.Name, "--proxy-mode=nftables",
			"--cluster-cidr="+strings.Join(cidrs, ","), "--detect-local-mode=ClusterCIDR",
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0", "--oom-score-adj=0")
	}
	args := []string{
		filepath.Join(b.bin, "vicinity-proxy"), "--kubeconfig=" + kubeconfig, "--node-name=" + node.Name,
		"--cluster-cidr=" + strings.Join(cidrs, ","), "--healthz-bind-address=:" + strconv.Itoa(healthPort),
		"--metrics-bind-address=:" + strconv.Itoa(metricsPort), "--lease-namespace=vicinity-system", "--conntrack-accounting",
	}
	return start(who, namespace, b.folder, b.lost, slices.Concat(args, flags, b.flags)...)
}

// clear takes the rules of both proxies from a node.
func (b *bench) clear(ctx context.Context, node shape.Node) error {
	namespace := shape.NodeNamespace(b.cluster.Shape().Name, node.Index)
	return fabric.InNamespace(namespace, func() error {
		for _, family := range []string{"ip", "ip6"} {
			for _, table := range []string{kubeProxy, vicinity} {
				// Adding a table first makes deleting it no error where there is none.
				rule := fmt.Sprintf("add table %[1]s %[2]s; delete table %[1]s %[2]s", family, table)
				if output, err := exec.CommandContext(ctx, "nft", rule).CombinedOutput(); err != nil {
					return fmt.Errorf("nft %s: %w: %s", rule, err, output)
				}
			}
		}
		return nil
	})
}

// metric is the sum of a metric of vicinity-proxy over the labels that hold a text.
func (b *bench) metric(ctx context.Context, name, label string) (float64, error) {
	namespace := shape.NodeNamespace(b.cluster.Shape().Name, b.cluster.node.Index)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return fabric.Dial(ctx, namespace, network, address)
	}}
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), metricsPort)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address.String()+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of vicinity-proxy: %w", err)
	}
	defer response.Body.Close()
	return sumMetric(response.Body, name, label)
}
