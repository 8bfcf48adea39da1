package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/test/kube"
)

// releaseArea covers the published images, and the chart that names them.
func releaseArea() area {
	return area{
		name:  "release",
		setup: zones,
		promises: []promise{
			{name: "reproducible", keep: reproducible, within: 5 * time.Minute},
			{name: "packaged", keep: packagedWorks, within: 4 * time.Minute, tier: inTest},
			{name: "profiles", keep: profilesKept, within: 4 * time.Minute},
			{name: "upgrade-and-rollback", keep: upgradedAndBack, within: 10 * time.Minute},
			{name: "documentation", keep: documentation("docs/install.md"), within: 10 * time.Minute, alone: true},
		},
	}
}

// packageFolder is the output of "make package".
const packageFolder = root + "/bin/package"

// command runs a program. Its output becomes part of the error.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// packageInto makes the images and the chart of the sources in a folder.
func packageInto(ctx context.Context, sources, folder string) error {
	return command(ctx, root+"/bin/release-maker", "package", "--root", sources, "--out", folder, "--platforms", "linux/"+runtime.GOARCH)
}

// reproducible links the programs again, makes images and chart again, and compares all files.
func reproducible(ctx context.Context, _ *scene) (figure string, err error) {
	folder := must(os.MkdirTemp("", "release-"))
	defer undo(&err, func() error { return os.RemoveAll(folder) })
	again := filepath.Join(folder, "package")
	check(packageInto(ctx, root, again))
	before := must(checksums(packageFolder))
	after := must(checksums(again))
	if !slices.Equal(before, after) {
		return "", fmt.Errorf("two builds differ: %q and %q", before, after)
	}
	return fmt.Sprintf("two builds of %d files have the same bytes", len(before)), nil
}

// checksums returns the checksums of the files in a folder, with their names.
func checksums(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("%x %s", sum.Sum(nil), entry.Name()))
	}
	return all, nil
}

// packagedWorks checks the packaged chart and images in this lab, and keeps the traffic of a Service in its zones.
func packagedWorks(ctx context.Context, s *scene) (string, error) {
	check(s.WaitDeployment(ctx, vicinityNamespace, "vicinity-dns"))
	pods := must(s.ofImages(ctx, packageFolder))
	check(s.haveNothingElse(ctx, pods))
	check(s.deploy(ctx))
	check(s.PatchService(ctx, s.namespace, "echo", preferZone))
	must(s.waitConverged(ctx, "echo", echoes))
	check(s.waitInZone(ctx))
	service := must(s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{}))
	check(s.resolvedByChart(ctx, "echo", func(string) (string, error) { return service.Spec.ClusterIP, nil }))
	sizes := must(imageSizes(packageFolder))
	return fmt.Sprintf("%d pods of the images, by their digests and without a shell; all traffic in its zone; archives: %s", len(pods), sizes), nil
}

// ofImages returns the pods of Vicinity. Their images must be those of a folder, by digest.
func (s *scene) ofImages(ctx context.Context, folder string) ([]corev1.Pod, error) {
	pins, err := os.ReadFile(filepath.Join(folder, "DIGESTS"))
	if err != nil {
		return nil, err
	}
	list, err := s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: vicinityObjects})
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	for i := range pods {
		if len(pods[i].Status.ContainerStatuses) == 0 {
			return nil, fmt.Errorf("pod %s does not report its image", pods[i].Name)
		}
		for _, container := range pods[i].Status.ContainerStatuses {
			pin := strings.TrimPrefix(container.ImageID, "vicinity://")
			if pin == "" || !strings.Contains(string(pins), pin+"\n") {
				return nil, fmt.Errorf("pod %s runs %q, and the folder has the images %q", pods[i].Name, container.ImageID, pins)
			}
		}
	}
	if len(pods) == 0 {
		return nil, errors.New("no pod of Vicinity runs")
	}
	return pods, nil
}

// haveNothingElse checks that no pod has a shell.
func (s *scene) haveNothingElse(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		out, err := exec.CommandContext(ctx, root+"/bin/kubectl", "--kubeconfig", s.cluster.Kubeconfig(), "-n", vicinityNamespace, "exec", pods[i].Name,
			"-c", pods[i].Spec.Containers[0].Name, "--", "/bin/sh", "-c", "echo there").CombinedOutput()
		switch {
		case err == nil:
			return fmt.Errorf("pod %s should have no /bin/sh; it printed %q", pods[i].Name, out)
		case !strings.Contains(string(out), "no such file"):
			return fmt.Errorf("pod %s should have no /bin/sh: %w: %q", pods[i].Name, err, out)
		}
	}
	return nil
}

// resolvedByChart waits until the DNS server of the chart gives the clients of each node the wanted answer for a Service.
func (s *scene) resolvedByChart(ctx context.Context, name string, want func(node string) (string, error)) error {
	server, err := s.CoreV1().Services(vicinityNamespace).Get(ctx, "vicinity-dns", metav1.GetOptions{})
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(server.Spec.ClusterIP)
	if err != nil {
		return err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return err
	}
	var all []asked
	for node, from := range clients {
		wanted, err := want(node)
		if err != nil {
			return err
		}
		all = append(all, asked{from, dnsquery.Query{Name: s.fqdn(name), Server: netip.AddrPortFrom(address, dnsquery.Port)}, wanted})
	}
	_, err = s.answers(ctx, all)
	return err
}

// profiled is an upgrade of the release with what must work then.
type profiled struct {
	name string // of the Service and the budget that are made then
	set  []string
	pods map[string]int // the ready pods of Vicinity, by component

	hints, names, budgets bool
}

// profilesKept upgrades the release to each profile, and to values that win over the profile: budgets without routing. A new Service and a
// new budget, and a new headless one with names, show the parts that work.
func profilesKept(ctx context.Context, s *scene) (figure string, err error) {
	defer undo(&err, func() error { return installZones(context.WithoutCancel(ctx), s.cluster) })
	// Labs switch the proxy on; here the profile decides.
	check(s.cluster.InstallRelease(ctx, packageFolder, slices.Concat(quickValues, []string{"proxy.enabled=null", "locators.all=true"})...))
	check(s.deploy(ctx))
	check(s.Apply(ctx, s.namespace, headlessOf("racks", keysAnnotation, rackLabel)))
	controller, withDNS := map[string]int{"controller": 2}, map[string]int{"controller": 2, "dns": 2}
	allPods := map[string]int{"controller": 2, "dns": 2, "proxy": len(s.cluster.Shape().Nodes())}
	steps := []profiled{
		{name: "by-routing", set: []string{"profile=routing"}, pods: controller, hints: true},
		{name: "by-all", set: []string{"profile=all"}, pods: allPods, hints: true, names: true, budgets: true},
		{name: "by-names", set: []string{"profile=names"}, pods: withDNS, names: true},
		{name: "without-routing", set: []string{"profile=routing", "routing.enabled=false", "disruption.enabled=true"}, pods: controller, budgets: true},
		{name: "by-disruption", set: []string{"profile=disruption", "routing.enabled=null", "disruption.enabled=null"}, pods: controller, budgets: true},
	}
	begun := time.Now()
	for _, step := range steps {
		if err := s.keepsProfile(ctx, step); err != nil {
			return "", fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return fmt.Sprintf("%d upgrades in %.0f s: after each, the promised pods were ready, and hints, near names and enforced budgets worked where they were on; without routing a Service got no hints",
		len(steps), time.Since(begun).Seconds()), nil
}

// keepsProfile upgrades the release, and waits until all promised parts work.
func (s *scene) keepsProfile(ctx context.Context, p profiled) error {
	if err := s.cluster.ChangeVicinity(ctx, p.set...); err != nil {
		return err
	}
	if err := s.waitReadyComponents(ctx, p.pods); err != nil {
		return err
	}
	budget := strings.Replace(allKept, "name: echo", "name: "+p.name, 1)
	if err := s.Apply(ctx, s.namespace, twin(p.name, zoneAnnotation+": Prefer")+"---"+budget); err != nil {
		return err
	}
	if err := s.WaitEndpoints(ctx, s.namespace, p.name, echoes); err != nil {
		return err
	}
	if p.budgets {
		if err := errors.Join(s.refusesEvictions(ctx), s.field().AtRest(ctx)); err != nil {
			return err
		}
	}
	if p.names {
		near := p.name + "-near"
		if err := s.Apply(ctx, s.namespace, headlessOf(near, keysAnnotation, zoneKey)); err != nil {
			return err
		}
		if _, err := s.waitLocated(ctx); err != nil {
			return err
		}
		err := s.resolvedByChart(ctx, near, func(node string) (string, error) {
			at, _ := s.cluster.Shape().Node(node)
			return s.podsOf(ctx, at.Zone+"-1", at.Zone+"-2")
		})
		if err != nil {
			return err
		}
	}
	if !p.hints {
		time.Sleep(settleTime) // a controller would write hints by now
	}
	return s.WaitHints(ctx, s.namespace, p.name, p.hints)
}

// waitReadyComponents waits until exactly these pods of Vicinity are ready, by component.
func (s *scene) waitReadyComponents(ctx context.Context, want map[string]int) error {
	return kube.Wait(ctx, "the pods of Vicinity to be ready", func(ctx context.Context) (string, error) {
		pods, err := s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: vicinityObjects})
		if err != nil {
			return "", err
		}
		ready := map[string]int{}
		for i := range pods.Items {
			if pod := &pods.Items[i]; kube.PodReady(pod) && pod.DeletionTimestamp == nil {
				ready[pod.Labels["app.kubernetes.io/component"]]++
			}
		}
		if !maps.Equal(ready, want) {
			return fmt.Sprintf("ready are %v, want %v", ready, want), nil
		}
		return "", nil
	})
}

// These limits apply to the bytes that a node fetches: the proxy's image is on all nodes.
const (
	largestImage      = 60e6
	largestProxyImage = 35e6
)

// imageSizes returns the sizes of the archives in a folder, which have one platform.
func imageSizes(folder string) (string, error) {
	archives, err := filepath.Glob(filepath.Join(folder, "*.oci.tar"))
	if err != nil {
		return "", err
	}
	var sizes []string
	version := regexp.MustCompile(`-\d.*`)
	for _, archive := range archives {
		info, err := os.Stat(archive)
		if err != nil {
			return "", err
		}
		name, limit := version.ReplaceAllString(filepath.Base(archive), ""), int64(largestImage)
		if name == "vicinity-proxy" {
			limit = largestProxyImage
		}
		if info.Size() > limit {
			return "", fmt.Errorf("the image %s has %d bytes; it may have %d", name, info.Size(), limit)
		}
		sizes = append(sizes, fmt.Sprintf("%s %.1f MB", name, float64(info.Size())/1e6))
	}
	return strings.Join(sizes, ", "), nil
}

// releaseBefore is the commit that serves as the previous release until there is one. The CRD of DomainRollouts has changed since.
const releaseBefore = "891cfa69493c8ee8b3faa01ccfb97bbb18531b12"

// packagedBefore returns the folder of the images and the chart of the previous release, which are
// made once, and the name of that release.
func packagedBefore(ctx context.Context) (folder, of string, err error) {
	of = releaseBefore[:12]
	folder = root + "/bin/release-before/" + of
	if _, err := release.OpenBundle(folder); err == nil {
		return folder, of, nil
	}
	if err := command(ctx, "git", "-C", root, "cat-file", "-e", releaseBefore+"^{commit}"); err != nil {
		return "", "", fmt.Errorf("the previous release is built from commit %s, which a shallow clone lacks; run git fetch --unshallow: %w", releaseBefore, err)
	}
	temporary, err := os.MkdirTemp("", "release-before-")
	if err != nil {
		return "", "", err
	}
	defer undo(&err, func() error { return os.RemoveAll(temporary) })
	remove, err := ofCommit(ctx, temporary+"/sources")
	if err != nil {
		return "", "", err
	}
	defer undo(&err, remove)
	return folder, of, packageInto(ctx, temporary+"/sources", folder)
}

// ofCommit writes the sources of releaseBefore to a folder, and returns a function that removes
// them.
func ofCommit(ctx context.Context, folder string) (remove func() error, err error) {
	if err := command(ctx, "git", "-C", root, "worktree", "add", "--detach", folder, releaseBefore); err != nil {
		return nil, err
	}
	// The cleanup must work after the promise's timeout.
	ctx = context.WithoutCancel(ctx)
	return func() error { return command(ctx, "git", "-C", root, "worktree", "remove", "--force", folder) }, nil
}

// allKept is a budget that allows no eviction.
const allKept = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: echo}
spec: {selector: {matchLabels: {app: echo}}, maxUnavailable: 0}
`

// upgradedAndBack upgrades from the previous release and rolls back, under load. Then it installs the packaged chart again for the next
// promises.
func upgradedAndBack(ctx context.Context, s *scene) (figure string, err error) {
	before, of, err := packagedBefore(ctx)
	check(err)
	check(crdsDiffer(before, packageFolder))
	defer undo(&err, func() error { return installZones(context.WithoutCancel(ctx), s.cluster) })
	// The CRDs are those of the previous release, too.
	check(s.withoutVicinity(ctx))
	if err := s.cluster.InstallRelease(ctx, before, "disruption.enabled=true", "proxy.maxUnavailable=50%"); err != nil {
		return "", fmt.Errorf("installing the previous release: %w", err)
	}
	check(s.deploy(ctx))
	check(s.PatchService(ctx, s.namespace, "echo", annotated(zoneAnnotation, "Prefer", "vicinity.dev/proxy", "true")))
	must(s.waitGroups(ctx, "echo", 2*echoes)) // in both families
	check(s.Apply(ctx, s.namespace, allKept))
	check(s.waitInZone(ctx))
	watch := must(s.watchKept(ctx))
	var up, back time.Duration
	result, err := s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 200}}, func(ctx context.Context) error {
		begun := time.Now()
		if err := s.cluster.InstallRelease(ctx, packageFolder, "disruption.enabled=true", "proxy.maxUnavailable=50%"); err != nil {
			return fmt.Errorf("upgrading: %w", err)
		}
		if _, err := s.ofImages(ctx, packageFolder); err != nil {
			return fmt.Errorf("after the upgrade: %w", err)
		}
		if err := s.refusesEvictions(ctx); err != nil {
			return fmt.Errorf("after the upgrade: %w", err)
		}
		up, begun = time.Since(begun), time.Now()
		if err := s.cluster.RollbackVicinity(ctx); err != nil {
			return err
		}
		back = time.Since(begun)
		if _, err := s.ofImages(ctx, before); err != nil {
			return fmt.Errorf("after the rollback: %w", err)
		}
		return s.refusesEvictions(ctx)
	})
	refused, looked, kept := watch.end()
	check(errors.Join(err, kept))
	return fmt.Sprintf("from %s up in %.0f s and back in %.0f s; %d requests, 0 failed; no endpoint moved in %d comparisons; %d evictions refused, 0 admitted, %d failed while the webhook was new",
		of, up.Seconds(), back.Seconds(), result.Answered, looked, refused, watch.unanswered.Load()), nil
}

// crdsDiffer returns an error unless the charts in two folders have different CRDs.
func crdsDiffer(before, after string) error {
	var all [][]string
	for _, folder := range []string{before, after} {
		bundle, err := release.OpenBundle(folder)
		if err != nil {
			return err
		}
		all = append(all, bundle.Chart.CRDs())
	}
	if slices.Equal(all[0], all[1]) {
		return errors.New("the release before has the same CRDs, so an upgrade cannot test them")
	}
	return nil
}

// withoutVicinity removes the release and its CRDs.
func (s *scene) withoutVicinity(ctx context.Context) error {
	if err := s.cluster.RemoveVicinity(ctx); err != nil {
		return err
	}
	_, err := s.kubectl(ctx, "", "delete", "--ignore-not-found", "--timeout=60s", "-f", root+"/charts/vicinity/crds")
	return err
}

// kept watches the state that an upgrade must not change.
type kept struct {
	stop                        context.CancelFunc
	ended                       chan error
	refused, unanswered, looked atomic.Int64
}

// end returns the number of refused evictions and of comparisons of endpoints.
func (k *kept) end() (refused, looked int64, err error) {
	k.stop()
	err = <-k.ended
	refused, looked = k.refused.Load(), k.looked.Load()
	if err == nil && (refused == 0 || looked == 0) {
		err = fmt.Errorf("%d evictions were tried and endpoints looked at %d times; want more than 0 of both", refused, looked)
	}
	return refused, looked, err
}

// watchKept keeps requesting evictions that the budget does not allow, and keeps checking which
// zones use the Service's endpoints.
func (s *scene) watchKept(ctx context.Context) (*kept, error) {
	before, err := s.placements(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := s.field().Pods(ctx, "echo", "")
	if err != nil || len(pods) == 0 {
		return nil, errors.Join(err, errors.New("no pod to evict"))
	}
	if err := s.refusesEvictions(ctx); err != nil {
		return nil, err
	}
	k := &kept{ended: make(chan error, 1)}
	ctx, k.stop = context.WithCancel(ctx)
	go func() {
		for at := 0; ; at++ {
			err := k.look(ctx, s, pods[at%len(pods)].Name, before)
			if err != nil && ctx.Err() == nil {
				k.ended <- err
				return
			}
			select {
			case <-ctx.Done():
				k.ended <- nil
				return
			case <-time.After(250 * time.Millisecond):
			}
		}
	}()
	return k, nil
}

// refusesEvictions waits until the budget refuses the eviction of a pod of "echo": the controller enforces a budget a moment
// after it is written.
func (s *scene) refusesEvictions(ctx context.Context) error {
	return kube.Wait(ctx, "the budget to be enforced", func(ctx context.Context) (string, error) {
		pods, err := s.field().Pods(ctx, "echo", "")
		if err != nil || len(pods) == 0 {
			return "", errors.Join(err, errors.New("no pod to evict"))
		}
		err = s.field().Evict(ctx, pods[0].Name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsTooManyRequests(err) {
			return "", nil
		}
		return fmt.Sprintf("the answer is %v", err), nil
	})
}

// look tries one eviction, and compares the endpoints.
func (k *kept) look(ctx context.Context, s *scene, pod string, before string) error {
	switch err := s.field().Evict(ctx, pod, nil); {
	case err == nil:
		return fmt.Errorf("the eviction of %s was allowed, although the budget allows none", pod)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "certificate signed by unknown authority"):
		// The versions have this webhook in different configurations. The controller writes its authority into a new one a moment after
		// Helm creates it (docs/install.md).
		k.unanswered.Add(1)
		return nil
	case !apierrors.IsTooManyRequests(err):
		return fmt.Errorf("the eviction of %s should be refused by the budget: %w", pod, err)
	}
	k.refused.Add(1)
	now, err := s.placements(ctx)
	if err != nil {
		return err
	}
	if now != before {
		return fmt.Errorf("endpoints moved: they were %s, and are %s", before, now)
	}
	k.looked.Add(1)
	return nil
}

// placements describes which zones use which endpoints of the Service.
func (s *scene) placements(ctx context.Context) (string, error) {
	groups, err := s.groupsOf(ctx, "echo")
	if err != nil {
		return "", err
	}
	var all []string
	for i := range groups {
		var zones []string
		for _, consumer := range groups[i].Spec.Consumers {
			zones = append(zones, consumer.Zone)
		}
		for _, endpoint := range groups[i].Spec.Endpoints {
			all = append(all, fmt.Sprintf("%s in %q", endpoint.Address, zones))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; "), nil
}
