package lab

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestCountAnswers(t *testing.T) {
	const metrics = `# HELP apiserver_admission_webhook_request_total [STABLE] x
apiserver_admission_webhook_request_total{code="200",name="a.vicinity.dev",operation="CREATE",rejected="false",type="admit"} 3
apiserver_admission_webhook_request_total{code="200",name="a.vicinity.dev",operation="UPDATE",rejected="false",type="admit"} 2
apiserver_admission_webhook_request_total{code="422",name="a.vicinity.dev",operation="CREATE",rejected="true",type="validating"} 1
apiserver_admission_webhook_request_total{code="0",name="a.vicinity.dev",operation="CREATE",rejected="false",type="admit"} 10
apiserver_admission_webhook_request_total{code="503",name="a.vicinity.dev",operation="CREATE",rejected="false",type="admit"} 20
apiserver_admission_webhook_request_total{code="0",name="a.vicinity.dev",operation="CREATE",rejected="true",type="admit"} 40
apiserver_admission_webhook_request_total{code="200",name="other.a.vicinity.dev",operation="CREATE",rejected="false",type="admit"} 80
apiserver_admission_webhook_fail_open_count{name="a.vicinity.dev",type="admit"} 160
`
	for name, want := range map[string]float64{"a.vicinity.dev": 6, "b.vicinity.dev": 0} {
		if got := countAnswers(metrics, name); got != want {
			t.Errorf("%s: counted %v answers, want %v", name, got, want)
		}
	}
}

func TestWebhooksOfEvictionsAreNotTried(t *testing.T) {
	rules := func(resource string) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{Resources: []string{resource}}}}
	}
	if canBeTried(rules("pods/eviction")) || !canBeTried(rules("pods")) {
		t.Errorf("of pods/eviction: %t, of pods: %t", canBeTried(rules("pods/eviction")), canBeTried(rules("pods")))
	}
}
