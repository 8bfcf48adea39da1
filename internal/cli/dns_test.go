package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
)

const (
	coreDNSImage = "registry.k8s.io/coredns/coredns:v1.13.1"
	ownDNSImage  = "registry.example.com/team/vicinity-dns:0.2.0"
	ownedFile    = ".:53 {\n    errors\n    # not changed\n    kubernetes cluster.local in-addr.arpa {\n        ttl 30\n    }\n    forward . /etc/resolv.conf\n}\n"
)

// namedWorld is a cluster with CoreDNS, vicinity-controller, and a tenant's Deployment with the controller's labels.
type namedWorld struct {
	*fakeCluster
	t *testing.T
	// answer changes an answer of a pod. image is that of the Deployment.
	answer func(image string, m *dns.Msg) error
	// writes counts writes to the cluster. Those after the first allowed ones fail.
	writes, allowed int
}

func newNamedWorld(t *testing.T, change ...func(*appsv1.Deployment, *corev1.ConfigMap)) *namedWorld {
	t.Helper()
	labels := map[string]string{"k8s-app": "kube-dns"}
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: labels}}
	server.Spec.Replicas, server.Spec.Selector = new(int32(2)), &metav1.LabelSelector{MatchLabels: labels}
	server.Spec.Template.Labels = labels
	server.Spec.Template.Spec = corev1.PodSpec{
		ServiceAccountName: "coredns",
		Volumes:            []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "coredns"}}}}},
		Containers: []corev1.Container{{
			Name: "coredns", Image: coreDNSImage, Args: []string{"-conf", "/etc/coredns/Corefile"}, VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns"}},
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}}},
			Ports:           []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", ContainerPort: 5353, Protocol: corev1.ProtocolTCP}},
		}},
	}
	server.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Data: map[string]string{"Corefile": ownedFile, "NodeHosts": "10.0.0.1 a"}}
	for _, do := range change {
		do(server, config)
	}
	controller := aController()
	controller.Labels["app.kubernetes.io/version"], controller.Spec.Template.Spec.Containers[0].Image = "0.2.0", "registry.example.com/team/vicinity-controller@sha256:00"
	node := aNode("node-a", "zone-a", "4", "")
	node.Spec.PodCIDRs = []string{"10.1.0.0/24"}
	service := aService("default", "kubernetes", nil)
	service.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"}
	tenants := controller.DeepCopy()
	tenants.Namespace, tenants.Spec.Template.Spec.Containers[0].Image = "a-tenant", "evil.example/vicinity-controller:1"
	objects := []runtime.Object{server, config, tenants, controller, node, service, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "vicinity", Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity"}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "vicinity-system", Name: "vicinity-webhook"},
		}}},
	}}
	for _, name := range []string{"coredns-1", "coredns-2"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: "node-a"}}
		pod.Status = corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.9"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		objects = append(objects, pod)
	}
	w := &namedWorld{t: t, allowed: 1000, answer: func(string, *dns.Msg) error { return nil }, fakeCluster: &fakeCluster{
		typed: fake.NewClientset(objects...), dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds()),
	}}
	w.typed.PrependReactor("*", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if slices.Contains([]string{"get", "list"}, action.GetVerb()) {
			return false, nil, nil
		}
		if w.writes++; w.writes > w.allowed {
			return true, nil, errors.New("killed")
		}
		return false, nil, nil
	})
	return w
}

func (w *namedWorld) ask(_ context.Context, _ *connection, _ *corev1.Pod, port int32, query *dns.Msg) (*dns.Msg, error) {
	if port != 5353 {
		w.t.Errorf("asked port %d", port)
	}
	m := new(dns.Msg).SetReply(query)
	record := ""
	switch q := query.Question[0]; {
	case strings.HasPrefix(q.Name, "no-such-service."):
		m.Rcode = dns.RcodeNameError
	case q.Qtype == dns.TypeA:
		record = q.Name + " 5 IN A 10.96.0.1"
	case q.Qtype == dns.TypeAAAA:
		record = q.Name + " 5 IN AAAA fd00::1"
	}
	if record != "" {
		rr, err := dns.NewRR(record)
		if err != nil {
			w.t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	server, _ := w.state()
	return m, w.answer(server.Spec.Template.Spec.Containers[0].Image, m)
}

func (w *namedWorld) dns(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	return runCommands(ctx, append([]string{"dns"}, args...), func(s command.Streams) []*cobra.Command {
		return []*cobra.Command{newDNSCommand(s, w.connect, w.ask)}
	})
}

// mustDNS runs a command that must succeed.
func (w *namedWorld) mustDNS(args ...string) string {
	w.t.Helper()
	code, stdout, stderr := w.dns(w.t.Context(), args...)
	if code != 0 {
		w.t.Fatalf("dns %s: exit code %d: %s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout + stderr
}

// state returns the objects of the DNS server, as far as users write them.
func (w *namedWorld) state() (*appsv1.Deployment, *corev1.ConfigMap) {
	w.t.Helper()
	server, err := w.typed.AppsV1().Deployments("kube-system").Get(context.Background(), "coredns", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	config, err := w.typed.CoreV1().ConfigMaps("kube-system").Get(context.Background(), "coredns", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	server.ManagedFields, config.ManagedFields, server.ResourceVersion, config.ResourceVersion = nil, nil, "", ""
	return server, config
}

// text returns the state byte for byte, with the number of ClusterRoles and ClusterRoleBindings.
func (w *namedWorld) text() string {
	w.t.Helper()
	server, config := w.state()
	roles, err := w.typed.RbacV1().ClusterRoles().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	bindings, err := w.typed.RbacV1().ClusterRoleBindings().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.MarshalIndent(map[string]any{"server": server, "config": config, "rights": len(roles.Items) + len(bindings.Items)}, "", " ")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *namedWorld) expect(want, when string) {
	w.t.Helper()
	if got := w.text(); got != want {
		w.t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
	}
}

// Enable changes what the documentation says, and only once. Disable restores each byte.
func TestDNSThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNamedWorld(t)
		before := w.text()
		golden.Compare(t, "testdata/dns/dry-run.txt", w.mustDNS("enable", "--dry-run"))
		w.expect(before, "after a dry run")
		w.mustDNS("enable")
		server, config := w.state()
		if got := server.Spec.Template.Spec.Containers[0].Image; got != ownDNSImage {
			t.Errorf("the image is %s", got)
		}
		if got, want := config.Data["Corefile"], strings.Replace(ownedFile, "    kubernetes", "    vicinity cluster.local\n    kubernetes", 1); got != want {
			t.Errorf("the Corefile is\n%s\nwant\n%s", got, want)
		}
		enabled := w.text()
		w.mustDNS("enable")
		w.expect(enabled, "after a second enable")
		w.mustDNS("disable", "--dry-run")
		w.expect(enabled, "after a dry run")
		w.mustDNS("disable")
		w.expect(before, "after disable")
		if got := w.mustDNS("disable"); !strings.Contains(got, "has nothing to give back") {
			t.Errorf("a second disable says %s", got)
		}
	})
}

// After a failure or an interruption enable restores each byte.
func TestDNSGoesBack(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  func(stop func()) func(image string, m *dns.Msg) error
		hangs   bool
		code    int
		message string
	}{
		{name: "wrong answers", code: 1, message: "it answers 10.9.9.9 10.96.0.1, and should answer 10.96.0.1", answer: func(func()) func(string, *dns.Msg) error {
			return func(image string, m *dns.Msg) error {
				if wrong, _ := dns.NewRR("x. 5 IN A 10.9.9.9"); image == ownDNSImage && m.Question[0].Qtype == dns.TypeA && len(m.Answer) > 0 {
					m.Answer = append(m.Answer, wrong)
				}
				return nil
			}
		}},
		{name: "names of other servers", code: 1, message: "it answers SERVFAIL, and should answer NOERROR", answer: func(func()) func(string, *dns.Msg) error {
			return func(image string, m *dns.Msg) error {
				if image == ownDNSImage && m.Question[0].Name == "." {
					m.Rcode = dns.RcodeServerFailure
				}
				return nil
			}
		}},
		{name: "no answer", code: 1, message: "connection refused", answer: func(func()) func(string, *dns.Msg) error {
			return func(image string, _ *dns.Msg) error {
				if image == ownDNSImage {
					return errors.New("connection refused")
				}
				return nil
			}
		}},
		{name: "pods do not start", code: 1, hangs: true, message: "Deployment kube-system/coredns: after 5m0s not all new pods are available; pod coredns-1: ImagePullBackOff no such image"},
		{name: "interrupted", code: command.ExitInterrupted, message: "vicinity: interrupted", answer: func(stop func()) func(string, *dns.Msg) error {
			return func(image string, _ *dns.Msg) error {
				if image == ownDNSImage {
					stop()
					return context.Canceled
				}
				return nil
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNamedWorld(t)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.answer != nil {
					w.answer = test.answer(stop)
				}
				if test.hangs {
					w.hang()
				}
				before := w.text()
				code, stdout, stderr := w.dns(ctx, "enable")
				if code != test.code || !strings.Contains(stderr, test.message) || !strings.Contains(stderr, "going back: ") || strings.Contains(stderr, "going back failed") {
					t.Errorf("exit code %d: %s%s", code, stdout, stderr)
				}
				w.expect(before, "after going back")
			})
		})
	}
}

// hang keeps pods of the new image from starting.
func (w *namedWorld) hang() {
	reads := w.typed.Tracker()
	resource := appsv1.SchemeGroupVersion.WithResource("deployments")
	w.typed.PrependReactor("get", "deployments", func(kubetesting.Action) (bool, runtime.Object, error) {
		found, err := reads.Get(resource, "kube-system", "coredns")
		if err != nil {
			return true, nil, err
		}
		server := found.(*appsv1.Deployment).DeepCopy()
		if server.Spec.Template.Spec.Containers[0].Image == ownDNSImage {
			server.Status.AvailableReplicas = 1
		}
		return true, server, nil
	})
	pod, err := w.typed.CoreV1().Pods("kube-system").Get(context.Background(), "coredns-1", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "coredns", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "kube-system"); err != nil {
		w.t.Fatal(err)
	}
}

// A command that is killed before any of its writes can be continued, in both directions.
func TestDNSContinuesAfterKill(t *testing.T) {
	const writes = 5 // of each command
	for killed := range writes {
		synctest.Test(t, func(t *testing.T) {
			for _, next := range []string{"enable", "disable"} {
				w := newNamedWorld(t)
				before := w.text()
				w.mustDNS("enable")
				enabled := w.text()
				if w.writes != writes {
					t.Fatalf("enable makes %d writes", w.writes)
				}

				w = newNamedWorld(t)
				w.allowed = killed
				if code, _, _ := w.dns(t.Context(), "enable"); code == 0 {
					t.Fatal("it was not killed")
				}
				w.allowed = 1000
				w.mustDNS(next)
				w.expect(map[string]string{"enable": enabled, "disable": before}[next], "enable, killed, then "+next)

				w = newNamedWorld(t)
				w.mustDNS("enable")
				w.allowed = w.writes + killed
				if code, _, _ := w.dns(t.Context(), "disable"); code == 0 {
					t.Fatal("it was not killed")
				}
				w.allowed = 1000
				w.mustDNS(next)
				w.expect(map[string]string{"enable": enabled, "disable": before}[next], "disable, killed, then "+next)
			}
		})
	}
}

// Changes of others since enable stay.
func TestDNSKeepsLaterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNamedWorld(t)
		w.mustDNS("enable")
		server, config := w.state()
		server.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:v1.14.0"
		config.Data["Corefile"] = strings.Replace(config.Data["Corefile"], "errors\n", "errors\n    log\n", 1)
		tracker := w.typed.Tracker()
		err := cmp.Or(tracker.Update(appsv1.SchemeGroupVersion.WithResource("deployments"), server, "kube-system"), tracker.Update(corev1.SchemeGroupVersion.WithResource("configmaps"), config, "kube-system"))
		if err != nil {
			t.Fatal(err)
		}
		output := w.mustDNS("disable")
		server, config = w.state()
		if got := config.Data["Corefile"]; got != strings.Replace(ownedFile, "errors\n", "errors\n    log\n", 1) || !strings.Contains(output, "has changed since") {
			t.Errorf("the Corefile is\n%s\n%s", got, output)
		}
		if got := server.Spec.Template.Spec.Containers[0].Image; got != "registry.k8s.io/coredns/coredns:v1.14.0" || !strings.Contains(output, "stays") {
			t.Errorf("the image is %s\n%s", got, output)
		}
		if w.mustDNS("disable"); server.Annotations[v1alpha1.AnnotationDNSBefore] != "" {
			t.Error("the record is left")
		}
	})
}

// An installer can write while enable and disable run. Enable records its image, and disable keeps it.
func TestDNSDuringUpgrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNamedWorld(t, func(d *appsv1.Deployment, _ *corev1.ConfigMap) { d.ResourceVersion = "1" })
		deployments, upgrade := appsv1.SchemeGroupVersion.WithResource("deployments"), ""
		w.typed.PrependReactor("patch", "deployments", func(action kubetesting.Action) (bool, runtime.Object, error) {
			found, err := w.typed.Tracker().Get(deployments, "kube-system", "coredns")
			if err != nil {
				return true, nil, err
			}
			server := found.(*appsv1.Deployment).DeepCopy()
			if upgrade != "" {
				server.Spec.Template.Spec.Containers[0].Image, server.ResourceVersion, upgrade = upgrade, upgrade, ""
				if err := w.typed.Tracker().Update(deployments, server, "kube-system"); err != nil {
					return true, nil, err
				}
			}
			var patch metav1.PartialObjectMetadata
			err = json.Unmarshal(action.(kubetesting.PatchAction).GetPatch(), &patch)
			if err == nil && patch.ResourceVersion != "" && patch.ResourceVersion != server.ResourceVersion {
				err = apierrors.NewConflict(deployments.GroupResource(), "coredns", errors.New("it has changed"))
			}
			return err != nil, nil, err
		})
		for _, test := range []struct{ verb, upgrade string }{{"enable", "coredns:v1.14.0"}, {"disable", ""}, {"enable", ""}, {"disable", "coredns:v1.15.0"}} {
			upgrade = test.upgrade
			w.mustDNS(test.verb)
			server, _ := w.state()
			want := map[string]string{"enable": ownDNSImage, "disable": cmp.Or(test.upgrade, "coredns:v1.14.0")}[test.verb]
			if got := server.Spec.Template.Spec.Containers[0].Image; got != want {
				t.Errorf("after %v the image is %s, want %s", test, got, want)
			}
		}
	})
}

// Each DNS server of a cluster has its own rights. Disable deletes them also after an installer has replaced all records.
func TestDNSRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNamedWorld(t)
		before := w.text()
		server, config := w.state()
		inEdge := []metav1.Object{server.DeepCopy(), config.DeepCopy()}
		pods, err := w.typed.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			inEdge = append(inEdge, &pods.Items[i])
		}
		for _, object := range inEdge {
			object.SetNamespace("edge")
			if err := w.typed.Tracker().Add(object.(runtime.Object)); err != nil {
				t.Fatal(err)
			}
		}
		w.mustDNS("enable")
		enabled := w.text()
		w.mustDNS("enable", "-n", "edge")
		w.mustDNS("disable", "-n", "edge")
		w.expect(enabled, "after enable and disable of another server")

		tracker := w.typed.Tracker()
		err = cmp.Or(tracker.Update(appsv1.SchemeGroupVersion.WithResource("deployments"), server, "kube-system"), tracker.Update(corev1.SchemeGroupVersion.WithResource("configmaps"), config, "kube-system"))
		if err != nil {
			t.Fatal(err)
		}
		w.mustDNS("disable")
		w.expect(before, "after an installer and disable")
	})
}

// Enable refuses before the first change, and says what to do.
func TestDNSRefuses(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*appsv1.Deployment, *corev1.ConfigMap)
		prepare func(*namedWorld)
		args    []string
		code    int
		message string
	}{
		{name: "an add-on of EKS", message: "belongs to an add-on of EKS (field manager eks), which undoes changes: run vicinity-dns beside it", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "eks", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}")}}
		}},
		{name: "an add-on manager", message: "belongs to the add-on manager of its cloud", change: func(_ *appsv1.Deployment, c *corev1.ConfigMap) {
			c.Labels = map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile"}
		}},
		{name: "a plugin", message: "the Corefile in ConfigMap kube-system/coredns has plugins that vicinity-dns lacks: route53; remove their lines", change: func(_ *appsv1.Deployment, c *corev1.ConfigMap) {
			c.Data["Corefile"] = strings.Replace(ownedFile, "errors\n", "errors\n    route53 example.com.:Z\n", 1)
		}},
		{name: "no Corefile", message: "the Corefile in ConfigMap kube-system/coredns: it has no plugin kubernetes", change: func(_ *appsv1.Deployment, c *corev1.ConfigMap) { c.Data = nil }},
		{name: "a line by hand", message: "has the plugin vicinity, which \"vicinity dns enable\" did not add", change: func(_ *appsv1.Deployment, c *corev1.ConfigMap) {
			c.Data["Corefile"] = strings.Replace(ownedFile, "errors\n", "errors\n    vicinity cluster.local\n", 1)
		}},
		{name: "a command", message: "container coredns of Deployment kube-system/coredns has the command [\"/coredns\"]", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) {
			d.Spec.Template.Spec.Containers[0].Command = []string{"/coredns"}
		}},
		{name: "no capability", message: "container coredns of Deployment kube-system/coredns drops the capability NET_BIND_SERVICE", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) {
			d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"all"}}}
		}},
		{name: "a capability that is added and dropped", message: "drops the capability NET_BIND_SERVICE", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) {
			d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{
				Add: []corev1.Capability{"ALL"}, Drop: []corev1.Capability{"cap_net_bind_service"},
			}}
		}},
		{name: "no ConfigMap", message: "has no container with a ConfigMap", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) { d.Spec.Template.Spec.Volumes = nil }},
		{name: "a broken record", message: "annotation vicinity.dev/dns-before of Deployment kube-system/coredns is \"x\": correct it", change: func(d *appsv1.Deployment, _ *corev1.ConfigMap) {
			d.Annotations = map[string]string{v1alpha1.AnnotationDNSBefore: "x"}
		}},
		{name: "another Deployment", args: []string{"--deployment", "dns"}, message: "there is no Deployment kube-system/dns: name that of CoreDNS by -n and --deployment"},
		{name: "no time", args: []string{"--timeout", "0s"}, code: command.ExitUsage, message: "--timeout 0s is not allowed"},
		{name: "no image", message: "give --image", prepare: func(w *namedWorld) {
			if err := w.typed.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("deployments"), "vicinity-system", "vicinity-controller"); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "clients in no range", message: "vicinity-dns would not find 1 pod on their nodes (shop/lost with 172.16.0.1 on node node-a)", prepare: func(w *namedWorld) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lost"}, Spec: corev1.PodSpec{NodeName: "node-a"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "172.16.0.1"}}}}
			if err := w.typed.Tracker().Add(pod); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "a server that fails before", message: "nothing was changed, because the DNS server fails before: asking pod kube-system/coredns-1", prepare: func(w *namedWorld) {
			w.answer = func(string, *dns.Msg) error { return errors.New("refused") }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes []func(*appsv1.Deployment, *corev1.ConfigMap)
				if test.change != nil {
					changes = append(changes, test.change)
				}
				w := newNamedWorld(t, changes...)
				if test.prepare != nil {
					test.prepare(w)
				}
				code, stdout, stderr := w.dns(t.Context(), append([]string{"enable"}, test.args...)...)
				if want := cmp.Or(test.code, 1); code != want || !strings.Contains(stderr, test.message) {
					t.Errorf("exit code %d, want %d, %q:\n%s%s", code, want, test.message, stdout, stderr)
				}
				if w.writes > 0 {
					t.Errorf("it made %d writes", w.writes)
				}
			})
		})
	}
}
