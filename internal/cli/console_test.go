package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/command"
)

// serveConsole runs the command until the test ends, and returns the address that it prints.
func (c *fakeCluster) serveConsole(t *testing.T, args ...string) *url.URL {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var said bytes.Buffer
	cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: writer, Err: &said}, c.connect)
	go func() { ended <- command.Execute(ctx, cmd, args) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d when it is interrupted: %s", code, &said)
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

// ask reads a view once all is read.
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

// Origins are allowed as browsers write them.
func TestConsoleAllowsAnOrigin(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "http://localhost:4466": "http://localhost:4466", "http://127.0.0.1:4466": "http://127.0.0.1:4466", "http://[::1]:80": "http://[::1]",
		"https://Headlamp.Example:443": "https://headlamp.example", "https://headlamp.example:8443": "https://headlamp.example:8443",
	} {
		f := consoleFlags{allowOrigin: given}
		if got, err := f.origin(); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
	address := newFakeCluster(t).serveConsole(t, "--traffic-interval", "0", "--allow-origin", "http://localhost:4466")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Host+"/api/v1/cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", "http://localhost:4466")
	request.Header.Set("Authorization", "Bearer "+address.Query().Get("token"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Access-Control-Allow-Origin") != "http://localhost:4466" {
		t.Errorf("%s %v", answer.Status, answer.Header)
	}
}

// What the console has about a pod is what explain prints.
func TestConsoleExplainsPods(t *testing.T) {
	c := newBudgeted().budget("zonal").down(1).cluster(t)
	var view struct{ Explanation map[string]any }
	ask(t, c.serveConsole(t, "--traffic-interval", "0"), "/pods/shop/web-0", &view)
	code, stdout, stderr := c.run(t.Context(), "explain", "pod/web-0", "-n", "shop", "-o", "json")
	var want map[string]any
	if err := json.Unmarshal([]byte(stdout), &want); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	if !reflect.DeepEqual(view.Explanation, want) {
		t.Errorf("the console has\n%v\nexplain prints\n%v", view.Explanation, want)
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
		{[]string{"--address", "0.0.0.0"}, `--address "0.0.0.0" is not allowed; it must be an address of this machine alone`},
		{[]string{"--address", "192.0.2.1"}, "--address"},
		{[]string{"--address", "localhost"}, "--address"},
		{[]string{"--port", "70000"}, "--port 70000 is not allowed; it must be from 0 to 65535"},
		{[]string{"--port", "-1"}, "--port -1"},
		{[]string{"--traffic-interval", "10ms"}, "--traffic-interval 10ms is not allowed; it must be 0, or 1s or more"},
		{[]string{"--zone", "a b"}, `--zone "a b" is no domain`},
		{[]string{"--allow-origin", "*"}, `--allow-origin "*" is not allowed; it must be the origin of one site without a path`},
		{[]string{"--allow-origin", "null"}, `--allow-origin "null"`},
		{[]string{"--allow-origin", "http://localhost:4466/"}, "without a path"},
		{[]string{"--allow-origin", "https://*.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://a.example,https://b.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://user@a.example"}, "--allow-origin"},
		{[]string{"--allow-origin", "https://a.example:"}, "--allow-origin"},
		{[]string{"--allow-origin", "http://headlamp.example"}, "https://HOST"},
		{[]string{"--allow-origin", "file://x"}, "--allow-origin"},
		{[]string{"--allow-origin", "localhost:4466"}, "--allow-origin"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := newConsoleCommand(command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, newFakeCluster(t).connect)
		cmd.SetErr(&stderr)
		if code := command.Execute(t.Context(), cmd, test.args); code != command.ExitUsage || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, code, &stderr)
		}
	}
}
