package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// volumeTest is a pod with volumes, and the API that they come from.
type volumeTest struct {
	t      *testing.T
	client *fake.Clientset
	pod    *corev1.Pod
	volumes
	now time.Time
}

func newVolumeTest(t *testing.T, volumes ...corev1.Volume) *volumeTest {
	v := &volumeTest{t: t, client: fake.NewClientset(), pod: testPod("Always", "a"), now: at(0)}
	v.pod.Spec.Volumes = volumes
	v.worker = &worker{
		folder: t.TempDir(), pod: v.pod,
		agent: &agent{client: v.client, objects: newObjects(v.client), now: func() time.Time { return v.now }},
	}
	return v
}

// holds checks what a file of a volume holds after all were brought up to date.
func (v *volumeTest) holds(volume, file, want string) {
	v.t.Helper()
	if err := v.makeAll(context.Background(), v.pod, &record{}); err != nil {
		v.t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(v.path(volume), file))
	if (want == "") != os.IsNotExist(err) || string(got) != want {
		v.t.Errorf("%s/%s is %q, %v; want %q", volume, file, got, err, want)
	}
}

// A token is replaced after 80 % of its lifetime.
func TestTokenIsRotated(t *testing.T) {
	const lasts = 600
	seconds := int64(lasts)
	v := newVolumeTest(t, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}}},
	}}})
	made := 0
	v.client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		made++
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: fmt.Sprintf("token %d", made), ExpirationTimestamp: metav1.NewTime(v.now.Add(lasts * time.Second)),
		}}, nil
	})
	for _, moment := range []struct {
		at   float64
		want string
	}{{0, "token 1"}, {479, "token 1"}, {480, "token 2"}, {959, "token 2"}, {961, "token 3"}} {
		v.now = at(moment.at)
		v.holds("v", "token", moment.want)
	}
}

func TestVolumesFollowTheirObjects(t *testing.T) {
	yes := true
	v := newVolumeTest(t,
		corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: &yes}}},
	)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}, Data: map[string]string{"key": "one", "other": "stays"}}
	if _, err := v.client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v.holds("c", "key", "one")
	v.holds("s", "word", "")
	object.Data = map[string]string{"key": "two", "more": "is new"}
	if _, err := v.client.CoreV1().ConfigMaps("default").Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"word": []byte("hush")}}
	if _, err := v.client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v.holds("c", "key", "two")
	v.holds("c", "more", "is new")
	v.holds("c", "other", "")
	v.holds("s", "word", "hush")
}

func TestNameserversAreTheDNSServices(t *testing.T) {
	v := newVolumeTest(t)
	o := v.worker.agent.objects
	if got, err := o.nameservers(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("without the Service: %q, %v", got, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: "kube-system"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10", "fd00::a"}}}
	if _, err := v.client.CoreV1().Services("kube-system").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := o.nameservers(t.Context()); err != nil || len(got) != 2 || got[0] != "10.96.0.10" {
		t.Errorf("with it: %q, %v", got, err)
	}
}

func TestVolumesFollowTheirModes(t *testing.T) {
	source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}
	v := newVolumeTest(t, corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: source}})
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}, Data: map[string]string{"key": "one"}}
	if _, err := v.client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []int32{0o644, 0o400, 0o666} {
		source.DefaultMode = &mode
		v.holds("c", "key", "one")
		info, err := os.Stat(filepath.Join(v.path("c"), "key"))
		if err != nil || info.Mode() != os.FileMode(mode) {
			t.Errorf("mode is %v, %v; want %v", info.Mode(), err, os.FileMode(mode))
		}
	}
	before, err := os.Readlink(filepath.Join(v.path("c"), dataLink))
	if err != nil {
		t.Fatal(err)
	}
	v.holds("c", "key", "one")
	if after, err := os.Readlink(filepath.Join(v.path("c"), dataLink)); err != nil || after != before {
		t.Errorf("what is the same was written again: %s, then %s, %v", before, after, err)
	}
}
