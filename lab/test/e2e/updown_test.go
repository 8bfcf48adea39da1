package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// upAndDown kills up with no warning, and then brings the lab up and down again and again. At last it kills
// another up and brings the lab down. It looks at what is left of the lab and in the machine.
func upAndDown(ctx context.Context, s *scene) (figure string, err error) {
	const most, killedAt = time.Minute, "run/kube-apiserver.json"
	times := 2
	if soaking() {
		times = 5
	}
	program := s.second()
	// The user has a proxy set, which a lab does not use.
	program.environment = []string{"HTTP_PROXY=http://192.0.2.1:1", "HTTPS_PROXY=http://192.0.2.1:1"}
	before, err := program.machine()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	// What is left of an up that was killed does not keep the next one from its work.
	if err := program.killAt(ctx, killedAt); err != nil {
		return "", err
	}
	var slowest time.Duration
	for range times {
		begun := time.Now()
		if err := program.run(ctx, "up"); err != nil {
			return "", err
		}
		slowest = max(slowest, time.Since(begun))
		if err := program.run(ctx, "down"); err != nil {
			return "", err
		}
		if err := program.gone(before); err != nil {
			return "", err
		}
	}
	// Without another up, down removes what is left of an up that was killed, too.
	if err := program.killAt(ctx, killedAt); err != nil {
		return "", err
	}
	if err := program.run(ctx, "down"); err != nil {
		return "", err
	}
	if err := program.gone(before); err != nil {
		return "", err
	}
	if slowest > most {
		return "", fmt.Errorf("up took %.1f s; at most %.0f are allowed", slowest.Seconds(), most.Seconds())
	}
	return fmt.Sprintf("%d times, first after an up that was killed, up in at most %.1f s, nothing left, also of a last up that was killed", times, slowest.Seconds()), nil
}

// nodeAdded adds a node in a zone of its own and runs pods there that answer through the Service. Then it
// stops the node and removes it: nothing is left of its pods, although the kubelet that ran them cannot end
// them, and a later node of its name inherits nothing.
func nodeAdded(ctx context.Context, s *scene) (figure string, err error) {
	begun := time.Now()
	const role = "node-role.kubernetes.io/new"
	wanted := shape.Node{Zone: "zone-new", Region: shape.DefaultRegion, Labels: map[string]string{role: "true"}}
	node, err := s.cluster.AddNode(ctx, wanted)
	if err != nil {
		return "", err
	}
	took := time.Since(begun)
	defer func() { err = errors.Join(err, s.cluster.RemoveNode(context.WithoutCancel(ctx), node.Name)) }()
	object, err := s.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if object.Labels[role] != "true" || object.Labels[corev1.LabelTopologyZone] != node.Zone || len(object.Spec.PodCIDRs) == 0 {
		return "", fmt.Errorf("the Node has labels %v and ranges of pods %v", object.Labels, object.Spec.PodCIDRs)
	}
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	result, err := s.flawless(ctx, lab.LoadOptions{Plan: lightPlan()})
	if err != nil {
		return "", err
	}
	there := int64(0)
	for _, flow := range result.Flows {
		if flow.To.Node == node.Name {
			there += flow.Answers
		}
	}
	if there == 0 {
		return "", errors.New("no answer came from the new node")
	}
	removed, err := s.podsOn(ctx, node.Name)
	if err != nil {
		return "", err
	}
	if err := errors.Join(s.cluster.StopNode(ctx, node.Name), s.cluster.RemoveNode(ctx, node.Name)); err != nil {
		return "", err
	}
	if err := s.nothingOf(removed); err != nil {
		return "", err
	}
	// Its name is free again, and it is not silent.
	wanted.Name = node.Name
	if _, err := s.cluster.AddNode(ctx, wanted); err != nil {
		return "", err
	}
	if err := s.WaitDeployment(ctx, s.namespace, "echo"); err != nil {
		return "", err
	}
	return fmt.Sprintf("ready after %.1f s, %d answers from it; removed with its %d pods, of which nothing is left, and added again", took.Seconds(), there, len(removed)), nil
}

// podsOn are the scene's pods on a node: their names and unique ids.
func (s *scene) podsOn(ctx context.Context, node string) (map[string]string, error) {
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no pod is on %s", node)
	}
	pods := map[string]string{}
	for i := range list.Items {
		pods[list.Items[i].Name] = string(list.Items[i].UID)
	}
	return pods, nil
}

// nothingOf is an error if the lab or the machine has anything of some pods.
func (s *scene) nothingOf(pods map[string]string) error {
	name := s.cluster.Shape().Name
	traces, err := lab.Traces(name, s.cluster.Options())
	if err != nil {
		return err
	}
	// A process that lost its network is in no namespace of the lab.
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, process := range all {
		if pod := podOf(process); pods[pod] != "" {
			traces = append(traces, process+" of pod "+pods[pod])
		}
	}
	for pod, id := range pods {
		for _, trace := range traces {
			if strings.Contains(trace, id) || strings.Contains(trace, shape.PodNamespace(name, id)) {
				return fmt.Errorf("of pod %s on the node that was removed there is left: %s", pod, trace)
			}
		}
	}
	return nil
}

// podOf is the name of the pod that a process runs in, or nothing.
func podOf(process string) string {
	// What cannot be read has ended.
	environment, err := os.ReadFile(process + "/environ")
	if err != nil {
		return ""
	}
	for variable := range strings.SplitSeq(string(environment), "\x00") {
		if name, ok := strings.CutPrefix(variable, "VICINITY_POD="); ok {
			return name
		}
	}
	return ""
}

// second is the program with another lab than the area's.
type second struct {
	options lab.Options
	name    string
	// environment is what the user of the program has set besides.
	environment []string
}

func (s *scene) second() second {
	return second{options: s.options, name: fmt.Sprintf("second-%d", os.Getpid())}
}

func (p second) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.options.Program, args...)
	cmd.Args = append(cmd.Args, "--name", p.name)
	cmd.Env = append(append(os.Environ(), p.environment...), "VICINITY_LAB_DIR="+p.options.Root)
	return cmd
}

func (p second) run(ctx context.Context, args ...string) error {
	output, err := p.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("vicinity lab %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

// killAt kills up, with no warning, as soon as a file is in the lab's folder.
func (p second) killAt(ctx context.Context, file string) error {
	cmd := p.command(ctx, "up")
	if err := cmd.Start(); err != nil {
		return err
	}
	path := filepath.Join(p.options.Root, p.name, file)
	err := kube.Wait(ctx, file, func(context.Context) (string, error) {
		_, err := os.Stat(path)
		return "", err
	})
	err = errors.Join(err, cmd.Process.Kill())
	if cmd.Wait() == nil {
		return errors.Join(err, fmt.Errorf("up ended before it could be killed at %s", file))
	}
	return err
}

// machine is what a lab could leave behind in the machine itself: network namespaces,
// links of the host, mounts, and files beside the folders of labs.
func (p second) machine() ([]string, error) {
	var found []string
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		found = append(found, "link "+link.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		found = append(found, "mount "+strings.TrimSpace(line))
	}
	entries, err := os.ReadDir(p.options.Root)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		found = append(found, "file "+entry.Name())
	}
	slices.Sort(found)
	return found, nil
}

// gone fails when anything of the lab is left, or of the machine is not as before. Pods of
// another lab may come and go meanwhile.
func (p second) gone(before []string) error {
	traces, err := lab.Traces(p.name, p.options)
	if err != nil {
		return err
	}
	if len(traces) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(traces, ", "))
	}
	after, err := p.machine()
	if err != nil {
		return err
	}
	for _, now := range after {
		if !slices.Contains(before, now) && !strings.Contains(now, "/netns/") {
			return fmt.Errorf("left behind: %s", now)
		}
	}
	return nil
}
