package evictions

import (
	"testing"
	"time"
)

func TestWebhookTimes(t *testing.T) {
	const metric = "apiserver_admission_webhook_admission_duration_seconds_bucket"
	read := func(fast, all string) WebhookTimes {
		t.Helper()
		times, err := parseWebhookTimes(metric + `{name="eviction.vicinity.dev",operation="CREATE",rejected="false",type="admit",le="0.025"} ` + fast + "\n" +
			metric + `{name="eviction.vicinity.dev",operation="CREATE",rejected="false",type="admit",le="0.1"} ` + all + "\n" +
			metric + `{name="eviction.vicinity.dev",operation="CREATE",rejected="false",type="admit",le="+Inf"} ` + all + "\n" +
			metric + `{name="service.vicinity.dev",operation="CREATE",rejected="false",type="admit",le="0.005"} 1000` + "\n")
		if err != nil {
			t.Fatal(err)
		}
		return times
	}
	before := read("10", "10")
	if got := read("108", "110").Since(before).Quantile(0.99); got != 100*time.Millisecond {
		t.Errorf("with 98 of 100 within 25 ms it is %v, want 100ms", got)
	}
	if got := read("109", "110").Since(before).Quantile(0.99); got != 25*time.Millisecond {
		t.Errorf("with 99 of 100 within 25 ms it is %v", got)
	}
	if got := before.Since(before).Quantile(0.99); got != 0 {
		t.Errorf("without calls it is %v", got)
	}
}
