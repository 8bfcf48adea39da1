package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/lab/state"
)

const refreshPeriod = 10 * time.Second

// volumes are a pod's volumes: folders below the pod's own, bound into its containers.
type volumes struct {
	worker *worker
	// due is when to refresh next; it and busy belong to the worker's goroutine.
	due  time.Time
	busy bool
	// tokens belong to prepare and refresh, which never run at the same time.
	tokens map[string]heldToken
}

type heldToken struct {
	token   string
	replace time.Time
}

func (v *volumes) path(name string) string {
	return filepath.Join(v.worker.folder, volumesFolder, name)
}

func (v *volumes) prepare(ctx context.Context, pod *corev1.Pod, r *record) error {
	if err := v.writeEtc(ctx, pod, r); err != nil {
		return err
	}
	return v.makeAll(ctx, pod, r)
}

func (v *volumes) makeAll(ctx context.Context, pod *corev1.Pod, r *record) error {
	if v.tokens == nil {
		v.tokens = map[string]heldToken{}
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := v.make(ctx, pod, r, volume); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err)
		}
	}
	return nil
}

func (v *volumes) make(ctx context.Context, pod *corev1.Pod, r *record, volume *corev1.Volume) error {
	folder := v.path(volume.Name)
	switch {
	case volume.EmptyDir != nil:
		if err := os.MkdirAll(folder, 0o777); err != nil {
			return err
		}
		return os.Chmod(folder, 0o777)
	case volume.HostPath != nil:
		return makeHostPath(volume.HostPath)
	}
	source := fileSource{volumes: v, pod: pod, record: r}
	files, err := source.files(ctx, volume)
	if err != nil {
		return err
	}
	return publishFiles(folder, files)
}

func makeHostPath(h *corev1.HostPathVolumeSource) error {
	switch ptr.Deref(h.Type, corev1.HostPathUnset) {
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(h.Path, 0o755)
	case corev1.HostPathFileOrCreate:
		file, err := os.OpenFile(h.Path, os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return file.Close()
	default:
		_, err := os.Stat(h.Path)
		return err
	}
}

func (v *volumes) writeEtc(ctx context.Context, pod *corev1.Pod, r *record) error {
	if err := v.writeResolver(ctx, pod); err != nil {
		return err
	}
	if pod.Spec.HostNetwork {
		return nil
	}
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, addr := range r.Addresses {
		name := hostname(pod)
		if pod.Spec.Subdomain != "" {
			name = fmt.Sprintf("%s.%s.%s.svc.%s\t%s", name, pod.Spec.Subdomain, pod.Namespace, clusterDomain, name)
		}
		fmt.Fprintf(&hosts, "%s\t%s\n", addr, name)
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&hosts, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return state.ReplaceFile(filepath.Join(v.worker.folder, "hosts"), []byte(hosts.String()), 0o644)
}

func (v *volumes) mounts(l *launch) ([]mount, error) {
	var mounts []mount
	for _, name := range []string{"hosts", "resolv.conf"} {
		file := filepath.Join(v.worker.folder, name)
		if _, err := os.Stat(file); err == nil {
			mounts = append(mounts, mount{Source: file, Target: "/etc/" + name})
		}
	}
	message := filepath.Join(l.folder, terminationFile)
	if err := os.WriteFile(message, nil, 0o666); err != nil {
		return nil, err
	}
	if l.spec.TerminationMessagePath != "" {
		mounts = append(mounts, mount{Source: message, Target: l.spec.TerminationMessagePath})
	}
	for i := range l.spec.VolumeMounts {
		m, err := v.mount(l, &l.spec.VolumeMounts[i])
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func (v *volumes) mount(l *launch, m *corev1.VolumeMount) (mount, error) {
	source, readOnly := v.path(m.Name), true
	for i := range l.pod.Spec.Volumes {
		if volume := &l.pod.Spec.Volumes[i]; volume.Name == m.Name {
			readOnly = volume.EmptyDir == nil && volume.HostPath == nil
			if volume.HostPath != nil {
				source = volume.HostPath.Path
			}
		}
	}
	sub := m.SubPath
	if m.SubPathExpr != "" {
		env, err := v.worker.environment(v.worker.ctx, l)
		if err != nil {
			return mount{}, err
		}
		sub = expand(m.SubPathExpr, env.lookup)
	}
	if sub != "" {
		if !filepath.IsLocal(sub) {
			return mount{}, fmt.Errorf("volume mount %s: subPath %q leads out of the volume", m.Name, sub)
		}
		source = filepath.Join(source, sub)
		if _, err := os.Stat(source); os.IsNotExist(err) && !readOnly {
			if err := os.MkdirAll(source, 0o777); err != nil {
				return mount{}, err
			}
		}
	}
	return mount{Source: source, Target: m.MountPath, ReadOnly: readOnly || m.ReadOnly}, nil
}

// refresh updates files from objects of the API from time to time. It returns when it is
// due next.
func (v *volumes) refresh(now time.Time) time.Time {
	w := v.worker
	if v.busy || !isRefreshable(w.pod) || w.record.Network == "" || !w.record.anyRunning() {
		return time.Time{}
	}
	if v.due.IsZero() {
		v.due = now.Add(refreshPeriod)
	}
	if now.Before(v.due) {
		return v.due
	}
	v.busy = true
	pod, r := w.pod, *w.record
	go func() {
		err := v.makeAll(w.ctx, pod, &r)
		w.post(func() {
			v.busy, v.due = false, w.agent.now().Add(refreshPeriod)
			if err != nil && w.ctx.Err() == nil && !w.gone {
				w.agent.Log.Warn("volumes cannot be refreshed", "pod", pod.Name, "error", err)
			}
		})
	}()
	return time.Time{}
}

func isRefreshable(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil {
			return true
		}
	}
	return false
}
