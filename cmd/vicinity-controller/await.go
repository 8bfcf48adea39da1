package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// apiWait says how long a start may wait for the API server, how long one attempt may take, and how
// often to try.
type apiWait struct{ limit, attempt, period time.Duration }

// usualAPIWait is shorter than the chart's startup probe allows.
func usualAPIWait() apiWait {
	return apiWait{limit: 90 * time.Second, attempt: 5 * time.Second, period: 250 * time.Millisecond}
}

// awaitAPI waits until the API server answers, even if it refuses, or until ctx ends, which is no
// error. The manager exits at once without an API server. Where vicinity-proxy serves all Services,
// a pod cannot reach the API server until the node's proxy has programmed its rules.
func awaitAPI(ctx context.Context, api *rest.Config, log logr.Logger, w apiWait) error {
	asking := rest.CopyConfig(api)
	asking.Timeout = w.attempt
	client, err := discovery.NewDiscoveryClientForConfig(asking)
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, w.period, w.limit, true, func(ctx context.Context) (bool, error) {
		err := ask(ctx, client)
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); err == nil || untrusted {
			return true, err
		}
		if last == nil {
			log.Info("The API server does not answer yet", "cause", err.Error(), "wait", w.limit.String())
		}
		last = err
		return false, nil
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case wait.Interrupted(err):
		return fmt.Errorf("reaching the API server for %s: %w", w.limit, last)
	}
	return fmt.Errorf("reaching the API server: %w", err)
}

// ask returns an error unless the API server answers. A 5xx may come from a load balancer that has
// no API server.
func ask(ctx context.Context, client *discovery.DiscoveryClient) error {
	err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return nil
	}
	return err
}
