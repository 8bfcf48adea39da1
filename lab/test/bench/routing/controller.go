package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// controller is the program under test, a process of the host.
type controller struct {
	command *exec.Cmd
	log     *os.File
	// metrics and pprof are addresses.
	metrics, pprof string
	ended          chan struct{}
}

// start starts the controller. If it ends by itself, the context is cancelled.
func (o *options) start(ctx context.Context, folder, kubeconfig string, lost context.CancelCauseFunc) (*controller, error) {
	c := &controller{ended: make(chan struct{})}
	var err error
	if c.metrics, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if c.pprof, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if c.log, err = os.Create(filepath.Join(folder, "controller.log")); err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig", kubeconfig, "--namespace", "vicinity-system", "--leader-elect=false",
		"--health-probe-bind-address", "0", "--metrics-bind-address", c.metrics,
	}
	if o.profiles != "" {
		args = append(args, "--pprof-bind-address", c.pprof)
	}
	c.command = exec.Command(filepath.Join(o.bin, "vicinity-controller"), append(args, o.flags...)...)
	c.command.Stderr = c.log
	// An interrupt of this program does not reach the controller.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the controller: %w", err), c.log.Close())
	}
	go func() {
		defer close(c.ended)
		err := c.command.Wait()
		lost(fmt.Errorf("the controller ended (%w): %s", orEnded(err), meter.LogEnd(c.log)))
	}()
	return c, nil
}

var errNoError = errors.New("without an error")

func orEnded(err error) error {
	if err == nil {
		return errNoError
	}
	return err
}

// stop ends the controller and waits for its end.
func (c *controller) stop() error {
	err := c.command.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-c.ended
	return errors.Join(err, c.log.Close())
}

// freeAddress returns an unused address of the host.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	return address, listener.Close()
}

// cpu is the controller's CPU time.
func (c *controller) cpu() (time.Duration, error) { return meter.CPU(c.command.Process.Pid, meter.Own) }

// memory is the controller's peak memory in bytes.
func (c *controller) memory() (int64, error) {
	return meter.Memory(c.command.Process.Pid, meter.Peak)
}

// writes is the number of the controller's write requests.
func (c *controller) writes(ctx context.Context) (int, error) {
	response, err := get(ctx, "http://"+c.metrics+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the controller's metrics: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("reading the controller's metrics: %w", err)
	}
	return countWrites(string(text))
}

func get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, errors.New(response.Status)
	}
	return response, nil
}

// countWrites sums the counters of a client's write requests.
func countWrites(metrics string) (int, error) {
	total, found := 0.0, false
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "rest_client_requests_total{") {
			continue
		}
		found = true
		if strings.Contains(line, `method="GET"`) {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		total += n
	}
	if !found {
		return 0, errors.New("the controller does not count its requests")
	}
	return int(total), nil
}

const (
	// quietTime is how long a controller that is done writes nothing.
	quietTime = 3 * time.Second
	// pollPeriod is how often the controller is asked, which costs it time too.
	pollPeriod = 500 * time.Millisecond
)

// quiet waits until the controller has stopped writing, and returns the number of writes.
func (c *controller) quiet(ctx context.Context) (int, error) {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	before, since := -1, time.Now()
	for {
		writes, err := c.writes(ctx)
		if err != nil {
			return 0, err
		}
		if writes != before {
			before, since = writes, time.Now()
		}
		if time.Since(since) >= quietTime {
			return writes, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
