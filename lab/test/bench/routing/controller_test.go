package main

import "testing"

func TestWritesAreCounted(t *testing.T) {
	metrics := `# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="h",method="GET"} 100
rest_client_requests_total{code="200",host="h",method="PATCH"} 1.5e+03
rest_client_requests_total{code="409",host="h",method="POST"} 2
other_requests_total{method="PATCH"} 9
`
	if got, err := countWrites(metrics); err != nil || got != 1502 {
		t.Errorf("%d writes, %v", got, err)
	}
	for _, bad := range []string{"", "rest_client_requests_total{method=\"PUT\"} many\n"} {
		if got, err := countWrites(bad); err == nil {
			t.Errorf("%q is counted as %d", bad, got)
		}
	}
}
