package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/lab/fabric"
)

// The kinds of probes.
const (
	startupProbe   = "Startup"
	readinessProbe = "Readiness"
	livenessProbe  = "Liveness"
)

func (w *worker) runPostStart(spec *corev1.Container, c *container) {
	if spec.Lifecycle == nil || spec.Lifecycle.PostStart == nil {
		w.startProbes(spec, c)
		return
	}
	a := c.Current
	call := w.newHookCall(spec, a)
	call.handler = spec.Lifecycle.PostStart
	go func() {
		err := w.runHook(w.ctx, call)
		w.post(func() {
			switch {
			case c.Current != a || !c.isRunning():
			case err != nil:
				w.recordEvent(spec, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
				w.stop(spec.Name, w.agent.now().Add(gracePeriod(w.pod)), "FailedPostStartHook")
			default:
				w.startProbes(spec, c)
			}
		})
	}()
}

// startProbes starts the startup probe, or once that has passed the other probes.
func (w *worker) startProbes(spec *corev1.Container, c *container) {
	if spec.StartupProbe != nil && !c.Started {
		w.runProbe(spec, c.Current, startupProbe, spec.StartupProbe)
		return
	}
	c.Started = true
	if spec.ReadinessProbe != nil {
		w.runProbe(spec, c.Current, readinessProbe, spec.ReadinessProbe)
	} else {
		c.Passing = true
	}
	if spec.LivenessProbe != nil && c.Stopping == nil {
		w.runProbe(spec, c.Current, livenessProbe, spec.LivenessProbe)
	}
	w.save()
}

func (w *worker) runProbe(spec *corev1.Container, a *attempt, kind string, p *corev1.Probe) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.probes[spec.Name+"/"+kind] = cancel
	call := w.newHookCall(spec, a)
	now := w.agent.now
	state := probeState{begun: a.Begun}
	if delay := a.Begun.Add(seconds(int64(p.InitialDelaySeconds))); delay.After(now()) {
		state.begun = delay
	}
	go func() {
		defer cancel()
		said := undecided
		for at := state.begun; sleep(ctx, at.Sub(now())); {
			err := w.probeOnce(ctx, call, p)
			if ctx.Err() != nil {
				return
			}
			if w.node.stopped.Load() {
				at = now().Add(time.Second)
				continue
			}
			failures := state.failures
			var v verdict
			v, at = state.observe(p, err == nil, now())
			if err != nil && state.failures > failures {
				w.post(func() { w.recordEvent(spec, corev1.EventTypeWarning, "Unhealthy", kind+" probe failed: "+err.Error()) })
			}
			if v != undecided && (v != said || v == failing) {
				said = v
				w.post(func() { w.applyVerdict(spec, a, kind, v) })
			}
			if kind == startupProbe && v == passing {
				return
			}
		}
	}()
}

// sleep waits, and reports whether the context still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// applyVerdict records a probe's verdict, and stops a container that fails it.
func (w *worker) applyVerdict(spec *corev1.Container, a *attempt, kind string, v verdict) {
	c := w.record.Containers[spec.Name]
	if c == nil || c.Current != a || !c.isRunning() {
		return
	}
	switch {
	case kind == readinessProbe:
		c.Passing = v == passing
	case v == passing && kind == startupProbe:
		c.Started = true
		w.startProbes(spec, c)
	case v == failing && c.Stopping == nil:
		p := spec.LivenessProbe
		if kind == startupProbe {
			p = spec.StartupProbe
		}
		wait := gracePeriod(w.pod)
		if p.TerminationGracePeriodSeconds != nil {
			wait = seconds(*p.TerminationGracePeriodSeconds)
		}
		w.stop(spec.Name, w.agent.now().Add(wait),
			fmt.Sprintf("Container %s failed %s probe, will be restarted", spec.Name, strings.ToLower(kind)))
	}
	w.save()
}

func (w *worker) probeOnce(ctx context.Context, call hookCall, p *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(int64(max(p.TimeoutSeconds, 1))))
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		return w.probeHTTP(ctx, call, p.HTTPGet)
	case p.TCPSocket != nil:
		addr, err := probeAddress(call, p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := w.dial(ctx, call.pod, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.GRPC != nil:
		return w.checkHealth(ctx, call, p.GRPC)
	case p.Exec != nil:
		return w.runCommand(ctx, call, p.Exec.Command)
	}
	return errors.New("a lab has probes of these kinds: httpGet, tcpSocket, grpc, exec")
}

func (w *worker) dial(ctx context.Context, pod *corev1.Pod, addr string) (net.Conn, error) {
	return fabric.Dial(ctx, w.namespace(pod), "tcp", addr)
}

// probeAddress is the address of a probe or hook, by default of the pod itself.
func probeAddress(call hookCall, host string, port intstr.IntOrString) (string, error) {
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, p := range call.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 {
		return "", fmt.Errorf("port %q: it is no number, nor the name of a port of container %s", port.String(), call.spec.Name)
	}
	if host == "" || host == "localhost" {
		addrs := podAddresses(call.pod, call.record)
		if len(addrs) == 0 {
			return "", errors.New("the pod has no address")
		}
		host = addrs[0].String()
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "", fmt.Errorf("host %q: write an IP address", host)
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// probeHTTP sends a GET request. Any status from 200 to 399 is a success.
func (w *worker) probeHTTP(ctx context.Context, call hookCall, action *corev1.HTTPGetAction) error {
	addr, err := probeAddress(call, action.Host, action.Port)
	if err != nil {
		return err
	}
	path, err := url.Parse(action.Path)
	if err != nil {
		path = &url.URL{Path: action.Path}
	}
	path.Scheme, path.Host = strings.ToLower(string(action.Scheme)), addr
	if path.Scheme == "" {
		path.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/vicinity")
	for _, h := range action.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
		if strings.EqualFold(h.Name, "host") {
			request.Host = h.Value
		}
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		// Like a kubelet, it does not verify the certificates of pods.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, call.pod, addr)
		},
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 10<<10)); err != nil {
		return err
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

type hookCall struct {
	pod     *corev1.Pod
	spec    *corev1.Container
	record  *record
	attempt attempt
	handler *corev1.LifecycleHandler
}

// newHookCall copies the state of a container, for use outside the worker's goroutine.
func (w *worker) newHookCall(spec *corev1.Container, a *attempt) hookCall {
	return hookCall{
		pod: w.pod, spec: spec, attempt: *a,
		record: &record{Addresses: w.record.Addresses, Hosts: w.record.Hosts},
	}
}

func (w *worker) runHook(ctx context.Context, call hookCall) error {
	switch h := call.handler; {
	case h.Exec != nil:
		return w.runCommand(ctx, call, h.Exec.Command)
	case h.HTTPGet != nil:
		return w.probeHTTP(ctx, call, h.HTTPGet)
	case h.Sleep != nil:
		sleep(ctx, seconds(h.Sleep.Seconds))
	}
	return nil
}
