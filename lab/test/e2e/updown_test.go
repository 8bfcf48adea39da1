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

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
)

// upAndDown brings a lab up after an up that was killed with no warning, and down. It looks at what is left of the lab and in the machine.
func upAndDown(ctx context.Context, s *scene) (figure string, err error) {
	const most = time.Minute
	program := second{options: s.options, name: fmt.Sprintf("second-%d", os.Getpid())}
	before, err := program.machine()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, program.run(context.WithoutCancel(ctx), "down")) }()
	if err := program.killUp(ctx); err != nil {
		return "", err
	}
	begun := time.Now()
	if err := program.run(ctx, "up"); err != nil {
		return "", err
	}
	took := time.Since(begun)
	if err := program.run(ctx, "down"); err != nil {
		return "", err
	}
	if err := program.gone(before); err != nil {
		return "", err
	}
	if took > most {
		return "", fmt.Errorf("up took %.1f s; at most %.0f are allowed", took.Seconds(), most.Seconds())
	}
	return fmt.Sprintf("up in %.1f s after an up that was killed, and nothing left after down", took.Seconds()), nil
}

// second is the program with another lab than the area's.
type second struct {
	options lab.Options
	name    string
}

func (p second) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.options.Program, args...)
	cmd.Args = append(cmd.Args, "--name", p.name)
	// A proxy that the user has set is none of the lab's.
	cmd.Env = append(os.Environ(), "HTTP_PROXY=http://192.0.2.1:1", "HTTPS_PROXY=http://192.0.2.1:1", "VICINITY_LAB_DIR="+p.options.Root)
	return cmd
}

func (p second) run(ctx context.Context, args ...string) error {
	output, err := p.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("vicinity lab %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

// killUp kills up, with no warning, as soon as it starts the API server.
func (p second) killUp(ctx context.Context) error {
	cmd := p.command(ctx, "up")
	if err := cmd.Start(); err != nil {
		return err
	}
	path := filepath.Join(p.options.Root, p.name, "run", "kube-apiserver.json")
	err := kube.Wait(ctx, path, func(context.Context) (string, error) {
		_, err := os.Stat(path)
		return "", err
	})
	err = errors.Join(err, cmd.Process.Kill())
	if cmd.Wait() == nil {
		return errors.Join(err, errors.New("up ended before it could be killed"))
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
