package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// namesArea is what names resolve to with vicinity-dns as the cluster's DNS server.
func namesArea() area {
	return area{
		name:  "names",
		setup: zones,
		promises: []promise{
			{name: "nearest", keep: namesNearest, tier: inTest},
			{name: "planned", keep: namesPlanned, tier: inTest},
			{name: "pod-moved", keep: podMoved, tier: inTest},
			{name: "locators", keep: locators, within: 4 * time.Minute, tier: inTest},
			{name: "drop-in", keep: dropIn, within: 5 * time.Minute},
			{name: "locators-at-scale", keep: locatorsAtScale, within: 6 * time.Minute, alone: true},
		},
	}
}

// exampleAddress is that of all names below example.com, which the DNS server knows by itself.
const exampleAddress = "192.0.2.1"

// configureNames has the cluster's DNS server be the lab's, with zone-qualified names that follow the
// plan, and with names outside of the cluster. It does not wait long for an API server.
func configureNames(ctx context.Context, c *lab.Cluster) error {
	corefile := strings.NewReplacer(
		"    vicinity cluster.local\n", "    vicinity cluster.local {\n        plan\n        startup_timeout 1s\n    }\n",
		"        pods insecure\n", "        pods insecure\n        zonal\n        startup_timeout 1s\n",
		"    prometheus ", "    template IN A example.com {\n        answer \"{{ .Name }} 60 IN A "+exampleAddress+"\"\n    }\n    template IN ANY example.com {\n        rcode NOERROR\n    }\n    prometheus ",
	).Replace(lab.DNSCorefile(shape.DNSVicinity))
	return c.ConfigureDNS(ctx, lab.DNSOptions{Kind: shape.DNSVicinity, Corefile: corefile})
}

// locateAll are the chart's values for PodLocators of all pods.
var locateAll = []string{"locators.enabled=true", "locators.all=true"}

// headlessOf is a headless Service for the echo pods of a scene, with annotations.
func headlessOf(name string, annotations ...string) string {
	text := ""
	for i := 0; i < len(annotations); i += 2 {
		text += fmt.Sprintf("    %s: %q\n", annotations[i], annotations[i+1])
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata:
  name: %s
  annotations:
%sspec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
  - {name: tcp, port: 81, targetPort: tcp}
`, name, text)
}

// namedPods runs echo pods on the nodes named, a client on every node, and Services for them. The pods
// are called after their nodes: echo-NODE-INDEX and client-NODE.
func (s *scene) namedPods(ctx context.Context, services string, nodes ...string) error {
	if err := s.Apply(ctx, s.namespace, services); err != nil {
		return err
	}
	return s.place(ctx, nodes...)
}

// removePod deletes a pod of the scene at once, and waits until it is gone.
func (s *scene) removePod(ctx context.Context, name string) error {
	if err := s.CoreV1().Pods(s.namespace).Delete(ctx, name, atOnce()); err != nil {
		return err
	}
	return kube.Wait(ctx, "pod "+name+" to go", func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return "it is there", nil
	})
}
