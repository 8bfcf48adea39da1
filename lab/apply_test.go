package lab

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/cri"
)

func TestStandIn(t *testing.T) {
	const wrapped = "kind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, template: {metadata: {labels: {app: web}}, spec: "
	for _, test := range []struct {
		name, object string
		instead      string
		has, lacks   []string // lines of the result
		wrong        string
	}{
		{
			name: "a server",
			object: wrapped + `{nodeSelector: {a: b}, securityContext: {runAsNonRoot: true}, volumes: [{name: v, configMap: {name: gone}}], initContainers: [{name: i, image: sh}],
				containers: [{name: app, image: "nginx:1", args: [x], envFrom: [{secretRef: {name: gone}}], volumeMounts: [{name: v, mountPath: /v}],
				livenessProbe: {exec: {command: [probe]}}, ports: [{containerPort: 53, protocol: UDP}, {name: http, containerPort: 8081}, {containerPort: 9090}],
				resources: {requests: {cpu: 100m}}}, {name: log, image: fluent}]}}}`,
			instead: "Deployment web: lab/echo answers HTTP on port 8081, in place of nginx:1\nDeployment web: lab/sleep does nothing, since container log names no TCP port, in place of fluent",
			has: []string{
				"image: lab/echo", "image: lab/sleep", "name: app", "replicas: 2", "app: web", "cpu: 100m", "a: b",
				"- name: ECHO_HTTP_PORT\n          value: \"8081\"", "- containerPort: 53", "- containerPort: 8081", "fieldPath: spec.nodeName",
			},
			lacks: []string{"gone", "args", "init", "volume", "exec", "runAsNonRoot", "readinessProbe"},
		},
		{name: "a pod", object: "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: x}]}", instead: "Pod p: lab/sleep does nothing, since container a names no TCP port, in place of x", has: []string{"image: lab/sleep"}},
		{name: "an image of the lab", object: wrapped + `{volumes: [{name: v}], containers: [{name: app, image: lab/echo}]}}}`, has: []string{"image: lab/echo", "volumes:"}},
		{
			name:    "one image of the lab",
			object:  wrapped + `{volumes: [{name: v}], containers: [{name: app, image: lab/echo, volumeMounts: [{name: v, mountPath: /v}]}, {name: log, image: fluent}]}}}`,
			instead: "Deployment web: lab/sleep does nothing, since container log names no TCP port, in place of fluent",
			has:     []string{"image: lab/echo", "image: lab/sleep"}, lacks: []string{"olume"},
		},
		{name: "a foreign init container", object: wrapped + `{initContainers: [{name: i, image: sh}], containers: [{name: app, image: lab/echo}]}}}`, has: []string{"image: lab/echo"}, lacks: []string{"image: sh"}},
		{name: "pods of another API", object: "apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nspec: {replicas: 2, containers: [{name: a, image: x}]}", has: []string{"replicas: 2", "image: x"}},
		{name: "no pods", object: "kind: Service\nspec: {ports: [{port: 80}]}", has: []string{"port: 80"}},
		{
			name:   "a Job",
			object: "kind: Job\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}",
			wrong:  "the lab cannot pull the image x, and has no program that ends in its place",
		},
		{
			name:   "a CronJob",
			object: "kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: x}]}}}}}",
			wrong:  "has no program that ends",
		},
		{name: "nonsense", object: "kind: Pod\nspec: {containers: all}", wrong: "reading its pods: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			read, err := yaml.YAMLToJSON([]byte(test.object))
			if err == nil {
				err = json.Unmarshal(read, &o.Object)
			}
			if err != nil {
				t.Fatal(err)
			}
			instead, err := standIn(o, cri.Images{Program: "/bin/vicinity-lab"})
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("the error is %v, want %q", err, test.wrong)
				}
				return
			}
			if got := strings.Join(instead, "\n"); err != nil || got != test.instead {
				t.Errorf("it says %q, %v; want %q", got, err, test.instead)
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.has {
				if !strings.Contains(string(text), want) {
					t.Errorf("%q is missing in\n%s", want, text)
				}
			}
			for _, stays := range test.lacks {
				if strings.Contains(string(text), stays) {
					t.Errorf("%q is in\n%s", stays, text)
				}
			}
		})
	}
}
