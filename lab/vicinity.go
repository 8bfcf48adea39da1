package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

const controllerImage = "vicinity-controller"

// Names in the chart of the parts that a lab waits for.
const (
	controllerDeployment = release.Name + "-controller"
	controllerSelector   = "app.kubernetes.io/instance=" + release.Name + ",app.kubernetes.io/component=controller"
	proxyDaemonSet       = release.Name + "-proxy"
	proxySelector        = "app.kubernetes.io/instance=" + release.Name + ",app.kubernetes.io/component=proxy"
)

const vicinityTime = 2 * time.Minute

// WhyNoVicinity returns why Vicinity cannot be installed in a lab. It is empty if Vicinity can.
func WhyNoVicinity(s shape.Shape, options Options) (string, error) {
	options, err := options.complete()
	if err != nil {
		return "", err
	}
	if s.ControlPlaneOnly {
		return "pods do not run in a lab that is only a control plane", nil
	}
	needed := []string{controllerImage}
	switch {
	case s.Proxy.Vicinity():
		needed = append(needed, proxyImage)
	case !s.Proxy.KubeProxy():
		return "without a proxy on the nodes its pods cannot reach the API server by its Service", nil
	}
	for _, name := range needed {
		if program := options.programPath(name); !isProgram(program) {
			return fmt.Sprintf("there is no program %s; make build builds it", program), nil
		}
	}
	return "", nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// CheckChartValues validates key=value assignments with the chart's schema.
func CheckChartValues(set []string) error {
	chart, err := release.Own()
	if err != nil {
		return err
	}
	return checkValues(chart, set)
}

// CheckRelease validates values with the chart in a folder that InstallRelease takes.
func CheckRelease(folder string, set []string) error {
	bundle, err := release.OpenBundle(folder)
	if err != nil {
		return err
	}
	return checkValues(bundle.Chart, set)
}

func checkValues(chart release.Chart, set []string) error {
	values := release.Values{}
	if err := values.Set(set...); err != nil {
		return err
	}
	return chart.Validate(values)
}

func (o Options) programPath(name string) string {
	return filepath.Join(filepath.Dir(o.Program), name)
}

// InstallVicinity installs the chart, or upgrades it to exactly the given key=value
// assignments. It returns when proxies and controller are available and the webhooks
// answer.
func (c *Cluster) InstallVicinity(ctx context.Context, set ...string) error {
	chart, err := release.Own()
	if err != nil {
		return err
	}
	return c.install(ctx, func() (release.Chart, release.Values, error) {
		values, err := c.ownValues()
		return chart, values, err
	}, set)
}

// InstallRelease does the same with the chart and images of a folder of "make package" or "make
// release": containers have only the files of the images.
func (c *Cluster) InstallRelease(ctx context.Context, folder string, set ...string) error {
	return c.install(ctx, func() (release.Chart, release.Values, error) {
		bundle, err := release.OpenBundle(folder)
		if err != nil {
			return release.Chart{}, nil, err
		}
		for _, archive := range bundle.Images {
			if _, err := (image.Store{Folder: c.dir.Images()}).Load(ctx, archive); err != nil {
				return release.Chart{}, nil, err
			}
		}
		values, err := c.chartValues()
		return bundle.Chart, values, err
	}, set)
}

// ChangeVicinity adds key=value assignments to the values with which Vicinity was installed, and
// returns when it works.
func (c *Cluster) ChangeVicinity(ctx context.Context, set ...string) error {
	return c.revise(ctx, func(ctx context.Context, config *rest.Config) error { return release.Change(ctx, config, set...) })
}

// RollbackVicinity restores the previous revision, as "helm rollback" does, and returns when it works.
// CRDs stay as they are.
func (c *Cluster) RollbackVicinity(ctx context.Context) error {
	return c.revise(ctx, func(_ context.Context, config *rest.Config) error { return release.Rollback(config) })
}

// revise changes the release, and waits until it works.
func (c *Cluster) revise(ctx context.Context, do func(context.Context, *rest.Config) error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	client, err := c.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, vicinityTime)
	defer cancel()
	if err := do(ctx, client.Config()); err != nil {
		return err
	}
	return client.waitVicinity(ctx)
}

func (c *Cluster) install(ctx context.Context, prepare func() (release.Chart, release.Values, error), set []string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	why, err := WhyNoVicinity(c.current().Shape, c.options)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("installing Vicinity: %s", why)
	}
	chart, values, err := prepare()
	if err != nil {
		return err
	}
	if err := errors.Join(values.Set(set...), chart.Validate(values)); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, vicinityTime)
	defer cancel()
	begun := time.Now()
	if err := client.ApplyCRDsOf(ctx, chart.CRDs()); err != nil {
		return err
	}
	if err := release.Apply(ctx, client.Config(), chart, values); err != nil {
		return err
	}
	if err := client.waitVicinity(ctx); err != nil {
		return err
	}
	c.logf("Vicinity %s works after %.1f s", chart.Version(), time.Since(begun).Seconds())
	return nil
}

// VicinityInstalled reports whether Vicinity's controller exists.
func (c *Cluster) VicinityInstalled(ctx context.Context) (bool, error) {
	client, err := c.Client()
	if err != nil {
		return false, err
	}
	found, err := client.controllers(ctx)
	return len(found) > 0, err
}

// RemoveVicinity uninstalls Vicinity. Its CRDs stay.
func (c *Cluster) RemoveVicinity(ctx context.Context) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	client, err := c.Client()
	if err != nil {
		return err
	}
	return release.Remove(client.Config())
}

// chartValues returns the values that a lab needs with any images.
func (c *Cluster) chartValues() (release.Values, error) {
	proxy, err := c.proxyValues()
	if err != nil {
		return nil, err
	}
	// Two replicas show everything that three do.
	values := release.Values{"proxy": proxy, "replicas": 2}
	if c.current().Shape.FakeNodes > 0 {
		values["affinity"] = nodeAffinity(c.current().Shape.Nodes())
	}
	return values, nil
}

// ownValues returns the chartValues with the programs beside this one.
func (c *Cluster) ownValues() (release.Values, error) {
	values, err := c.chartValues()
	if err != nil {
		return nil, err
	}
	return values, c.programValues(values)
}

// programValues adds the images and annotations of the programs beside this one.
func (c *Cluster) programValues(values release.Values) error {
	controller, err := programAnnotations(c.options.programPath(controllerImage))
	if err != nil {
		return err
	}
	values["image"], values["podAnnotations"] = map[string]any{"repository": controllerImage}, controller
	if !c.current().Shape.Proxy.Vicinity() {
		return nil
	}
	annotations, err := programAnnotations(c.options.programPath(proxyImage))
	if err != nil {
		return err
	}
	proxy, ok := values["proxy"].(map[string]any)
	if !ok {
		return fmt.Errorf("the values of the proxy are a %T", values["proxy"])
	}
	proxy["image"], proxy["podAnnotations"] = map[string]any{"repository": proxyImage}, annotations
	// The chart is of this tree. An older release may lack some values.
	proxy["accounting"] = map[string]any{"bytes": true, "interval": "2s"}
	return nil
}

// programAnnotations returns annotations that change with each build of a program. They make pods
// restart with a new build, since an image has no version in the lab.
func programAnnotations(program string) (map[string]any, error) {
	version, err := programVersion(program)
	if err != nil {
		return nil, err
	}
	return map[string]any{"lab.vicinity.dev/program": version}, nil
}

// programVersion returns a text that differs between builds of a program.
func programVersion(program string) (string, error) {
	info, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano)), nil
}

func (c *Cluster) proxyValues() (map[string]any, error) {
	s := c.current().Shape
	if !s.Proxy.Vicinity() {
		return map[string]any{}, nil
	}
	var cidrs []any
	for _, cidr := range s.PodCIDRs() {
		cidrs = append(cidrs, cidr.String())
	}
	values := map[string]any{
		"enabled": true, "clusterCIDRs": cidrs,
		"accounting": map[string]any{"bytes": true},
	}
	if !s.Proxy.KubeProxy() {
		plane, err := c.controlPlane()
		if err != nil {
			return nil, err
		}
		values["allServices"], values["apiServer"] = true, plane.Inside().String()
		// All nodes share the machine's limit of connection tracking.
		values["conntrack"] = map[string]any{"maxPerCore": 0}
	}
	if s.FakeNodes > 0 {
		values["affinity"] = nodeAffinity(s.Nodes())
	}
	return values, nil
}

// nodeAffinity requires one of the nodes.
func nodeAffinity(nodes []shape.Node) map[string]any {
	var names []any
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	expression := map[string]any{"key": corev1.LabelHostname, "operator": "In", "values": names}
	return map[string]any{"nodeAffinity": map[string]any{
		"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{expression}}},
		},
	}}
}

// waitVicinity waits until enabled components are available and the webhooks answer.
func (c *Client) waitVicinity(ctx context.Context) error {
	// The proxies first: without kube-proxy the controller reaches the API server through them.
	proxies, err := c.AppsV1().DaemonSets(release.Namespace).List(ctx, metav1.ListOptions{LabelSelector: proxySelector})
	if err != nil {
		return fmt.Errorf("looking for DaemonSet %s: %w", proxyDaemonSet, err)
	}
	if len(proxies.Items) > 0 {
		if err := c.WaitDaemonSet(ctx, release.Namespace, proxyDaemonSet); err != nil {
			return errors.Join(err, c.explainPods(ctx, release.Namespace, proxySelector))
		}
	}
	controllers, err := c.controllers(ctx)
	if err != nil || len(controllers) == 0 {
		return err
	}
	if err := c.waitController(ctx); err != nil {
		return errors.Join(err, c.explainPods(ctx, release.Namespace, controllerSelector))
	}
	return nil
}

func (c *Client) waitController(ctx context.Context) error {
	if err := c.WaitDeployment(ctx, release.Namespace, controllerDeployment); err != nil {
		return err
	}
	webhooks, err := c.webhooks(ctx, release.Name)
	if err != nil {
		return err
	}
	for _, name := range webhooks {
		if err := c.waitWebhook(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// controllers returns the controller's Deployment, or none if it is not installed.
func (c *Client) controllers(ctx context.Context) ([]appsv1.Deployment, error) {
	found, err := c.AppsV1().Deployments(release.Namespace).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
	if err != nil {
		return nil, fmt.Errorf("looking for Deployment %s: %w", controllerDeployment, err)
	}
	return found.Items, nil
}

const explainTime = 5 * time.Second

// explainPods returns an error that says why the pods of a selector do not work. It works even if
// the context has ended.
func (c *Client) explainPods(ctx context.Context, namespace, selector string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("listing pods of %s: %w", namespace, err)
	}
	var all []error
	for i := range pods.Items {
		all = append(all, c.explainPod(ctx, &pods.Items[i]))
	}
	return errors.Join(all...)
}

// explainPod says what a pod waits for, with the end of its log.
func (c *Client) explainPod(ctx context.Context, pod *corev1.Pod) error {
	if kube.PodReady(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	state := string(pod.Status.Phase)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			state = condition.Message
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil {
			state = strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")
		}
	}
	text := fmt.Sprintf("pod %s: %s", pod.Name, state)
	if log := c.logEnd(ctx, pod); log != "" {
		text += "; its log ends with\n" + log
	}
	return errors.New(text)
}

// logEnd is the end of a pod's log, or of the log before its last restart.
func (c *Client) logEnd(ctx context.Context, pod *corev1.Pod) string {
	lines := int64(3)
	for _, previous := range []bool{false, true} {
		log, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines, Previous: previous}).DoRaw(ctx)
		if end := strings.TrimSpace(string(log)); err == nil && end != "" {
			return end
		}
	}
	return ""
}
