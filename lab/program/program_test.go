package program

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long to wait for what must happen.
const patience = 30 * time.Second

// running is a program that a test started.
type running struct {
	t     *testing.T
	end   context.CancelFunc
	code  chan int
	lines chan string // of its output; closed when it ended

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.Write(p)
}

func start(t *testing.T, name string, env []string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, end: cancel, code: make(chan int, 1), lines: make(chan string, 100)}
	read, write := io.Pipe()
	ended := make(chan struct{})
	go func() {
		r.code <- Run(ctx, Call{Name: name, Args: args, Env: env, Stdout: write, Stderr: r})
		_ = write.Close() // a pipe always closes
	}()
	go func() {
		defer close(ended)
		defer close(r.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s does not end", name)
		}
	})
	return r
}

// line waits for a line of output that begins so, and returns the rest.
func (r *running) line(prefix string) string {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.t.Fatalf("the program ended before it said %q: %s", prefix, r.stderr.String())
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-deadline:
			r.t.Fatalf("the program does not say %q", prefix)
		}
	}
}

// ends waits for the exit code.
func (r *running) ends(want int) {
	r.t.Helper()
	select {
	case got := <-r.code:
		if got != want {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Errorf("exit code %d, want %d: %s", got, want, r.stderr.String())
		}
	case <-time.After(patience):
		r.t.Fatal("the program does not end")
	}
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("it never comes to pass that %s", what)
		}
	}
}

func TestWrongUseIsExplained(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{name: "ping", want: `program "ping" is unknown; it must be one of client, echo, sleep`},
		{name: "echo", args: []string{"now"}, want: `echo: argument "now" is not a flag; echo takes flags only`},
		{name: "echo", args: []string{"--http-port", "70000"}, want: "echo: --http-port 70000 is no port; it must be from -1 to 65535"},
		{name: "echo", args: []string{"--host", "localhost"}, want: `echo: --host "localhost" is no IP address; it must be one, or empty`},
		{name: "echo", args: []string{"--delay", "-1s"}, want: `echo: invalid value "-1s" for flag -delay: delay "-1s" is no time; it must be like 50ms, or 0`},
		{name: "echo", env: []string{"ECHO_CRASH=300"}, want: `echo: ECHO_CRASH="300": crash "300" is no exit code; it must be a number from 0 to 255`},
		{name: "echo", env: []string{"ECHO_READY=perhaps"}, want: `echo: ECHO_READY="perhaps": ready "perhaps" is unknown; it must be true or false`},
		{name: "echo", env: []string{"ECHO_LIVE=perhaps"}, want: `echo: ECHO_LIVE="perhaps": live "perhaps" is unknown; it must be true or false`},
		{name: "echo", env: []string{"ECHO_UNREADY_AFTER=-1"}, want: `echo: ECHO_UNREADY_AFTER="-1": unready-after "-1" is no number of answers; it must be 0 or more`},
		{name: "sleep", args: []string{"--duration", "long"}, want: `sleep: invalid value "long" for flag -duration: parse error`},
	} {
		t.Run(test.name+" "+strings.Join(append(test.env, test.args...), " "), func(t *testing.T) {
			var stderr bytes.Buffer
			code := Run(t.Context(), Call{Name: test.name, Args: test.args, Env: test.env, Stdout: io.Discard, Stderr: &stderr})
			if got := strings.TrimSpace(stderr.String()); code != exitUsage || got != test.want {
				t.Errorf("exit code %d\ngot  %s\nwant %s", code, got, test.want)
			}
		})
	}
}

func TestHelpListsTheFlags(t *testing.T) {
	for _, name := range Names() {
		var stderr bytes.Buffer
		if code := Run(t.Context(), Call{Name: name, Args: []string{"--help"}, Stdout: io.Discard, Stderr: &stderr}); code != 0 {
			t.Errorf("%s --help ends with %d", name, code)
		}
		if text := stderr.String(); !strings.HasPrefix(text, name+" has these flags:\n") || strings.Count(text, "\n  -") < 2 {
			t.Errorf("%s --help says:\n%s", name, text)
		}
	}
}

func TestSleepEndsWell(t *testing.T) {
	for _, name := range []string{"sleep", "client"} {
		sleeping := start(t, name, nil)
		sleeping.end()
		sleeping.ends(0)
	}

	start(t, "sleep", []string{"SLEEP_CODE=7"}, "--duration", "1ms").ends(7)
}

// Signals reach every program of this process, so no other test may run beside this.
func TestASignalAsksToEnd(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		echo := start(t, "echo", local, "--drain", "1ms")
		echo.line("listening ")
		if err := syscall.Kill(os.Getpid(), sent); err != nil {
			t.Fatal(err)
		}
		echo.line("draining for 1ms")
		echo.ends(0)
	}
}
