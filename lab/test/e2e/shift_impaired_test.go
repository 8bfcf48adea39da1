package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

const (
	// Clients must be as well off as before within helpTime after a shift. sampleTime is how long each sample sends.
	helpTime   = 30 * time.Second
	sampleTime = 2 * time.Second
	// helpMargin is how much higher the p99 of a sample may be than before the impairment.
	helpMargin = 50 * time.Millisecond
	// impairedDelay is that of the uplink. Opening a connection and an answer take four times as long.
	impairedDelay = 300 * time.Millisecond
	// keptConnections stay open to each of the Services with a cluster IP.
	keptConnections = 24
)

// impairedServices are Services of kube-proxy, vicinity-proxy, and with a node port, for the same pods.
const impairedServices = `---
apiVersion: v1
kind: Service
metadata: {name: vicinity, annotations: {vicinity.dev/proxy: "true"}}
spec:
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
  - {name: tcp, port: 81, targetPort: tcp}
---
apiVersion: v1
kind: Service
metadata: {name: node-port}
spec:
  type: NodePort
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
`

// shiftImpaired impairs the uplink of a zone, and takes the zone out of service. Clients in other zones
// must then be as well off as before.
func shiftImpaired(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	check(s.Apply(ctx, s.namespace, impairedServices))
	services := []string{"echo", "vicinity", "node-port"}
	for _, service := range services {
		check(s.WaitEndpoints(ctx, s.namespace, service, echoes))
	}
	check(s.waitServedBy(ctx, "vicinity", true))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	var jobs, inside []lab.LoadJob
	for _, service := range services {
		outsiders, insiders, err := s.impairedJobs(ctx, service)
		check(err)
		jobs, inside = append(jobs, outsiders), append(inside, insiders)
	}
	var healthy []load.Result
	check(kube.Wait(ctx, "healthy clients to be much faster than impaired ones", func(ctx context.Context) (slow string, err error) {
		if healthy, err = sampled(ctx, jobs); err != nil {
			return "", err
		}
		if slices.ContainsFunc(healthy, func(r load.Result) bool { return p99(r) > impairedDelay }) {
			slow = "their p99 is " + p99s(healthy)
		}
		return slow, nil
	}))
	var kept []net.Conn
	defer func() {
		for _, conn := range kept {
			_ = conn.Close()
		}
	}()
	for _, job := range jobs[:2] {
		target := netip.AddrPortFrom(job.Plan.Targets[0].Addr(), 81).String()
		for i := range keptConnections {
			kept = append(kept, must(job.Sources[i%len(job.Sources)].Dial(ctx, "tcp", target)))
		}
	}
	keptBefore := must(s.answeredInside(kept))

	begun := time.Now()
	defer undo(&err, func() error {
		return errors.Join(s.cluster.RepairZone(context.WithoutCancel(ctx), s.shiftedZone()), s.unshift(ctx))
	})
	check(s.cluster.ImpairZone(ctx, s.shiftedZone(), shape.Impairment{Loss: 5, Delay: shape.Duration{Duration: impairedDelay}}))
	impaired := must(sampled(ctx, jobs))
	for i, service := range services {
		if isWell(impaired[i], healthy[i]) {
			return "", fmt.Errorf("the impairment does no harm to %s: p99 is %s, and was %s", service, p99s(impaired), p99s(healthy))
		}
	}
	commanded := time.Now()
	samples := must(s.sampledShift(ctx, jobs))
	var took []string
	var after []load.Result
	var calm load.Histogram
	for i, service := range services {
		// The last sample cannot be the first good one: others must follow.
		k := slices.IndexFunc(samples[:len(samples)-1], func(sample []load.Result) bool { return isWell(sample[i], healthy[i]) })
		if k < 0 {
			return "", fmt.Errorf("%s after the command, p99 of %s is not as before, %s: %s", helpTime, service, p99s(healthy), s.course(samples, i))
		}
		took = append(took, fmt.Sprintf("%.0f s", (time.Duration(k+1)*sampleTime).Seconds()))
		for _, sample := range samples[k+1:] {
			result := sample[i]
			if result.Failed() > 0 || slices.ContainsFunc(result.Flows, s.endsInside) {
				return "", fmt.Errorf("%s has left %s, and then has answers from there or failures: %s; %s", service, s.shiftedZone(), s.course(samples, i), failures(result))
			}
			calm.Merge(result.Latency())
			after = append(after, result)
		}
	}
	loads := map[string]int64{}
	var all, sent int64
	for _, result := range after {
		sent += result.Due
		for _, flow := range result.Flows {
			all += flow.Answers
			loads[flow.To.Pod] += flow.Answers
		}
	}
	// Of 6 endpoints 4 are left, and the bound is 50 %. A tenth is for chance.
	highest := float64(slices.Max(slices.Collect(maps.Values(loads)))) / float64(all) * echoes
	if highest > 1.5*1.1 {
		return "", fmt.Errorf("an endpoint has %.0f %% of the even load; loads are %v", 100*highest, loads)
	}
	var paid load.Histogram
	for i, result := range must(sampled(ctx, inside)) {
		if result.Answered == 0 || slices.ContainsFunc(result.Flows, s.endsInside) {
			return "", fmt.Errorf("clients in %s get answers of %s from their own zone, or none: %+v", s.shiftedZone(), services[i], result.Flows)
		}
		paid.Merge(result.Latency())
	}
	keptAfter := must(s.answeredInside(kept))
	keptFor := time.Since(commanded)
	ended, drainedAfter, err := s.drain(ctx, kept[keptConnections:])
	check(err)
	check(s.waitLeasesRenewed(ctx, s.shiftedZone()))
	check(s.stayedReady(ctx, begun))

	check(s.cluster.RepairZone(ctx, s.shiftedZone()))
	back := time.Now()
	check(s.unshift(ctx))
	check(s.waitAllUsed(ctx, echoes))
	backAfter := time.Since(back)
	must(s.waitAsBefore(ctx, before))
	return fmt.Sprintf("p99 of kube-proxy, vicinity-proxy and a node port outside the zone: healthy %s, impaired %s; back after %s, then %s of all; %d connections then, 0 failed; "+
		"the highest load is %.0f %% of the even share; inside p50 %s; %d of %d kept connections still end in the zone after %.0f s (%d before); "+
		"drainConnections ends the %d of vicinity-proxy after %.1f s; all back %.1f s after the deletion",
		p99s(healthy), p99s(impaired), strings.Join(took, ", "), rounded(calm.Quantile(0.99)), sent,
		100*highest, rounded(paid.Quantile(0.5)), keptAfter, len(kept), keptFor.Seconds(), keptBefore,
		ended, drainedAfter.Seconds(), backAfter.Seconds()), nil
}

// impairedJobs plans samples from clients outside and inside the shifted zone. Node ports are those of nodes outside.
func (s *scene) impairedJobs(ctx context.Context, service string) (outside, inside lab.LoadJob, err error) {
	options := lab.LoadOptions{
		Namespace: s.namespace, Service: service,
		Plan: load.Plan{Rate: 100, Duration: sampleTime, Timeout: replyTimeout, Patient: true},
	}
	if service == "node-port" {
		options.Via = lab.ViaNodePort
	}
	if outside, err = s.cluster.PlanLoad(ctx, options); err != nil {
		return outside, inside, err
	}
	outside.Plan.Service = "" // pods name the echo Service in their answers
	var own []netip.Addr
	for _, node := range s.cluster.Shape().Nodes() {
		if node.Zone == s.shiftedZone() {
			own = append(own, s.cluster.Shape().NodeAddrs(node)...)
		}
	}
	outside.Plan.Targets = slices.DeleteFunc(outside.Plan.Targets, func(target netip.AddrPort) bool { return slices.Contains(own, target.Addr()) })
	inside = outside
	inside.Sources = slices.DeleteFunc(slices.Clone(outside.Sources), func(source load.Source) bool { return source.Zone != s.shiftedZone() })
	outside.Sources = slices.DeleteFunc(outside.Sources, func(source load.Source) bool { return source.Zone == s.shiftedZone() })
	return outside, inside, nil
}

// sampled runs jobs at the same time.
func sampled(ctx context.Context, jobs []lab.LoadJob) ([]load.Result, error) {
	results, failed := make([]load.Result, len(jobs)), make([]error, len(jobs))
	var running sync.WaitGroup
	for i, job := range jobs {
		running.Go(func() { results[i], failed[i] = job.Run(ctx, load.Watch{}) })
	}
	running.Wait()
	return results, errors.Join(failed...)
}

// sampledShift takes the zone out of service, and returns samples from the command to the end of helpTime.
func (s *scene) sampledShift(ctx context.Context, jobs []lab.LoadJob) ([][]load.Result, error) {
	begun := time.Now()
	samples, failed := make([][]load.Result, helpTime/sampleTime), make([]error, helpTime/sampleTime)
	var running sync.WaitGroup
	var notShifted error
	running.Go(func() { _, notShifted = s.shift(ctx, "  for: 1h\n  ramp: 0s\n") })
	for k := range samples {
		// Requests of one sample may be late while the next is sent.
		running.Go(func() {
			if failed[k] = pause(ctx, time.Until(begun.Add(time.Duration(k)*sampleTime))); failed[k] == nil {
				samples[k], failed[k] = sampled(ctx, jobs)
			}
		})
	}
	running.Wait()
	return samples, errors.Join(append(failed, notShifted)...)
}

// course lists the p99 of a Service's samples, and how many answers come from the shifted zone.
func (s *scene) course(samples [][]load.Result, i int) string {
	var all []string
	for _, sample := range samples {
		var inside int64
		for _, flow := range sample[i].Flows {
			if s.endsInside(flow) {
				inside += flow.Answers
			}
		}
		all = append(all, fmt.Sprintf("%s (%d of %d)", rounded(p99(sample[i])), inside, sample[i].Answered))
	}
	return strings.Join(all, ", ")
}

func isWell(now, healthy load.Result) bool { return p99(now) <= p99(healthy)+helpMargin }

func p99(result load.Result) time.Duration {
	latency := result.Latency()
	return latency.Quantile(0.99)
}

func p99s(results []load.Result) string {
	var all []string
	for _, result := range results {
		all = append(all, rounded(p99(result)))
	}
	return strings.Join(all, ", ")
}

func rounded(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func (s *scene) endsInside(flow load.Flow) bool { return flow.To.Zone == s.shiftedZone() }

// answeredInside counts the connections whose next answer comes from the shifted zone.
func (s *scene) answeredInside(conns []net.Conn) (inside int, err error) {
	for _, conn := range conns {
		if err := conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
			return 0, err
		}
		if _, err := io.WriteString(conn, "x\n"); err != nil {
			return 0, fmt.Errorf("a kept connection failed: %w", err)
		}
		line, err := bufio.NewReader(conn).ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("a kept connection failed: %w", err)
		}
		answer, err := load.ParseAnswer(line)
		if err != nil {
			return 0, err
		}
		if answer.Zone == s.shiftedZone() {
			inside++
		}
	}
	return inside, nil
}

// drain ends the connections of vicinity-proxy to the zone. Others must go on.
func (s *scene) drain(ctx context.Context, kept []net.Conn) (ended int, took time.Duration, err error) {
	var inside []net.Conn
	for _, conn := range kept {
		n, err := s.answeredInside([]net.Conn{conn})
		if err != nil {
			return 0, 0, err
		}
		if n > 0 {
			inside = append(inside, conn)
		}
	}
	shifts, err := s.shifts()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if _, err := shifts.Patch(ctx, s.namespace, types.MergePatchType, []byte(`{"spec":{"drainConnections":"0s"}}`), metav1.PatchOptions{}); err != nil {
		return 0, 0, err
	}
	left := slices.Clone(inside)
	if err := kube.Wait(ctx, "connections of vicinity-proxy to the zone to end", func(context.Context) (string, error) {
		left = slices.DeleteFunc(left, func(conn net.Conn) bool { _, err := s.answeredInside([]net.Conn{conn}); return err != nil })
		if len(left) > 0 {
			return fmt.Sprintf("%d go on", len(left)), nil
		}
		return "", nil
	}); err != nil {
		return 0, 0, err
	}
	took = time.Since(begun)
	for _, conn := range kept {
		if !slices.Contains(inside, conn) {
			if _, err := s.answeredInside([]net.Conn{conn}); err != nil {
				return 0, 0, fmt.Errorf("a connection to another zone ended, too: %w", err)
			}
		}
	}
	return len(inside), took, nil
}

// stayedReady returns an error if a node is not ready, or was not at any time since.
func (s *scene) stayedReady(ctx context.Context, since time.Time) error {
	nodes, err := s.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && (!kube.NodeReady(node) || condition.LastTransitionTime.After(since)) {
				return fmt.Errorf("%s has become %s at %s: %s", node.Name, condition.Status, condition.LastTransitionTime, condition.Message)
			}
		}
	}
	return nil
}
