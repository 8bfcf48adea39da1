package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/state"
)

// shiftRestored restores etcd from before a shift, while the shift is in force.
func shiftRestored(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deployed(ctx, echoes, ""))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	data := state.At(filepath.Dir(s.cluster.Kubeconfig())).Etcd()
	backup := filepath.Join(must(os.MkdirTemp("", "")), "etcd")
	defer undo(&err, func() error { return os.RemoveAll(filepath.Dir(backup)) })
	check(s.withoutEtcd(ctx, func() error { return os.CopyFS(backup, os.DirFS(data)) }))
	must(s.shift(ctx, "  for: 1h\n"))
	check(s.waitOut(ctx, "echo"))
	check(s.withoutEtcd(ctx, func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup))) }))
	begun := time.Now()
	check(s.restartClients(ctx))
	if _, err := s.currentShift(ctx); err == nil {
		return "", errors.New("the shift is still in the API")
	}
	check(s.waitAllUsed(ctx, echoes))
	must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("etcd is restored from before the shift: all endpoints are used and all objects are as before after %.0f s, restarts included", time.Since(begun).Seconds()), nil
}

// withoutEtcd does something while etcd and the API server are stopped.
func (s *scene) withoutEtcd(ctx context.Context, do func() error) error {
	return errors.Join(
		s.cluster.StopComponent(ctx, controlplane.KubeAPIServer), s.cluster.StopComponent(ctx, controlplane.Etcd),
		do(),
		s.cluster.StartComponent(ctx, controlplane.Etcd), s.cluster.StartComponent(ctx, controlplane.KubeAPIServer))
}

// restartClients restarts the programs that watch the API. After a restore they would miss changes, since they know
// later versions of objects.
func (s *scene) restartClients(ctx context.Context) error {
	components, err := s.cluster.Components()
	if err != nil {
		return err
	}
	for _, name := range components {
		for _, watches := range []string{controlplane.ControllerManager, controlplane.Scheduler, controlplane.KubeProxy, controlplane.Kubelet, controlplane.Agent} {
			if strings.HasPrefix(name, watches) {
				err = errors.Join(err, s.cluster.StopComponent(ctx, name), s.cluster.StartComponent(ctx, name))
			}
		}
	}
	pods, listed := s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{})
	if err = errors.Join(err, listed); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			err = errors.Join(err, s.CoreV1().Pods(vicinityNamespace).Delete(ctx, pods.Items[i].Name, atOnce()))
		}
	}
	return errors.Join(err, s.waitControllers(ctx), s.waitLeader(ctx))
}
