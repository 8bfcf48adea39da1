package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/kit/command"
)

// serveConsole runs the command until the test ends, and returns the printed address.
func (c *fakeCluster) serveConsole(t *testing.T, args ...string) *url.URL {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: writer, Err: &stderr}, c.connect)
	go func() { ended <- command.Execute(ctx, cmd, args) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d when it is interrupted: %s", code, &stderr)
		}
	})
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	address, err := url.Parse(strings.TrimSpace(string(line[:n])))
	if err != nil || address.Hostname() != "127.0.0.1" || address.Query().Get("token") == "" {
		t.Fatalf("it prints %q, %v", line[:n], err)
	}
	return address
}

// ask reads a view once everything is read.
func ask(t *testing.T, address *url.URL, path string, view any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Host+"/api/v1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+address.Query().Get("token"))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		whole := struct {
			About struct{ Waiting []string }
			View  any
		}{View: view}
		if err == nil && answer.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, &whole)
		}
		if err == nil && answer.StatusCode == http.StatusOK && len(whole.About.Waiting) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GET %s: %s: %s, %v", path, answer.Status, text, err)
		}
	}
}

// A namespace limits what is read.
func TestConsoleOfANamespace(t *testing.T) {
	address := newFakeCluster(t).serveConsole(t, "-n", "ops", "--traffic-interval", "0")
	var list struct{ Services []struct{ Namespace string } }
	ask(t, address, "/services", &list)
	if len(list.Services) != 2 || list.Services[0].Namespace != "ops" {
		t.Errorf("got %v", list.Services)
	}
}

func TestConsoleRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--address", "0.0.0.0"}, `--address "0.0.0.0" is not allowed; it must be a loopback address, such as 127.0.0.1 or ::1`},
		{[]string{"--address", "192.0.2.1"}, "--address"},
		{[]string{"--address", "localhost"}, "--address"},
		{[]string{"--port", "70000"}, "--port 70000 is not allowed; it must be from 0 to 65535"},
		{[]string{"--port", "-1"}, "--port -1"},
		{[]string{"--traffic-interval", "10ms"}, "--traffic-interval 10ms is not allowed; it must be 0, or 1s or more"},
		{[]string{"--zone", "a b"}, `--zone "a b" is not a domain`},
	} {
		var stdout, stderr bytes.Buffer
		cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, newFakeCluster(t).connect)
		cmd.SetErr(&stderr)
		if code := command.Execute(t.Context(), cmd, test.args); code != command.ExitUsage || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, code, &stderr)
		}
	}
}
