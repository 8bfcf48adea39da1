package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// patience is how long the API server may be away at the start, in less than what the chart's
// startup probe allows, and how often it is asked.
type patience struct{ whole, attempt, pause time.Duration }

func usualPatience() patience {
	return patience{whole: 90 * time.Second, attempt: 5 * time.Second, pause: 250 * time.Millisecond}
}

// awaitAPI waits until the API server answers, whatever it says. The manager ends at once
// without it, and where vicinity-proxy serves all Services, the two of a node start together:
// until the proxy has programmed its rules, a pod does not reach the API server.
func awaitAPI(ctx context.Context, api *rest.Config, log logr.Logger, p patience) error {
	limited, cancel := context.WithTimeout(ctx, p.whole)
	defer cancel()
	asking := rest.CopyConfig(api)
	asking.Timeout = p.attempt
	client, err := discovery.NewDiscoveryClientForConfig(asking)
	if err != nil {
		return fmt.Errorf("reaching the API server: %w", err)
	}
	tick := time.NewTicker(p.pause)
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
			log.Info("The API server does not answer yet", "cause", err.Error(), "wait", p.whole.String())
			reported = true
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("reaching the API server for %s: %w", p.whole, err)
		case <-tick.C:
		}
	}
}

// ask returns an error unless the API server answers.
func ask(ctx context.Context, client *discovery.DiscoveryClient) error {
	err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return nil
	}
	return err
}
