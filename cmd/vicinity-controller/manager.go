package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/controller/locator"
	"vicinity.dev/vicinity/internal/controller/nodeaddresses"
	"vicinity.dev/vicinity/internal/controller/rollout"
	controller "vicinity.dev/vicinity/internal/controller/routing"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/certificates"
)

// lease is the name of the leader's Lease.
const lease = "vicinity-controller"

// stopTime is how long requests and syncs under way have to finish when the program ends.
const stopTime = 10 * time.Second

// run runs the controller until the context ends.
func (c *config) run(ctx context.Context) error {
	logger := c.log.logger(os.Stderr)
	log.SetLogger(logger)
	klog.SetLogger(logger.WithName("client"))
	certs, err := c.webhooks.certify(c.namespace)
	if err != nil {
		return err
	}
	api, err := c.api()
	if err != nil {
		return err
	}
	switch err := awaitAPI(ctx, api, logger, usualAPIWait()); {
	case ctx.Err() != nil:
		return nil // as when the manager is asked to end
	case err != nil:
		return err
	}
	leave := &farewell{}
	mgr, err := c.manager(api, certs, leave)
	if err != nil {
		return err
	}
	options := c.routing
	options.Syncs = shell.NewSyncs(clock.RealClock{})
	if err := controller.Add(ctx, mgr, options); err != nil {
		return err
	}
	locators := c.locators
	locators.Syncs = options.Syncs
	if err := locator.Add(ctx, mgr, locators); err != nil {
		return err
	}
	if locators.Mode.Locates() {
		if err := mgr.AddReadyzCheck("locators", locator.Synced(mgr.GetCache())); err != nil {
			return err
		}
	}
	ledger, err := c.addDisruption(ctx, mgr, options.Syncs)
	if err != nil {
		return err
	}
	if err := c.addScaleDown(ctx, mgr, options.Syncs); err != nil {
		return err
	}
	if err := c.addRollouts(ctx, mgr, ledger, options.Syncs); err != nil {
		return err
	}
	pacer, err := c.addPacing(ctx, mgr, ledger, options.Syncs)
	if err != nil {
		return err
	}
	if c.nodeAddresses {
		if err := nodeaddresses.Add(mgr, c.namespace); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("alive", options.Syncs.Alive); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("caches", controller.Synced(mgr.GetCache(), c.routing)); err != nil {
		return err
	}
	if err := c.addWebhooks(mgr, certs, ledger, pacer); err != nil {
		return err
	}
	if c.webhooks.evictions || c.webhooks.scales {
		// While webhooks are asked, all that they know from is needed.
		var end context.CancelFunc
		ctx, end = leave.take(ctx, farewellTime)
		defer end()
	}
	return mgr.Start(ctx)
}

func (c *config) manager(api *rest.Config, certs *certificates.Certificates, leave *farewell) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	served := webhook.Options{Port: c.webhooks.port}
	if certs != nil {
		served.TLSOpts = []func(*tls.Config){certs.Configure}
	}
	leave.Server = webhook.NewServer(served)
	cached := controller.CacheOptions(c.routing)
	if c.nodeAddresses {
		nodeaddresses.CacheOptions(&cached, c.namespace)
	}
	if c.locators.Mode.Locates() {
		locator.CacheOptions(&cached)
	}
	if c.disruption.enabled || c.scaleDown.enabled || c.rollouts {
		reservation.CacheOptions(&cached)
	}
	if c.rollouts {
		rollout.CacheOptions(&cached)
	}
	grace := stopTime
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cached,
		LeaderElection:                c.leaderElect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       c.namespace,
		LeaderElectionReleaseOnCancel: true, // main ends when run does
		Metrics:                       metricsserver.Options{BindAddress: c.metrics},
		HealthProbeBindAddress:        c.health,
		PprofBindAddress:              c.pprof,
		GracefulShutdownTimeout:       &grace,
		WebhookServer:                 leave,
	})
	if err != nil {
		return nil, fmt.Errorf("starting up: %w", err)
	}
	return mgr, nil
}

// api says how to reach the API server: by a file that is named, or else as a pod.
func (c *config) api() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	var api *rest.Config
	var err error
	if c.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		api, err = rest.InClusterConfig()
	} else {
		api, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	}
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("--kubeconfig: it is needed outside of a cluster, or else the KUBECONFIG variable")
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	api.QPS, api.Burst = c.qps, c.burst
	api.UserAgent = "vicinity-controller"
	c.clock = new(command.Clock)
	api.Wrap(c.clock.Wrap)
	return api, nil
}
