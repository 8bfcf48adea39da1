package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/test/rig"
)

// livePlane is a control plane whose DomainRollout the test writes the status of, as the controller does.
type livePlane struct {
	rig.ControlPlane
	namespace string
}

const liveWorkload = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 0
  selector: {matchLabels: {app: db}}
  serviceName: db
  updateStrategy: {type: OnDelete}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: db}
spec:
  targetRef: {kind: StatefulSet, name: db}
  topologyKey: topology.kubernetes.io/zone
  pauseBefore: [zone-b]
`

// rollout runs a command of rollout, and returns its code and all that it says.
func (c *livePlane) rollout(out io.Writer, args ...string) (code int, stderr string) {
	var errs bytes.Buffer
	root := newRolloutCommand(command.Streams{Out: out, Err: &errs}, func(*clusterFlags) (*connection, error) {
		return newConnection(c.Config(), c.namespace)
	})
	root.SetOut(out)
	root.SetErr(&errs)
	return command.Execute(c.Context(), root, args), errs.String()
}

// does runs a command that works.
func (c *livePlane) does(args ...string) {
	c.Helper()
	var out bytes.Buffer
	if code, stderr := c.rollout(&out, args...); code != 0 {
		c.Fatalf("%v: code %d: %s", args, code, stderr)
	}
}

func (c *livePlane) read() *v1alpha1.DomainRollout {
	c.Helper()
	r := c.reader()
	d, err := r.rollout(c.Context(), "db")
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c *livePlane) reader() *clusterReader {
	c.Helper()
	connected, err := newConnection(c.Config(), c.namespace)
	if err != nil {
		c.Fatal(err)
	}
	return &clusterReader{connection: connected}
}

// report writes a status for the spec as it is.
func (c *livePlane) report(status string) {
	c.Helper()
	body := fmt.Sprintf(`{"status":{"observedGeneration":%d,%s}}`, c.read().Generation, status)
	if _, err := c.reader().rollouts().Patch(c.Context(), "db", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		c.Fatal(err)
	}
}

// lines hands on each line that is written.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// TestRolloutAgainstKubernetes has the API server judge what the commands write, and watches as they do.
func TestRolloutAgainstKubernetes(t *testing.T) {
	plane := rig.Start(t)
	namespace, err := plane.MakeNamespace(t.Context(), "rollout")
	if err != nil {
		t.Fatal(err)
	}
	c := &livePlane{plane, namespace}
	c.Make(namespace, liveWorkload)
	revision := c.revision()

	seen := make(lines, 100)
	ended := make(chan string, 1)
	go func() {
		code, stderr := c.rollout(seen, "status", "db", "--watch", "--timeout", "2m")
		ended <- fmt.Sprintf("%d %s", code, stderr)
	}()
	c.expect(seen, ended, noController)
	const domains = `"domains":[{"name":"zone-a","pods":2,"updated":2,"healthy":2,"unavailable":0,"state":"Done"},{"name":"zone-b","pods":2,"updated":0,"healthy":0,"unavailable":0,"state":"Waiting"}]`
	c.report(`"phase":"Paused","waitingFor":"pauses before zone-b","previousRevision":"old","revision":"` + revision + `",` + domains)
	c.expect(seen, ended, "Paused, revision "+revision+", 2 of 4 pods updated, 2 healthy: it pauses before zone-b")

	c.does("pause", "db")
	if !c.read().Spec.Paused {
		t.Error("it is not paused")
	}
	c.report(`"phase":"Paused","waitingFor":"is paused"`)
	c.expect(seen, ended, "it is paused")
	c.does("resume", "db")
	if d := c.read(); d.Spec.Paused || d.Spec.Approved != nil {
		t.Errorf("one that is paused and resumed has %+v", d.Spec)
	}
	c.report(`"phase":"Paused","waitingFor":"pauses before zone-b"`)
	c.does("resume", "db")
	if a := c.read().Spec.Approved; a == nil || a.Revision != revision || len(a.Domains) != 1 || a.Domains[0] != "zone-b" || a.FailuresBefore != nil {
		t.Errorf("approved is %+v", a)
	}
	c.report(`"phase":"RollingBack","failure":{"reason":"PodUnhealthy","pod":"db-1","time":"2026-01-02T15:04:05Z"}`)
	c.does("resume", "db", "--retry")
	if a := c.read().Spec.Approved; a == nil || a.FailuresBefore == nil || len(a.Domains) != 1 {
		t.Errorf("approved is %+v", a)
	}
	c.does("abort", "db")
	c.does("rollback", "db")
	if s := c.read().Spec.Stop; s == nil || *s != (v1alpha1.RolloutStop{Revision: revision, Action: v1alpha1.StopRollback}) {
		t.Errorf("stop is %+v", s)
	}

	// Complete is the end only if Kubernetes has no newer template.
	const update = `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`
	if _, err := c.AppsV1().StatefulSets(namespace).Patch(t.Context(), "db", types.MergePatchType, []byte(update), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.report(`"phase":"Complete","failure":null,"waitingFor":"","revision":"` + revision + `"`)
	c.expect(seen, ended, "has not seen")
	newer := ""
	c.Await("another revision", func(context.Context) (string, error) {
		if newer = c.revision(); newer == revision {
			return "it is the old one", nil
		}
		return "", nil
	})
	c.report(`"phase":"Complete","revision":"` + newer + `"`)
	c.expect(seen, ended, "Complete, revision "+newer)
	if end := <-ended; end != "0 " {
		t.Errorf("the watch ends with %q", end)
	}
}

// revision is that of the StatefulSet's template, once Kubernetes has seen it.
func (c *livePlane) revision() string {
	c.Helper()
	found := ""
	c.Await("a revision", func(ctx context.Context) (string, error) {
		w, err := c.reader().workload(ctx, c.namespace, v1alpha1.RolloutTarget{Kind: v1alpha1.KindStatefulSet, Name: "db"})
		if err != nil || !w.isSeen || w.revision == "" {
			return "none yet", err
		}
		found = w.revision
		return "", nil
	})
	return found
}

// expect waits for a line of the watch.
func (c *livePlane) expect(seen lines, ended chan string, part string) {
	c.Helper()
	for {
		select {
		case line := <-seen:
			if strings.Contains(line, part) {
				return
			}
		case end := <-ended:
			// What was written last may not have been read yet.
			for len(seen) > 0 {
				if strings.Contains(<-seen, part) {
					ended <- end
					return
				}
			}
			c.Fatalf("the watch ends with %q before it says %q", end, part)
		}
	}
}
