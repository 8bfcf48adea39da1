package console

import (
	"context"
	"errors"
	"net/http"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/translate"
)

// podView is one pod.
type podView struct {
	// Explanation is what "vicinity explain pod/NAME -o json" prints.
	Explanation *inspect.PodExplanation `json:"explanation,omitempty"`
	// Problem is why there is no explanation.
	Problem string `json:"problem,omitempty"`
	// Headless are names of headless Services to ask for, those of the pod's namespace first.
	Headless []string `json:"headless"`
}

func (c *console) podView(ctx context.Context, r *http.Request, s *snapshot) (any, *about, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	a := c.about(s)
	v := &podView{Headless: []string{}}
	var others []string
	for _, service := range s.services {
		switch {
		case !translate.IsHeadless(service):
		case service.Namespace == namespace:
			v.Headless = append(v.Headless, service.Name+"."+service.Namespace)
		default:
			others = append(others, service.Name+"."+service.Namespace)
		}
	}
	v.Headless, _ = firstOf(append(v.Headless, others...), suggested)
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	e, err := c.options.Cluster.ExplainPod(ctx, namespace, name)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		v.Problem = "the cluster does not answer in time"
	case err != nil:
		v.Problem = err.Error()
	default:
		v.Explanation = e
		a.NotKnown = append(a.NotKnown, e.NotKnown...)
	}
	return v, &a, nil
}
