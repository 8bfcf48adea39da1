package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium, spoken to through the Chrome DevTools protocol
// over a pair of pipes: messages are JSON that ends with a zero byte. Nothing of it
// runs beside the test: messages are read while an answer is awaited.
type browser struct {
	to      io.Writer
	from    *bufio.Reader
	session string
	last    int     // id of the last command
	events  []event // since the last visit
	ended   bool    // it crashed, or took too long
	log     bytes.Buffer
}

// event is something that the browser tells unasked.
type event struct {
	Method string
	Params json.RawMessage
}

// message is what the browser sends: an event, or the answer to a command.
type message struct {
	event
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// patience is how long the browser may take for all that a test asks of it.
const patience = 2 * time.Minute

// openBrowser starts a browser with one empty page, for as long as the test runs.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed; apt-get install chromium")
	}
	home := t.TempDir()
	args := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + filepath.Join(home, "profile"),
		"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-breakpad", "--disable-dev-shm-usage",
		"--hide-scrollbars",
	}
	if os.Geteuid() == 0 {
		// Chromium's sandbox refuses to run as root.
		args = append(args, "--no-sandbox")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "HOME="+home)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The browser has processes of its own, which must not outlive it: they write
	// to the profile.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	b := &browser{}
	command.Stderr = &b.log
	b.connect(t, command)
	t.Cleanup(func() {
		cancel()
		// It was killed, so its exit code tells nothing.
		var killed *exec.ExitError
		if err := command.Wait(); err != nil && !errors.As(err, &killed) {
			t.Logf("waiting for chromium: %v", err)
		}
		if b.ended {
			t.Logf("chromium said: %s", b.log.Bytes())
		}
	})
	b.openPage(t)
	return b
}

// connect starts the command with the pipes that it expects as file descriptors 3
// and 4.
func (b *browser) connect(t *testing.T, command *exec.Cmd) {
	t.Helper()
	commandsOut, commandsIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answersOut, answersIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{commandsOut, answersIn}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for _, theirs := range command.ExtraFiles {
		if err := theirs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.to, b.from = commandsIn, bufio.NewReader(answersOut)
}

// openPage makes the page and asks to be told what goes wrong in it.
func (b *browser) openPage(t *testing.T) {
	t.Helper()
	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(t, domain+".enable", nil, nil)
	}
}

// object is a JSON object.
type object map[string]any

// call sends a command and waits for its answer, which is read into result unless
// that is nil.
func (b *browser) call(t *testing.T, method string, params object, result any) {
	t.Helper()
	b.last++
	request := object{"id": b.last, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	data, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.to.Write(append(data, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		m, err := b.read()
		switch {
		case err != nil:
			t.Fatalf("%s: %v", method, err)
		case m.ID != b.last:
			b.events = append(b.events, m.event)
		case m.Error != nil:
			t.Fatalf("%s: %s", method, m.Error.Message)
		case result == nil:
			return
		default:
			if err := json.Unmarshal(m.Result, result); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			return
		}
	}
}

func (b *browser) read() (message, error) {
	data, err := b.from.ReadBytes(0)
	if err != nil {
		b.ended = true
		return message{}, fmt.Errorf("chromium ended: %w", err)
	}
	var m message
	err = json.Unmarshal(data[:len(data)-1], &m)
	return m, err
}

// visit opens a file in a window of the given width and waits until it is loaded.
func (b *browser) visit(t *testing.T, file string, width int) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride", object{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.events = nil
	var went struct{ ErrorText string }
	b.call(t, "Page.navigate", object{"url": "file://" + file}, &went)
	if went.ErrorText != "" {
		t.Fatalf("opening %s: %s", file, went.ErrorText)
	}
	for !b.saw("Page.loadEventFired") {
		m, err := b.read()
		if err != nil {
			t.Fatal(err)
		}
		b.events = append(b.events, m.event)
	}
}

func (b *browser) saw(method string) bool {
	for _, e := range b.events {
		if e.Method == method {
			return true
		}
	}
	return false
}

// evaluate runs an expression in the page and reads its value into result.
func (b *browser) evaluate(t *testing.T, expression string, result any) {
	t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call(t, "Runtime.evaluate", object{"expression": expression, "returnByValue": true}, &answer)
	if e := answer.ExceptionDetails; e != nil {
		t.Fatalf("evaluating %s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		t.Fatalf("evaluating %s: %v", expression, err)
	}
}

// complaints are what the browser found wrong since the last visit: errors and
// warnings on the console, exceptions, requests that failed, and requests for
// anything but the file itself.
func (b *browser) complaints(t *testing.T, file string) []string {
	t.Helper()
	// What the page did until now has been reported when this is answered.
	var done bool
	b.evaluate(t, "true", &done)
	var found []string
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed", "Page.javascriptDialogOpening":
			found = append(found, e.Method+" "+string(e.Params))
		case "Network.requestWillBeSent":
			var request struct{ Request struct{ URL string } }
			if err := json.Unmarshal(e.Params, &request); err != nil {
				t.Fatal(err)
			}
			if url := request.Request.URL; url != "file://"+file && url != "data:," {
				found = append(found, "a request for "+url)
			}
		}
	}
	return found
}

// screenshot saves the whole page as a picture.
func (b *browser) screenshot(t *testing.T, file string) {
	t.Helper()
	var picture struct{ Data []byte }
	b.call(t, "Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true}, &picture)
	if err := os.WriteFile(file, picture.Data, 0o600); err != nil {
		t.Fatal(err)
	}
}
