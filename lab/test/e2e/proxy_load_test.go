package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/test/kube"
)

const (
	// newRate is the number of connections opened per second during an action on the proxies,
	// longNumber the number of connections that stay open.
	newRate    = 300
	longNumber = 200
	// longBeat is the interval of requests on each of these.
	longBeat = 500 * time.Millisecond
	// longest exceeds the time of every action.
	longest = 20 * time.Minute
)

// under has the connections during an action.
type under struct {
	answered int64
	// ended counts the long connections that their endpoints ended.
	ended int
}

func (u under) String() string {
	text := fmt.Sprintf("%d new and %d long connections, 0 lost", u.answered, longNumber)
	if u.ended > 0 {
		text += fmt.Sprintf(" (%d long ones ended in order with their endpoints, and were opened again)", u.ended)
	}
	return text
}

// unharmed opens connections to the echo Service during an action, and for a while before and
// after. Long connections keep sending requests. No connection may be lost, and no long one may end
// before its endpoint.
func (s *scene) unharmed(ctx context.Context, do func(context.Context, *traffic) error) (u under, err error) {
	job, err := s.planLoad(ctx, lab.LoadOptions{Plan: load.Plan{Rate: newRate, Duration: longest}})
	if err != nil {
		return u, err
	}
	held, err := s.holdLong(ctx)
	if err != nil {
		return u, err
	}
	flow, stop := context.WithCancel(ctx)
	defer stop()
	t := &traffic{}
	sending := start(flow, job, &t.answered)
	err = t.more(ctx, newRate)
	if err == nil {
		err = do(ctx, t)
	}
	if err == nil {
		err = t.more(ctx, 2*newRate)
	}
	// Requests in flight must be answered too: losses at the end would show here.
	if close(sending.enough); err == nil {
		held.finish()
	} else {
		stop()
	}
	result, failed := flawlessly(sending.wait())
	u.answered = result.Answered
	if err = errors.Join(err, failed, held.end()); err != nil {
		return u, err
	}
	for _, number := range held.ended {
		u.ended += number
	}
	return u, s.haveEnded(ctx, held.ended)
}

// haveEnded returns an error if a pod that ended connections still runs: only pods that terminate
// may end connections.
func (s *scene) haveEnded(ctx context.Context, ended map[string]int) error {
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if number := ended[pod.Name]; number > 0 && pod.DeletionTimestamp == nil {
			return fmt.Errorf("%d long connections were ended by %s, which did not end", number, pod.Name)
		}
	}
	return nil
}

// traffic counts the answers during an action.
type traffic struct{ answered atomic.Int64 }

// more waits for a number of further answers.
func (t *traffic) more(ctx context.Context, number int64) error {
	goal := t.answered.Load() + number
	return kube.Wait(ctx, fmt.Sprintf("%d more answers", number), func(context.Context) (string, error) {
		if missing := goal - t.answered.Load(); missing > 0 {
			return fmt.Sprintf("%d are missing", missing), nil
		}
		return "", nil
	})
}

// long has the connections that stay open.
type long struct {
	stop    func()
	enough  chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	lost    int
	first   error
	// ended counts the connections that ended in order, by pod.
	ended map[string]int
}

// holdLong opens long connections from all clients in turn. Each keeps sending requests.
func (s *scene) holdLong(ctx context.Context) (*long, error) {
	job, err := s.planLoad(ctx, lab.LoadOptions{Port: "tcp", Plan: load.Plan{Protocol: load.TCP, Rate: 1, Duration: time.Second}})
	if err != nil {
		return nil, err
	}
	target := job.Plan.Targets[0].String()
	ctx, cancel := context.WithCancel(ctx)
	l := &long{ended: map[string]int{}, enough: make(chan struct{}), stop: cancel}
	opened := make(chan error, longNumber)
	for i := range longNumber {
		source := job.Sources[i%len(job.Sources)]
		dial := func() (net.Conn, error) { return source.Dial(ctx, "tcp", target) }
		l.running.Go(func() {
			conn, err := dial()
			opened <- err
			for err == nil {
				if err = l.converse(ctx, conn); err == nil {
					conn, err = dial()
				}
			}
			l.note(ctx, source.Pod, err)
		})
	}
	for range longNumber {
		if failed := <-opened; failed != nil {
			err = failed
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening long connections: %w", errors.Join(err, l.end()))
	}
	return l, nil
}

// converse sends requests until the other side closes the connection in order; then it returns no
// error.
func (l *long) converse(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	lines := bufio.NewReader(conn)
	beat := time.NewTicker(longBeat)
	defer beat.Stop()
	for {
		if err := conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := io.WriteString(conn, "x\n"); err != nil {
			return err
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		answer, err := load.ParseAnswer(line)
		if err != nil {
			return err
		}
		if answer.Last {
			l.mu.Lock()
			l.ended[answer.Pod]++
			l.mu.Unlock()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.enough:
			return errEnough
		case <-beat.C:
		}
	}
}

// errEnough ends a long connection after its last answer.
var errEnough = errors.New("enough requests were sent")

// note records a connection that was lost.
func (l *long) note(ctx context.Context, pod string, err error) {
	if ctx.Err() != nil || errors.Is(err, errEnough) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost++; l.first == nil {
		l.first = fmt.Errorf("from %s: %w", pod, err)
	}
}

// finish ends the connections after their outstanding answers, or after a timeout.
func (l *long) finish() {
	close(l.enough)
	answered := make(chan struct{})
	go func() {
		l.running.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(replyTimeout + time.Second):
	}
}

// end ends the connections at once. It returns an error if one was lost before.
func (l *long) end() error {
	l.stop()
	l.running.Wait()
	if l.lost > 0 {
		return fmt.Errorf("%d of %d long connections were lost, the first %w", l.lost, longNumber, l.first)
	}
	return nil
}

// proxyKilled kills the proxy of each node, one after the other. The new process finds the rules
// right and changes none.
func proxyKilled(ctx context.Context, s *scene) (string, error) {
	check(s.deployed(ctx, 12, preferZone))
	must(s.waitConverged(ctx, "echo", 12))
	// Proxies defer parts of a change: parts of earlier changes must be done.
	check(s.waitRulesStable(ctx))
	before := must(s.ruleHandles(ctx))
	nodes := s.cluster.Shape().Nodes()
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for _, node := range nodes {
			name := "vicinity-proxy-" + node.Name
			if err := errors.Join(s.cluster.KillComponent(ctx, name), s.cluster.StartComponent(ctx, name)); err != nil {
				return err
			}
		}
		return t.more(ctx, newRate*int64(afterRestart.Seconds()))
	}))
	after := must(s.ruleHandles(ctx))
	for name, text := range before {
		if after[name] != text {
			return "", fmt.Errorf("a restart changed the rules of %s: %s", name, changedLines(text, after[name]))
		}
	}
	check(s.scale(ctx, "echo", 15))
	check(s.waitAnswersFrom(ctx, 15))
	return fmt.Sprintf("the proxies of %d nodes killed: %s; no rule changed by a restart, and the next change followed", len(nodes), u), nil
}

// shortDrain is the least time for which a terminating endpoint must serve on so that no connection
// is lost. By then all nodes must send new connections elsewhere.
const shortDrain = 5 * time.Second

// proxyRollingUpdate replaces all endpoints, which drain for patientDrain. Its long form then
// replaces the new ones, which drain for shortDrain and no longer.
func proxyRollingUpdate(ctx context.Context, s *scene) (string, error) {
	const endpoints = 12
	check(s.deployed(ctx, endpoints, preferZone))
	replaced := fmt.Sprintf("%d endpoints replaced that serve on for %s, and until they had no request for %s", endpoints, patientDrain, quietDrain)
	type drain struct{ least, quiet time.Duration } // of the new pods
	drains := []drain{{patientDrain, quietDrain}}
	if soaking() {
		replaced += fmt.Sprintf(", and then as many that serve for only %s", shortDrain)
		drains = []drain{{shortDrain, 0}, {patientDrain, quietDrain}}
	}
	u := must(s.unharmed(ctx, func(ctx context.Context, _ *traffic) error {
		for _, d := range drains {
			if err := s.redeploy(ctx, d.least, d.quiet); err != nil {
				return err
			}
		}
		return nil
	}))
	if u.ended == 0 {
		return "", errors.New("no long connection ended with its endpoint, so no endpoint was replaced")
	}
	return fmt.Sprintf("%s; %s", replaced, u), nil
}

// redeploy replaces all pods of the echo Deployment, and waits until the old ones have ended. The
// new ones, once terminating, serve on for the time drain, and until they had no request for the
// time quiet.
func (s *scene) redeploy(ctx context.Context, drain, quiet time.Duration) error {
	// The changing time makes the template differ, so that the pods are replaced.
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"redeployed":%q}},"spec":{"containers":[{"name":"echo","env":[{"name":"ECHO_DRAIN","value":%q},{"name":"ECHO_DRAIN_QUIET","value":%q}]}]}}}}`,
		time.Now().Format(time.RFC3339Nano), drain, quiet)
	if _, err := s.AppsV1().Deployments(s.namespace).Patch(ctx, "echo", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := s.WaitDeployment(ctx, s.namespace, "echo"); err != nil {
		return err
	}
	return s.waitOldPodsGone(ctx)
}

// waitOldPodsGone waits until all terminating echo pods have ended.
func (s *scene) waitOldPodsGone(ctx context.Context) error {
	return kube.Wait(ctx, "the old pods to end", func(ctx context.Context) (string, error) {
		pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }); i >= 0 {
			return pods.Items[i].Name + " has not", nil
		}
		return "", nil
	})
}
