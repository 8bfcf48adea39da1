package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

const root = "../../.."

// shown is a documented command with its output.
type shown struct {
	command string
	output  []string
	// The output begins at line and ends before end in the document.
	line, end int
}

// console lists the commands of a document in its ```console blocks.
func console(lines []string) []shown {
	var all []shown
	inBlock := false
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			inBlock = line == "```console"
			continue
		}
		if !inBlock {
			continue
		}
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, shown{command: command, line: i + 1, end: i + 1})
			continue
		}
		if len(all) > 0 {
			last := &all[len(all)-1]
			last.output, last.end = append(last.output, line), i+1
		}
	}
	return all
}

// changing has the parts of outputs that differ between runs.
var changing = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "-POD"},
	{regexp.MustCompile(`\d[\d,]*(\.\d+)?`), "N"},
	{regexp.MustCompile(`\bN (B|kB|MB|GB)\b`), "N BYTES"},
	{regexp.MustCompile(`\bN ?(µs|ms|s)\b|\bNmNs\b`), "TIME"},
	{regexp.MustCompile(`\s+`), " "},
}

// settledLine returns a line without the parts that differ between runs.
func settledLine(line string) string {
	for _, c := range changing {
		line = c.pattern.ReplaceAllString(line, c.instead)
	}
	return strings.TrimSpace(line)
}

// missing returns the lines of the document that a command did not print.
func (s shown) missing(printed []string) []string {
	var have []string
	for _, line := range printed {
		have = append(have, settledLine(line))
	}
	var missing []string
	for _, line := range s.output {
		if !slices.Contains(have, settledLine(line)) {
			missing = append(missing, line)
		}
	}
	return missing
}

// documentation runs the commands of a document in order, in a lab of its own, and compares their
// output. With E2E_UPDATE=1 it writes the output to the document.
func documentation(document string) func(context.Context, *scene) (string, error) {
	return func(ctx context.Context, s *scene) (string, error) { return s.documented(ctx, root+"/"+document) }
}

func (s *scene) documented(ctx context.Context, document string) (string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	commands := console(lines)
	if len(commands) == 0 {
		return "", fmt.Errorf("%s shows no command; are its blocks still marked ```console?", document)
	}
	shell, err := newShell(ctx, s)
	if err != nil {
		return "", err
	}
	defer shell.end()
	var failed []error
	for i := range commands {
		c := &commands[i]
		printed, err := shell.run(ctx, c.command)
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", c.command, err, strings.Join(printed, "; "))
		}
		if os.Getenv("E2E_UPDATE") != "" {
			c.output = printed
			continue
		}
		if missing := c.missing(printed); len(missing) > 0 {
			failed = append(failed, fmt.Errorf("%q did not print %q; it printed %q", c.command, missing, printed))
		}
	}
	if os.Getenv("E2E_UPDATE") != "" {
		return "written anew", os.WriteFile(document, []byte(strings.Join(rewritten(lines, commands), "\n")), 0o644)
	}
	return fmt.Sprintf("%d commands print the documented output", len(commands)), errors.Join(failed...)
}

// rewritten returns the document with the current outputs.
func rewritten(lines []string, commands []shown) []string {
	var out []string
	at := 0
	for _, c := range commands {
		out = append(out, lines[at:c.line]...)
		out = append(out, c.output...)
		at = c.end
	}
	return append(out, lines[at:]...)
}

// shell runs commands one after the other in one environment.
type shell struct {
	environment []string
	folder      string
	kept        string // file with the environment between commands
	// usual replaces values of this run by the usual values.
	usual *strings.Replacer
	down  func() error
}

func newShell(ctx context.Context, s *scene) (*shell, error) {
	folder, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	binaries := filepath.Join(folder, "bin")
	if _, err := os.Stat(filepath.Join(binaries, "kubectl")); err != nil {
		return nil, fmt.Errorf("the documentation shows kubectl: %w; make kubernetes builds it", err)
	}
	// The commands have another home, but use the same Go caches.
	caches, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("the documentation shows make: go env: %w", err)
	}
	compiled, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	temporary, err := os.MkdirTemp("", "vicinity-e2e-")
	if err != nil {
		return nil, err
	}
	options := lab.Options{Root: filepath.Join(temporary, "labs"), Program: s.options.Program}
	name := fmt.Sprintf("documented-%d", os.Getpid())
	return &shell{
		folder: folder,
		kept:   filepath.Join(temporary, "environment"),
		usual:  strings.NewReplacer(options.Root, "~/.local/state/vicinity/lab", name, shape.DefaultName),
		environment: append(os.Environ(),
			"VICINITY_LAB_DIR="+options.Root, "VICINITY_LAB_NAME="+name, "HOME="+temporary, "GOCACHE="+compiled, "GOMODCACHE="+modules,
			"PATH="+binaries+":"+os.Getenv("PATH")),
		down: func() error {
			return errors.Join(lab.Down(context.Background(), name, options), os.RemoveAll(temporary))
		},
	}, nil
}

// end takes the lab down if the commands did not.
func (s *shell) end() { _ = s.down() }

func (s *shell) run(ctx context.Context, command string) (printed []string, err error) {
	script := fmt.Sprintf("[ ! -e %[1]s ] || . %[1]s\n%[2]s\nstatus=$?\nexport -p >%[1]s\nexit $status\n", s.kept, command)
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = s.folder, s.environment
	output, err := cmd.CombinedOutput()
	output = bytes.TrimRight(output, "\n")
	if len(output) == 0 {
		return nil, err
	}
	for line := range strings.SplitSeq(s.usual.Replace(string(output)), "\n") {
		// kubectl prints this line a varying number of times.
		if !strings.HasPrefix(line, "Waiting for ") {
			printed = append(printed, strings.TrimRight(line, " "))
		}
	}
	return printed, err
}
