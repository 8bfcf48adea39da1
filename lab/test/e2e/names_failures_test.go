package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
)

// readyPort is that of the directive ready.
const readyPort = 8181

// namesWithoutAPIServer takes the API server away: answers go on as they were. A DNS server that
// is restarted meanwhile is not ready and answers for no name of the cluster; it does when the API
// server is back.
func namesWithoutAPIServer(ctx context.Context, s *scene) (figure string, err error) {
	services := headlessOf("near", keysAnnotation, zoneKey) + headlessOf("whole")
	if err := s.namedPods(ctx, services, inEachZone...); err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	echo, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	whole, err := s.podsOf(ctx, inEachZone...)
	if err != nil {
		return "", err
	}
	var all []asked
	for _, node := range []string{"zone-a-2", "zone-b-2", "zone-c-2"} {
		at, _ := s.cluster.Shape().Node(node)
		near, err := s.podsOf(ctx, at.Zone+"-1")
		if err != nil {
			return "", err
		}
		for name, want := range map[string]string{"near": near, "whole": whole, "echo": echo.Spec.ClusterIP, "nothing": noName} {
			all = append(all, asked{clients[node], dnsquery.Query{Name: s.fqdn(name)}, want})
		}
	}
	if _, err := s.answers(ctx, all); err != nil {
		return "", err
	}
	restarted, server, err := s.dnsPod(ctx)
	if err != nil {
		return "", err
	}
	st, err := s.askSteadily(ctx, all)
	if err != nil {
		return "", err
	}
	defer st.stop()
	const component = "kube-apiserver"
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.cluster.StartComponent(ctx, component), s.WaitNodes(ctx, true), s.WaitDeployment(ctx, metav1.NamespaceSystem, "coredns"))
	}()
	if err := s.cluster.KillComponent(ctx, component); err != nil {
		return "", err
	}
	if err := errors.Join(st.more(ctx, 2000), st.end()); err != nil {
		return "", fmt.Errorf("without the API server: %w", err)
	}
	failed, err := s.restartsUnready(ctx, clients["zone-b-2"], restarted, server, all)
	if err != nil {
		return "", fmt.Errorf("restarted without the API server: %w", err)
	}
	if err := s.cluster.StartComponent(ctx, component); err != nil {
		return "", err
	}
	begun := time.Now()
	for i := range all {
		all[i].Server = server
	}
	limited, cancel := context.WithTimeout(ctx, maxBehind)
	defer cancel()
	err = kube.Wait(limited, "the restarted DNS server to answer", func(ctx context.Context) (string, error) {
		names, err := s.podNames(ctx)
		if err != nil {
			return "", err
		}
		return s.wrong(ctx, all, names)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d answers as before without the API server; a server restarted then is not ready, gives SERVFAIL to %d queries for names of the cluster, and is right %.1f s after the API server is back",
		st.right, failed, time.Since(begun).Seconds()), nil
}

// dnsPod is a pod of the DNS server with its address.
func (s *scene) dnsPod(ctx context.Context) (*corev1.Pod, netip.AddrPort, error) {
	instances, err := s.dnsInstances(ctx)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	list, err := s.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=" + instances[0].Addr().String()})
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	if len(list.Items) != 1 {
		return nil, netip.AddrPort{}, fmt.Errorf("%d pods have the address %s of the DNS server", len(list.Items), instances[0].Addr())
	}
	return &list.Items[0], instances[0], nil
}

// restartsUnready kills a DNS server and asks the next one until it has refused to answer often
// enough. It returns how often. Any other answer for a name of the cluster is an error.
func (s *scene) restartsUnready(ctx context.Context, from place, pod *corev1.Pod, server netip.AddrPort, all []asked) (failed int, err error) {
	const enough = 200
	if err := s.killIn(shape.PodNamespace(s.cluster.Shape().Name, string(pod.UID)), "vicinity-dns"); err != nil {
		return 0, err
	}
	var wrong error
	limited, cancel := context.WithTimeout(ctx, maxBehind)
	defer cancel()
	err = kube.Wait(limited, "the DNS server to run again", func(ctx context.Context) (string, error) {
		for _, a := range all {
			a.Server, a.Timeout = server, time.Second
			answer, err := a.Ask(ctx, from.dial)
			if err != nil {
				return err.Error(), nil
			}
			if answer.Rcode != servFail {
				wrong = fmt.Errorf("%s gives %s", a, answer)
				return "", nil
			}
			failed++
		}
		if failed < enough {
			return fmt.Sprintf("it failed %d of %d times", failed, enough), nil
		}
		return "", nil
	})
	if err := errors.Join(wrong, err); err != nil {
		return failed, err
	}
	response, err := from.get(ctx, netip.AddrPortFrom(server.Addr(), readyPort), "/ready")
	if err != nil {
		return failed, err
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusServiceUnavailable {
		return failed, errors.Join(err, fmt.Errorf("it should not be ready; it answers %s", response.Status))
	}
	outside := asked{from, dnsquery.Query{Name: "www.example.com.", Server: server}, exampleAddress}
	if wrong, err := s.wrong(ctx, []asked{outside}, nil); err != nil || wrong != "" {
		return failed, errors.Join(err, errors.New(wrong))
	}
	return failed, nil
}

// killIn kills the processes of a program in a network namespace.
func (s *scene) killIn(namespace, program string) error {
	var stat syscall.Stat_t
	if err := syscall.Stat(shape.NamespacePath(namespace), &stat); err != nil {
		return err
	}
	own := fmt.Sprintf("net:[%d]", stat.Ino)
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	killed := 0
	for _, link := range links {
		folder := filepath.Dir(filepath.Dir(link))
		is, err := os.Readlink(link)
		if err != nil || is != own {
			continue // it may have ended
		}
		if path, err := os.Readlink(folder + "/exe"); err != nil || filepath.Base(path) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("no %s runs in the network namespace %s", program, namespace)
	}
	return nil
}
