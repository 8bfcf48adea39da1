package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
)

// probeService is the Service by which proxies probe their nodes.
const probeService = "vicinity-proxy-probe"

// probeFailure is what the Lease of a node's proxy says of its last probe, empty if that
// passed.
func (s *scene) probeFailure(ctx context.Context, node string) (string, error) {
	lease, err := s.CoordinationV1().Leases(vicinityNamespace).Get(ctx, "vicinity-proxy-"+node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return lease.Annotations[v1alpha1.AnnotationProbeFailure], nil
}

// proxyProbed has a foreign table on one node translate the address of the probe before
// vicinity-proxy's rules do. A Service that asks for vicinity-proxy stays kube-proxy's and
// names that node; without the table it is handed over.
func proxyProbed(ctx context.Context, s *scene) (figure string, err error) {
	const waits = v1alpha1.LeaseFresh/3 + 2*time.Second // the controller looks after each third of LeaseFresh
	// A probe that passed before the table was there counts for 10 s.
	const trusted = 11 * time.Second
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	probe, err := s.CoreV1().Services(vicinityNamespace).Get(ctx, probeService, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	node := s.cluster.Shape().Nodes()[0]
	family, nowhere := "ip", "192.0.2.77"
	if address, err := netip.ParseAddr(probe.Spec.ClusterIP); err != nil {
		return "", err
	} else if address.Is6() {
		family, nowhere = "ip6", "2001:db8::77"
	}
	table := family + " translates-first"
	remove := func(ctx context.Context) error {
		_, err := s.nft(ctx, node, "table "+table+"; delete table "+table) // also if there is none
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	var noticed time.Duration
	u, err := s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		if _, err := s.nft(ctx, node, fmt.Sprintf("table %s { chain output { type nat hook output priority -102; %s daddr %s dnat to %s; }; }",
			table, family, probe.Spec.ClusterIP, nowhere)); err != nil {
			return err
		}
		translated := time.Now()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(trusted):
		}
		if err := s.PatchService(ctx, s.namespace, "echo", byVicinity); err != nil {
			return err
		}
		named := "until vicinity-proxy is ready on node " + node.Name
		if err := kube.Wait(ctx, "the probe of "+node.Name+" to fail, and the Service to wait for it", func(ctx context.Context) (string, error) {
			failure, err := s.probeFailure(ctx, node.Name)
			if err != nil {
				return "", err
			}
			if !strings.Contains(failure, "does not end at vicinity-proxy") {
				return fmt.Sprintf("the Lease has the failure %q", failure), nil
			}
			service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if said := whyNotServed(service); !strings.Contains(said, named) {
				return said, nil
			}
			return "", nil
		}); err != nil {
			return err
		}
		noticed = time.Since(translated)
		if err := t.more(ctx, int64(newRate*waits.Seconds())); err != nil {
			return err
		}
		service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if said := whyNotServed(service); service.Labels["service.kubernetes.io/service-proxy-name"] != "" || !strings.Contains(said, named) {
			return fmt.Errorf("the Service does not wait for node %s any more: its labels are %v, %s", node.Name, service.Labels, said)
		}
		for _, other := range s.cluster.Shape().Nodes()[1:] {
			if failure, err := s.probeFailure(ctx, other.Name); err != nil || failure != "" {
				return errors.Join(fmt.Errorf("the probe of %s fails too: %s", other.Name, failure), err)
			}
		}
		if err := remove(ctx); err != nil {
			return err
		}
		if err := s.servedBy(ctx, "echo", true); err != nil {
			return err
		}
		return t.more(ctx, newRate)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("kube-proxy's while a table of somebody else came first on one node, seen by the probe and the Service within %.0f s, and handed over without it; %s", noticed.Seconds(), u), nil
}
