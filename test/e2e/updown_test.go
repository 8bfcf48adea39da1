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

	"vicinity.dev/vicinity/lab"
)

// upAndDown brings a second lab up beside the first, again and again, and looks at what
// it leaves of itself and in the machine.
func upAndDown(ctx context.Context, s *scene) (string, error) {
	const times, most = 5, 20 * time.Second
	program := s.second()
	before, err := program.machine()
	if err != nil {
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
	if slowest > most {
		return "", fmt.Errorf("up took %.1f s; at most %.0f are allowed", slowest.Seconds(), most.Seconds())
	}
	return fmt.Sprintf("%d times beside another lab, up in at most %.1f s, nothing left", times, slowest.Seconds()), nil
}

// killedInTheMiddle kills up at several moments, and brings the lab up after it.
func killedInTheMiddle(ctx context.Context, s *scene) (string, error) {
	program := s.second()
	before, err := program.machine()
	if err != nil {
		return "", err
	}
	moments := []string{"run/etcd.json", "run/kube-apiserver.json", "run/agent.json"}
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
	// And where nobody brings it up again, down removes it all the same.
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

// second is the program with another lab than the area's.
type second struct {
	options lab.Options
	name    string
}

func (s *scene) second() second {
	return second{options: s.cluster.Options(), name: fmt.Sprintf("second-%d", os.Getpid())}
}

func (p second) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.options.Program, append([]string{"lab"}, args...)...)
	cmd.Args = append(cmd.Args, "--name", p.name)
	cmd.Env = append(os.Environ(), "VICINITY_LAB_DIR="+p.options.Root)
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
	err := lab.Wait(ctx, file, func(context.Context) (string, error) {
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
