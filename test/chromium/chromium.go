// Package chromium drives a headless Chromium for tests that open pages as users do.
//
// It speaks the Chrome DevTools protocol over a pair of pipes: messages are JSON that ends with a zero
// byte. It starts no goroutine: it reads messages while it waits for an answer.
package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Browser is a browser with one page.
type Browser struct {
	command *exec.Cmd
	cancel  context.CancelFunc
	to      io.Writer
	from    *bufio.Reader
	session string
	last    int     // id of the last command
	events  []event // since the last visit
}

// event is a message of the browser that is not an answer.
type event struct {
	Method string
	Params json.RawMessage
}

// message is an event, or the answer to a command.
type message struct {
	event
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// object is a JSON object.
type object map[string]any

// errPageLeft reports that the page was left before it answered.
var errPageLeft = errors.New("the page was left")

// apart is the interval of Until.
const apart = 20 * time.Millisecond

// pageLeftMessages is the browser's message for errPageLeft.
var pageLeftMessages = []string{"Inspected target navigated or closed", "Execution context was destroyed.", "Cannot find default execution context"}

// Open starts a browser that keeps its profile in a folder, until it is closed or the context ends.
func Open(ctx context.Context, folder string) (*Browser, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("%w; apt-get install chromium", err)
	}
	args := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + filepath.Join(folder, "profile"),
		"--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-breakpad", "--disable-dev-shm-usage",
		"--hide-scrollbars",
	}
	if os.Geteuid() == 0 {
		// Chromium's sandbox refuses to run as root.
		args = append(args, "--no-sandbox")
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &Browser{cancel: cancel, command: exec.CommandContext(ctx, program, args...)}
	b.command.Env = append(os.Environ(), "HOME="+folder)
	b.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The processes of the browser must not outlive it: they write to the profile.
	b.command.Cancel = func() error { return syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL) }
	if err := b.connect(); err != nil {
		cancel()
		return nil, err
	}
	if err := b.openPage(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends the browser.
func (b *Browser) Close() error {
	b.cancel()
	// it was killed, so its exit code means nothing
	var killed *exec.ExitError
	if err := b.command.Wait(); err != nil && !errors.As(err, &killed) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("waiting for chromium: %w", err)
	}
	return nil
}

// connect starts the browser with the pipes that it expects as file descriptors 3 and 4.
func (b *Browser) connect() error {
	commandsOut, commandsIn, err := os.Pipe()
	if err != nil {
		return err
	}
	answersOut, answersIn, err := os.Pipe()
	if err != nil {
		return err
	}
	b.command.ExtraFiles = []*os.File{commandsOut, answersIn}
	if err := b.command.Start(); err != nil {
		return err
	}
	for _, theirs := range b.command.ExtraFiles {
		if err := theirs.Close(); err != nil {
			return err
		}
	}
	b.to, b.from = commandsIn, bufio.NewReader(answersOut)
	return nil
}

// openPage opens the page and subscribes to its faults.
func (b *Browser) openPage() error {
	var target struct{ TargetID string }
	if err := b.call("Target.createTarget", object{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var attached struct{ SessionID string }
	if err := b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := b.call(domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// call sends a command, waits for its answer, and reads it into result unless that is nil.
func (b *Browser) call(method string, params object, result any) error {
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
		return err
	}
	if _, err := b.to.Write(append(data, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		m, err := b.read()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case m.ID != b.last:
			b.events = append(b.events, m.event)
		case m.Error != nil && slices.Contains(pageLeftMessages, m.Error.Message):
			return fmt.Errorf("%s: %w: %s", method, errPageLeft, m.Error.Message)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		default:
			if err := json.Unmarshal(m.Result, result); err != nil {
				return fmt.Errorf("%s: %w", method, err)
			}
			return nil
		}
	}
}

func (b *Browser) read() (message, error) {
	data, err := b.from.ReadBytes(0)
	if err != nil {
		return message{}, fmt.Errorf("chromium ended: %w", err)
	}
	var m message
	err = json.Unmarshal(data[:len(data)-1], &m)
	return m, err
}

// Visit opens an address in a window of the given width and waits until it is loaded. A page that goes
// on to another one must be loaded before that.
func (b *Browser) Visit(url string, width int) error {
	if err := b.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil); err != nil {
		return err
	}
	b.events = nil
	var navigation struct{ ErrorText, LoaderID string }
	if err := b.call("Page.navigate", object{"url": url}, &navigation); err != nil {
		return err
	}
	if navigation.ErrorText != "" {
		return fmt.Errorf("opening %s: %s", url, navigation.ErrorText)
	}
	if navigation.LoaderID == "" {
		return fmt.Errorf("opening %s: the page is open already", url)
	}
	// Poll the page: an event of a page in another process may be missing, and a page without scripts
	// has none.
	for state := ""; state != "complete"; time.Sleep(apart) {
		if err := b.Evaluate("document.readyState", &state); err != nil {
			return err
		}
	}
	return nil
}

// Evaluate runs an expression in the page, awaits a promise, and reads the value into result.
func (b *Browser) Evaluate(expression string, result any) error {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := b.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer); err != nil {
		return err
	}
	if e := answer.ExceptionDetails; e != nil {
		return fmt.Errorf("evaluating %s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		return fmt.Errorf("evaluating %s: %w", expression, err)
	}
	return nil
}

// PressTab presses the key Tab.
func (b *Browser) PressTab() error {
	for _, kind := range []string{"keyDown", "keyUp"} {
		if err := b.call("Input.dispatchKeyEvent", object{"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Complaints returns the faults since the last visit: errors and warnings on the console, exceptions,
// failed requests, and forbidden requests.
func (b *Browser) Complaints(allowed func(url string) bool) ([]string, error) {
	// After this answer, all earlier faults were reported.
	var done bool
	if err := b.Evaluate("true", &done); err != nil {
		return nil, err
	}
	var found []string
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening":
			found = append(found, e.Method+" "+string(e.Params))
		case "Network.loadingFailed":
			// A stream of events ends with its page.
			var failed struct{ Canceled bool }
			if err := json.Unmarshal(e.Params, &failed); err != nil {
				return nil, err
			}
			if !failed.Canceled {
				found = append(found, e.Method+" "+string(e.Params))
			}
		case "Network.requestWillBeSent":
			var request struct{ Request struct{ URL string } }
			if err := json.Unmarshal(e.Params, &request); err != nil {
				return nil, err
			}
			if url := request.Request.URL; url != "data:," && !allowed(url) {
				found = append(found, "a request for "+url)
			}
		}
	}
	return found, nil
}

// Screenshot saves the top of the page as a picture with a height.
func (b *Browser) Screenshot(file string, height int) error {
	var width int
	if err := b.Evaluate("innerWidth", &width); err != nil {
		return err
	}
	clip := object{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
	var picture struct{ Data []byte }
	if err := b.call("Page.captureScreenshot", object{"format": "png", "clip": clip, "captureBeyondViewport": true}, &picture); err != nil {
		return err
	}
	return os.WriteFile(file, picture.Data, 0o644)
}

// Prefers emulates a preference of the user, such as the color scheme "dark".
func (b *Browser) Prefers(feature, value string) error {
	return b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": feature, "value": value}}}, nil)
}

// Until evaluates an expression until it is true, in the page that is open then.
func (b *Browser) Until(ctx context.Context, expression string) error {
	for {
		var isTrue bool
		if err := b.Evaluate("Boolean("+expression+")", &isTrue); err != nil && !errors.Is(err, errPageLeft) {
			return err
		}
		if isTrue {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting until %s: %w", expression, ctx.Err())
		case <-time.After(apart):
		}
	}
}
