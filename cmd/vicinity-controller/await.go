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
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// apiWait is how long the API server may be away at the start, how long an attempt to reach it
// may take, and how often there is one.
type apiWait struct{ limit, attempt, period time.Duration }

// usualAPIWait is shorter than what the chart's startup probe allows.
func usualAPIWait() apiWait {
	return apiWait{limit: 90 * time.Second, attempt: 5 * time.Second, period: 250 * time.Millisecond}
}

// awaitAPI waits until the API server answers, even if it refuses. The manager ends at once
// without it, and where vicinity-proxy serves all Services, the two of a node start together:
// until the proxy has programmed its rules, a pod does not reach the API server.
func awaitAPI(ctx context.Context, api *rest.Config, log logr.Logger, w apiWait) error {
	limited, cancel := context.WithTimeout(ctx, w.limit)
	defer cancel()
	asking := rest.CopyConfig(api)
	asking.Timeout = w.attempt
	client, err := discovery.NewDiscoveryClientForConfig(asking)
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	tick := time.NewTicker(w.period)
	defer tick.Stop()
	for reported := false; ; {
		err := ask(limited, client)
		if err == nil {
			return nil
		}
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
			return fmt.Errorf("reaching the API server: %w", err)
		}
		if !reported {
			log.Info("The API server does not answer yet", "cause", err.Error(), "wait", w.limit.String())
			reported = true
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("reaching the API server for %s: %w", w.limit, err)
		case <-tick.C:
		}
	}
}

// ask returns an error unless the API server answers. An error of a server may be that of a
// load balancer, whose API servers are away.
func ask(ctx context.Context, client *discovery.DiscoveryClient) error {
	err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return nil
	}
	return err
}
