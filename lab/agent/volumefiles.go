package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

type volumeFile struct {
	data []byte
	mode fs.FileMode
}

type fileSource struct {
	volumes *volumes
	pod     *corev1.Pod
	record  *record
}

func (s fileSource) files(ctx context.Context, v *corev1.Volume) (map[string]volumeFile, error) {
	files := map[string]volumeFile{}
	switch {
	case v.ConfigMap != nil:
		return files, s.add(ctx, files, v.ConfigMap.DefaultMode, &corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}})
	case v.Secret != nil:
		return files, s.add(ctx, files, v.Secret.DefaultMode, &corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}})
	case v.DownwardAPI != nil:
		return files, s.add(ctx, files, v.DownwardAPI.DefaultMode, &corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{
			Items: v.DownwardAPI.Items,
		}})
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err := s.add(ctx, files, v.Projected.DefaultMode, &v.Projected.Sources[i]); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
	return nil, errors.New("a lab has volumes of these kinds: emptyDir, hostPath, configMap, secret, downwardAPI, projected")
}

func (s fileSource) add(ctx context.Context, files map[string]volumeFile, mode *int32, p *corev1.VolumeProjection) error {
	o := s.volumes.worker.agent.objects
	switch {
	case p.ConfigMap != nil:
		object, err := o.configMap(ctx, s.pod.Namespace, p.ConfigMap.Name)
		if err != nil {
			return absent(err, p.ConfigMap.Optional)
		}
		data := maps.Clone(object.BinaryData)
		if data == nil {
			data = map[string][]byte{}
		}
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		return keys{p.ConfigMap.Items, mode, p.ConfigMap.Optional}.pick(files, data)
	case p.Secret != nil:
		object, err := o.secret(ctx, s.pod.Namespace, p.Secret.Name)
		if err != nil {
			return absent(err, p.Secret.Optional)
		}
		return keys{p.Secret.Items, mode, p.Secret.Optional}.pick(files, object.Data)
	case p.ServiceAccountToken != nil:
		token, err := s.token(ctx, p.ServiceAccountToken)
		if err != nil {
			return err
		}
		files[p.ServiceAccountToken.Path] = volumeFile{[]byte(token), fileMode(mode)}
		return nil
	case p.DownwardAPI != nil:
		return s.downward(files, mode, p.DownwardAPI.Items)
	}
	return errors.New("a projected volume of a lab has sources of these kinds: configMap, secret, downwardAPI, serviceAccountToken")
}

func (s fileSource) downward(files map[string]volumeFile, mode *int32, items []corev1.DownwardAPIVolumeFile) error {
	for i := range items {
		item := &items[i]
		var value string
		var err error
		if item.FieldRef != nil {
			value, err = podField(s.pod, s.record, item.FieldRef.FieldPath)
		} else if item.ResourceFieldRef != nil {
			value, err = s.volumes.worker.resourceField(s.pod, &s.pod.Spec.Containers[0], item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		own := mode
		if item.Mode != nil {
			own = item.Mode
		}
		files[item.Path] = volumeFile{[]byte(value), fileMode(own)}
	}
	return nil
}

// token returns a token for the pod, which is renewed after 80 % of its lifetime.
func (s fileSource) token(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	worker := s.volumes.worker
	now := worker.agent.now()
	key := fmt.Sprintf("%s/%d", p.Audience, ptr.Deref(p.ExpirationSeconds, 0))
	if held, ok := s.volumes.tokens[key]; ok && now.Before(held.replace) {
		return held.token, nil
	}
	status, err := worker.agent.objects.token(ctx, s.pod, p)
	if err != nil {
		return "", err
	}
	lasts := status.ExpirationTimestamp.Sub(now)
	s.volumes.tokens[key] = heldToken{status.Token, now.Add(lasts / 5 * 4)}
	return status.Token, nil
}

func absent(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return nil
	}
	return err
}

// keys select the keys of an object that become files.
type keys struct {
	items    []corev1.KeyToPath
	mode     *int32
	optional *bool
}

// pick adds the selected keys, or all if none are named.
func (k keys) pick(files map[string]volumeFile, data map[string][]byte) error {
	if len(k.items) == 0 {
		for key, value := range data {
			files[key] = volumeFile{value, fileMode(k.mode)}
		}
		return nil
	}
	for _, item := range k.items {
		value, ok := data[item.Key]
		if !ok {
			if ptr.Deref(k.optional, false) {
				continue
			}
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		mode := k.mode
		if item.Mode != nil {
			mode = item.Mode
		}
		files[item.Path] = volumeFile{value, fileMode(mode)}
	}
	return nil
}

func fileMode(mode *int32) fs.FileMode {
	return fs.FileMode(ptr.Deref(mode, 0o644))
}

// Changing many files is one step: files are links into a folder that is itself a link,
// which is replaced.
const (
	dataLink   = "..data"
	dataPrefix = "..files-"
)

// publishFiles makes a folder hold exactly these files, in one step for readers. Nothing is
// written if nothing has changed.
func publishFiles(folder string, files map[string]volumeFile) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	link := filepath.Join(folder, dataLink)
	before, err := os.Readlink(link)
	if err == nil && hasFiles(link, files) {
		return nil
	}
	number, _ := strconv.Atoi(strings.TrimPrefix(before, dataPrefix))
	after := dataPrefix + strconv.Itoa(number+1)
	if err := writeFiles(filepath.Join(folder, after), files); err != nil {
		return err
	}
	tops := map[string]bool{}
	for path := range files {
		top, _, _ := strings.Cut(path, "/")
		tops[top] = true
	}
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(folder, top))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := os.Symlink(after, link+".next"); err != nil {
		return err
	}
	if err := os.Rename(link+".next", link); err != nil {
		return err
	}
	return removeStale(folder, before, tops)
}

func writeFiles(folder string, files map[string]volumeFile) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for path, file := range files {
		if !filepath.IsLocal(path) {
			return fmt.Errorf("path %q leads out of the volume", path)
		}
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.data, file.mode); err != nil {
			return err
		}
		// Regardless of this process' umask.
		if err := os.Chmod(path, file.mode); err != nil {
			return err
		}
	}
	return os.MkdirAll(folder, 0o755)
}

// removeStale removes the data from before a change, and links to files that are gone.
func removeStale(folder, before string, tops map[string]bool) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !tops[name] {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	if before == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(folder, before))
}

// hasFiles reports whether a folder holds exactly these files, with their modes.
func hasFiles(folder string, files map[string]volumeFile) bool {
	count := 0
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		count++
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if want, ok := files[name]; err == nil && (!ok || info.Mode() != want.mode || !bytes.Equal(want.data, data)) {
			err = fs.ErrNotExist
		}
		return err
	})
	return err == nil && count == len(files)
}
