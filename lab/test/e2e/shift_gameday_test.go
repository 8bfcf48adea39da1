package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
)

// gameDay practises the loss of a zone under load. Prediction and measurement must agree.
func gameDay(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deployed(ctx, echoes, ""))
	check(s.waitAllUsed(ctx, echoes))
	before := must(s.routedAtRest(ctx))
	defer undo(&err, func() error { return s.unshift(ctx) })
	folder := must(os.MkdirTemp("", "gameday"))
	defer undo(&err, func() error { return os.RemoveAll(folder) })
	page := filepath.Join(folder, "report.html")
	var output []byte
	result := must(s.during(ctx, lab.LoadOptions{Plan: load.Plan{Rate: 300}}, func(ctx context.Context) (err error) {
		output, err = s.vicinity(ctx, "gameday", s.shiftedZone(), "--for", "1m30s", "--reason", "practice", "--ramp", "0s", "--before", "20s", "--interval", "10s",
			"--namespace-selector", "kubernetes.io/metadata.name="+s.namespace, "--yes", "--report", page, "-o", "json")
		return err
	}))
	var run struct {
		Result   string
		Services []struct {
			Service          string
			PredictedPercent float64
			MeasuredPercent  *float64
		}
		Samples []struct{ InDomainPercent *float64 }
	}
	check(json.Unmarshal(output, &run))
	for _, service := range run.Services {
		if service.Service != s.namespace+"/echo" {
			continue
		}
		if service.MeasuredPercent == nil || math.Abs(*service.MeasuredPercent-service.PredictedPercent) > 5 {
			return "", fmt.Errorf("the run says %+v", run)
		}
		if text := string(must(os.ReadFile(page))); !strings.Contains(text, s.namespace+"/echo") {
			return "", fmt.Errorf("the report does not name the Service: %s", text)
		}
		took := must(s.waitAsBefore(ctx, before))
		return fmt.Sprintf("load on top %.1f %% (predicted %.0f %%), %d samples; as before %.0f s after the run; %d connections, 0 failed: %s",
			*service.MeasuredPercent, service.PredictedPercent, len(run.Samples), took.Seconds(), result.Answered, run.Result), nil
	}
	return "", fmt.Errorf("the run does not count %s/echo: %s", s.namespace, output)
}
