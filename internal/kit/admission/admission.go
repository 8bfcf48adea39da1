// Package admission serves admission webhooks: it reads a review, asks a Judge for a verdict, answers, counts and logs. It decides
// nothing about objects.
//
// The failure policy is the answer without a verdict: the review cannot be read, or the Judge fails or panics. It must equal the
// failurePolicy of the webhook's configuration, which holds when the API server cannot reach the process.
package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/kit/shell"
)

// FailurePolicy is the answer to a request that cannot be judged.
type FailurePolicy int

const (
	// FailClosed refuses the request with status 429, which clients retry.
	FailClosed FailurePolicy = iota
	// FailOpen answers by the verdict in spite of the failure. An empty verdict allows the request.
	FailOpen
)

// Verdict is the decision of a webhook about a request.
type Verdict struct {
	// Faults are sentences about errors in the object. Any fault refuses the request.
	Faults []string
	// Denial refuses a request that is valid in itself.
	Denial *Denial
	// Warnings are sentences for the client.
	Warnings []string
	// Patch is a JSON patch of the object, nil for none.
	Patch []byte
	// Result is the result that metrics count. If it is empty, it follows from the rest of the verdict and the error.
	Result Result
}

// Denial is a refusal because of the state of the cluster.
type Denial struct {
	// Code and Reason decide whether clients retry.
	Code    int32
	Reason  metav1.StatusReason
	Message string
	// Cause, if not empty, tells programs the reason of the refusal.
	Cause metav1.CauseType
}

// AddPatch makes a JSON patch that adds one value.
func AddPatch(path string, value any) ([]byte, error) {
	return json.Marshal([]shell.Operation{shell.Add(path, value)})
}

// TryAgain refuses a request for now. It sets no Retry-After: clients that find one retry silently within the call.
func TryAgain(message string) *Denial {
	return &Denial{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: message}
}

// Judge gives a verdict about one request at a time. It is reused for many requests, to reuse its memory.
type Judge interface {
	// Reset forgets the previous request.
	Reset()
	// Read reads the object of the request, or the stored one, which may be null. Text that it keeps is valid until Reset.
	Read(r *Reader, stored bool) error
	// Judge gives the verdict after the whole request is read. It returns an error if something that the verdict depends on is unknown.
	Judge(ctx context.Context, r *Request) (Verdict, error)
}

// Options configure a webhook.
type Options struct {
	// Webhook is its name in metrics and logs.
	Webhook   string
	OnFailure FailurePolicy
	// Complaint is the log message for a request that was not judged in full. Unjudged is its result in metrics if there was no
	// verdict. Both have defaults.
	Complaint string
	Unjudged  Result
	// Advice is a sentence for people whose request is refused without a verdict. Cause tells programs the reason.
	Advice  string
	Cause   metav1.CauseType
	Metrics *Metrics
	Log     logr.Logger
}

// handler serves a webhook.
type handler struct {
	Options
	exchanges sync.Pool
}

// exchange is a request with its answer. Its memory is reused.
type exchange struct {
	body    bytes.Buffer
	reader  Reader
	request Request
	judge   Judge
	answer  bytes.Buffer
}

// Sizes of reviews. An API server sends at most two objects of 3 MiB and some metadata. A buffer that outgrows a large slice is
// dropped.
const (
	maxReview  = 7 << 20
	keptReview = 2 << 20
)

// Register has a manager serve a webhook, with the manager's logger.
func Register(mgr manager.Manager, path string, newJudge func() Judge, o Options) {
	o.Log = mgr.GetLogger().WithName("webhook").WithName(o.Webhook)
	mgr.GetWebhookServer().Register(path, New(newJudge, o))
}

// New returns a handler of reviews. Each Judge that newJudge returns handles one request at a time.
func New(newJudge func() Judge, o Options) http.Handler {
	o.Complaint = cmp.Or(o.Complaint, "Write is not judged in full")
	o.Unjudged = cmp.Or(o.Unjudged, Degraded)
	return &handler{Options: o, exchanges: sync.Pool{New: func() any { return &exchange{judge: newJudge()} }}}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	begin := time.Now()
	e := h.exchanges.Get().(*exchange)
	verdict, err := e.review(request.Context(), http.MaxBytesReader(w, request.Body, maxReview))
	if verdict.Result == "" {
		verdict.Result = verdict.result(err, h.Unjudged)
	}
	err = errors.Join(err, e.write(h.response(&e.request, &verdict, err)))
	w.Header().Set("Content-Type", "application/json")
	if _, failed := w.Write(e.answer.Bytes()); failed != nil {
		verdict.Result, err = h.Unjudged, errors.Join(err, fmt.Errorf("answering: %w", failed))
	}
	h.Metrics.Observe(h.Webhook, verdict.Result, time.Since(begin))
	if err != nil {
		h.Log.Error(err, h.Complaint, "webhook", h.Webhook, "result", string(verdict.Result),
			"namespace", e.request.Namespace, "name", e.request.Name, "user", e.request.User)
	}
	if e.body.Cap() <= keptReview {
		h.exchanges.Put(e)
	}
}

// review reads a request and asks the Judge.
func (e *exchange) review(ctx context.Context, body io.Reader) (verdict Verdict, err error) {
	e.body.Reset()
	e.request = Request{}
	e.judge.Reset()
	defer func() {
		if panicked := recover(); panicked != nil {
			verdict, err = Verdict{}, fmt.Errorf("panic: %v", panicked)
		}
	}()
	if _, err = e.body.ReadFrom(body); err == nil {
		e.reader.reset(e.body.Bytes())
		err = e.request.read(&e.reader, e.judge)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("reading the review: %w", err)
	}
	return e.judge.Judge(ctx, &e.request)
}

// result is the result of a request whose verdict has none.
func (v *Verdict) result(err error, unjudged Result) Result {
	switch {
	case len(v.Faults) > 0 || v.Denial != nil:
		return Refused
	case err != nil:
		return unjudged
	case len(v.Warnings) > 0:
		return Warned
	}
	return Allowed
}

func (h *handler) response(r *Request, verdict *Verdict, err error) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: types.UID(r.UID), Allowed: true, Warnings: verdict.Warnings}
	switch {
	case len(verdict.Faults) > 0:
		refuse(response, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, strings.Join(verdict.Faults, "; "))
	case verdict.Denial != nil:
		verdict.Denial.refuse(response)
	case err != nil && h.OnFailure == FailClosed:
		d := TryAgain("the request cannot be judged now: " + err.Error())
		if d.Cause = h.Cause; h.Advice != "" {
			d.Message += ". " + h.Advice + "."
		}
		d.refuse(response)
	case verdict.Patch != nil:
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = verdict.Patch, &kind
	}
	return response
}

func (d *Denial) refuse(response *admissionv1.AdmissionResponse) {
	refuse(response, d.Code, d.Reason, d.Message)
	if d.Cause != "" {
		response.Result.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: d.Cause, Message: d.Message}}}
	}
}

func refuse(response *admissionv1.AdmissionResponse, code int32, reason metav1.StatusReason, message string) {
	response.Allowed = false
	response.Result = &metav1.Status{Code: code, Reason: reason, Message: message}
}

// write encodes the answer.
func (e *exchange) write(response *admissionv1.AdmissionResponse) error {
	e.answer.Reset()
	return json.NewEncoder(&e.answer).Encode(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: response,
	})
}
