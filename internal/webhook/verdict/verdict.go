// Package verdict is what the webhooks that only say yes or no have in common: it reads
// a review, asks for a verdict, answers, and counts. What cannot be read is allowed, as
// is whatever a verdict fails on, since nobody is kept from writing by a mistake here.
package verdict

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"vicinity.dev/vicinity/internal/webhook/outcome"
)

// The results of webhooks that say yes or no, as metrics have them.
const (
	Allowed outcome.Result = "allowed"
	Warned  outcome.Result = "warned"
	Refused outcome.Result = "refused"
)

// Verdict is what a webhook says about a write.
type Verdict struct {
	// Faults are sentences about why it is refused. Without any it is allowed.
	Faults []string
	// Warnings are sentences for whoever writes.
	Warnings []string
	// Err is why not all could be said. It refuses nothing.
	Err error
}

// Write is a write to judge. Stored is nil where something new is made.
type Write[T any] struct {
	Object, Stored *T
	Namespace      string
}

// Judge gives verdicts about writes of one kind of object.
type Judge[T any] func(context.Context, Write[T]) Verdict

// Options are what a handler depends on.
type Options struct {
	// Webhook is what it is called in metrics and logs.
	Webhook string
	Metrics *outcome.Metrics
	Log     logr.Logger
}

// Handler answers reviews by a judge.
func Handler[T any](judge Judge[T], o Options) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		begin := time.Now()
		verdict := decide(ctx, judge, request)
		result := verdict.result()
		o.Metrics.Observe(o.Webhook, result, time.Since(begin))
		if verdict.Err != nil {
			o.Log.Error(verdict.Err, "Write is not judged in full", "webhook", o.Webhook, "result", string(result),
				"namespace", request.Namespace, "name", request.Name)
		}
		return verdict.response()
	})
}

// decide reads the review and asks the judge.
func decide[T any](ctx context.Context, judge Judge[T], request admission.Request) (verdict Verdict) {
	defer func() {
		if panicked := recover(); panicked != nil {
			verdict = Verdict{Err: fmt.Errorf("panic: %v", panicked)}
		}
	}()
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update || request.SubResource != "" {
		return Verdict{}
	}
	write := Write[T]{Object: new(T), Namespace: request.Namespace}
	if err := json.Unmarshal(request.Object.Raw, write.Object); err != nil {
		return Verdict{Err: fmt.Errorf("reading the object: %w", err)}
	}
	if request.Operation == admissionv1.Update {
		write.Stored = new(T)
		if err := json.Unmarshal(request.OldObject.Raw, write.Stored); err != nil {
			return Verdict{Err: fmt.Errorf("reading the stored object: %w", err)}
		}
	}
	return judge(ctx, write)
}

func (v Verdict) result() outcome.Result {
	switch {
	case len(v.Faults) > 0:
		return Refused
	case v.Err != nil:
		return outcome.Degraded
	case len(v.Warnings) > 0:
		return Warned
	}
	return Allowed
}

func (v Verdict) response() admission.Response {
	response := admission.Allowed("")
	if len(v.Faults) > 0 {
		response = admission.Denied(strings.Join(v.Faults, "; "))
		response.Result.Code, response.Result.Reason = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid
	}
	return response.WithWarnings(v.Warnings...)
}
