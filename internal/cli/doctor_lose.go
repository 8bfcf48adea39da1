package cli

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/internal/cli/manifest"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/kit/command"
)

// lossFlags are the flags of a rehearsal.
type lossFlags struct {
	asked       bool
	zone        string
	maxOverload int32
	files       []string
}

func (f *lossFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.zone, "lose", "", "rehearse the loss of a `ZONE`, and change nothing")
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "with --lose, read a `FILE` or directory of manifests, or - for standard input; can be repeated")
	f.maxOverload = 50
	flags.Func("max-overload", "with --lose, the most additional traffic of an endpoint in `PERCENT` (default 50)", overloadFlag(&f.maxOverload))
}

func (f *lossFlags) check(flags *pflag.FlagSet) error {
	for _, name := range []string{"filename", "max-overload"} {
		if flags.Changed(name) && !f.asked {
			return command.UsageErrorf("--%s needs --lose ZONE", name)
		}
	}
	if f.asked && flags.Changed("namespace") {
		return command.UsageErrorf("--lose reads all namespaces; leave --namespace out")
	}
	return nil
}

// lossReader reads a cluster or, if they are not nil, manifests.
type lossReader struct {
	sourceReader
	manifests *manifest.Objects
	in        doctor.Loss
}

// readKind reads the objects of one kind. It notes which may not be read or are not given.
func readKind[T any, L runtime.Object](ctx context.Context, l *lossReader, source doctor.Source, from lister[L]) (list []*T) {
	if l.manifests == nil {
		return readSource[T](ctx, &l.sourceReader, source, from)
	}
	if list = manifest.List[T](l.manifests); len(list) == 0 {
		l.unread[source] = "the manifests have no " + string(source)
	}
	return list
}

// rehearse reads a cluster or, if they are not nil, manifests, and judges what breaks.
func (f *lossFlags) rehearse(ctx context.Context, r *clusterReader, manifests *manifest.Objects) (*doctor.Report, error) {
	const all = metav1.NamespaceAll
	l := &lossReader{sourceReader: sourceReader{clusterReader: r, unread: map[doctor.Source]string{}}, manifests: manifests}
	l.in = doctor.Loss{Zone: f.zone, Bound: int(f.maxOverload), Unread: l.unread}
	core, webhooks := l.typed.CoreV1(), l.typed.AdmissionregistrationV1()
	l.in.Nodes = readKind[corev1.Node](ctx, l, "nodes", core.Nodes())
	l.in.Pods = readKind[corev1.Pod](ctx, l, "pods", core.Pods(all))
	for _, needed := range []doctor.Source{"nodes", "pods"} {
		if why := l.unread[needed]; why != "" {
			return nil, fmt.Errorf("%s, so nothing can be rehearsed; see %s", why, doctorPermissions)
		}
	}
	l.in.Services = readKind[corev1.Service](ctx, l, "services", core.Services(all))
	l.in.Slices = readKind[discoveryv1.EndpointSlice](ctx, l, "endpointslices", l.typed.DiscoveryV1().EndpointSlices(all))
	l.in.Volumes = readKind[corev1.PersistentVolume](ctx, l, "persistentvolumes", core.PersistentVolumes())
	l.in.Claims = readKind[corev1.PersistentVolumeClaim](ctx, l, "persistentvolumeclaims", core.PersistentVolumeClaims(all))
	l.in.PDBs = readKind[policyv1.PodDisruptionBudget](ctx, l, "poddisruptionbudgets", l.typed.PolicyV1().PodDisruptionBudgets(all))
	l.in.Autoscalers = readKind[autoscalingv2.HorizontalPodAutoscaler](ctx, l, "horizontalpodautoscalers", l.typed.AutoscalingV2().HorizontalPodAutoscalers(all))
	mutating := readKind[admissionregistrationv1.MutatingWebhookConfiguration](ctx, l, "mutatingwebhookconfigurations", webhooks.MutatingWebhookConfigurations())
	validating := readKind[admissionregistrationv1.ValidatingWebhookConfiguration](ctx, l, "validatingwebhookconfigurations", webhooks.ValidatingWebhookConfigurations())
	l.in.Webhooks = inspect.WebhooksOf(mutating, validating)
	if l.err != nil {
		return nil, l.err
	}
	return doctor.Rehearse(&l.in)
}

func (f *lossFlags) rehearseManifests(ctx context.Context, s command.Streams) (*doctor.Report, error) {
	objects := manifest.NewObjects(map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion:                  {&corev1.Node{}, &corev1.Pod{}, &corev1.Service{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}},
		discoveryv1.SchemeGroupVersion:             {&discoveryv1.EndpointSlice{}},
		policyv1.SchemeGroupVersion:                {&policyv1.PodDisruptionBudget{}},
		autoscalingv2.SchemeGroupVersion:           {&autoscalingv2.HorizontalPodAutoscaler{}},
		admissionregistrationv1.SchemeGroupVersion: {&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}},
	})
	if err := manifest.ReadFiles(ctx, s.In, f.files, objects.Read); err != nil {
		return nil, err
	}
	for _, note := range objects.Notes() {
		fmt.Fprintln(printable{s.Err}, note)
	}
	noCluster := &clusterReader{connection: &connection{typed: kubernetes.New(nil)}}
	return f.rehearse(ctx, noCluster, objects)
}
