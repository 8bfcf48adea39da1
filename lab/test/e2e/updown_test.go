package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// upAndDown brings a second lab up beside the first, again and again, and looks at what
// it leaves of itself and in the machine.
func upAndDown(ctx context.Context, s *scene) (figure string, err error) {
	const most = time.Minute
	times := 2
	if soaking() {
		times = 5
	}
	program := s.second()
	before, err := program.machine()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
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
	if slowest > most {
		return "", fmt.Errorf("up took %.1f s; at most %.0f are allowed", slowest.Seconds(), most.Seconds())
	}
	return fmt.Sprintf("%d times beside another lab, up in at most %.1f s, nothing left", times, slowest.Seconds()), nil
}

// killedInTheMiddle kills up at several moments, and brings the lab up after it.
func killedInTheMiddle(ctx context.Context, s *scene) (figure string, err error) {
	program := s.second()
	before, err := program.machine()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	moments := []string{"run/etcd.json", "run/kube-apiserver.json", "run/runtime.json"}
	for _, moment := range moments {
		if err := program.killAt(ctx, moment); err != nil {
			return "", err
		}
	}
	if err := program.run(ctx, "up"); err != nil {
		return "", fmt.Errorf("after up was killed: %w", err)
	}
	if err := program.run(ctx, "down"); err != nil {
		return "", err
	}
	if err := program.gone(before); err != nil {
		return "", err
	}
	// Without another up, down removes it too.
	if err := program.killAt(ctx, moments[1]); err != nil {
		return "", err
	}
	if err := program.run(ctx, "down"); err != nil {
		return "", err
	}
	if err := program.gone(before); err != nil {
		return "", err
	}
	return fmt.Sprintf("killed %d times on the way up; up works after it, down leaves nothing", len(moments)+1), nil
}

// nodeRemoved brings a lab up for a user with an HTTP proxy set, which the lab must not use.
// A removed node leaves nothing behind, although its own kubelet managed its pods, and a
// later node of its name inherits nothing, although the first one
// was stopped.
func nodeRemoved(ctx context.Context, s *scene) (figure string, err error) {
	program := s.second()
	program.environment = []string{"HTTP_PROXY=http://192.0.2.1:1", "HTTPS_PROXY=http://192.0.2.1:1"}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	if err := program.run(ctx, "up", "--vicinity=false", "--zones", "a,b", "--nodes-per-zone", "1"); err != nil {
		return "", err
	}
	cluster, err := lab.Open(program.name, program.options)
	if err != nil {
		return "", err
	}
	client, err := cluster.Client()
	if err != nil {
		return "", err
	}
	if err := client.Apply(ctx, "default", lab.ClientManifests("client", 2)); err != nil {
		return "", err
	}
	if err := client.WaitDeployment(ctx, "default", "client"); err != nil {
		return "", err
	}
	if err := cluster.StopNode(ctx, "a-1"); err != nil {
		return "", err
	}
	removed, err := podsOn(ctx, client, "a-1")
	if err != nil {
		return "", err
	}
	if err := cluster.RemoveNode(ctx, "a-1"); err != nil {
		return "", err
	}
	if err := program.nothingOf(removed); err != nil {
		return "", err
	}
	// Controllers may not have replaced the pods yet.
	err = kube.Wait(ctx, "clients to run in the pods of the other node and nowhere else", func(ctx context.Context) (string, error) {
		there, err := podsOn(ctx, client, "b-1")
		if err != nil {
			return "", err
		}
		run, err := program.clients()
		if err != nil {
			return "", err
		}
		wanted := slices.Sorted(maps.Keys(there))
		if !slices.Equal(run, wanted) {
			return fmt.Sprintf("clients run in %q, and the API has %q", run, wanted), nil
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	// Its name is free again, and it is not silent.
	if _, err := cluster.AddNode(ctx, shape.Node{Name: "a-1", Zone: "a"}); err != nil {
		return "", err
	}
	status, err := cluster.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, component := range status.Components {
		if component.State != "ready" {
			return "", fmt.Errorf("component %s is %s", component.Name, component.State)
		}
	}
	return fmt.Sprintf("a node and its %d pods removed, %d components ready after it came again", len(removed), len(status.Components)), nil
}

// podsOn are the client pods that the API has on a node: their names and unique ids.
func podsOn(ctx context.Context, client *lab.Client, node string) (map[string]string, error) {
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=client", FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	pods := map[string]string{}
	for i := range list.Items {
		pods[list.Items[i].Name] = string(list.Items[i].UID)
	}
	return pods, nil
}

// nothingOf returns an error if the lab or the machine has anything of some pods.
func (p second) nothingOf(pods map[string]string) error {
	traces, err := lab.Traces(p.name, p.options)
	if err != nil {
		return err
	}
	// A process that lost its network is in no namespace of the lab.
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, process := range all {
		if name := podOf(process); pods[name] != "" {
			traces = append(traces, process+" of pod "+pods[name])
		}
	}
	for name, id := range pods {
		for _, trace := range traces {
			if strings.Contains(trace, id) || strings.Contains(trace, shape.PodNamespace(p.name, id)) {
				return fmt.Errorf("of pod %s on the node that was removed there is left: %s", name, trace)
			}
		}
	}
	return nil
}

// clients are the names of the pods that the lab's client programs run in, one for each.
func (p second) clients() ([]string, error) {
	traces, err := lab.Traces(p.name, p.options)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, trace := range traces {
		fields := strings.Fields(trace)
		if fields[0] == "process" && strings.Contains(trace, "lab program client") {
			names = append(names, podOf("/proc/"+fields[1]))
		}
	}
	slices.Sort(names)
	return names, nil
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

// portTaken takes a lab's port away from it while it comes up: it comes up with another.
func portTaken(ctx context.Context, s *scene) (figure string, err error) {
	program := s.second()
	cmd := program.command(ctx, "up", "--vicinity=false", "--zones", "a", "--nodes-per-zone", "1")
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	var port int
	var taken net.Listener
	err = kube.Wait(ctx, "the lab to choose its port", func(context.Context) (string, error) {
		folder, err := state.Open(program.options.Root, program.name)
		if err != nil {
			return "", err
		}
		chosen, err := folder.Load()
		if err != nil {
			return "", err
		}
		port = chosen.Port
		taken, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return "", err
	})
	if err == nil {
		defer taken.Close()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return "", fmt.Errorf("%w: %s", err, &printed)
	}
	if want := fmt.Sprintf("another program took port %d in the meantime", port); !strings.Contains(printed.String(), want) {
		return "", fmt.Errorf("it did not say %q but %q", want, &printed)
	}
	return fmt.Sprintf("up with another port after %d was taken", port), nil
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

// gone fails when anything of the lab is left, or of the machine is not as before. The
// pods of the area's own lab may come and go meanwhile, which is no business of this.
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
