package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	kitcertificates "vicinity.dev/vicinity/internal/kit/certificates"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/daemon"
	"vicinity.dev/vicinity/internal/kit/lifecycle"
	"vicinity.dev/vicinity/internal/kit/shell"
	namescontroller "vicinity.dev/vicinity/internal/names/controller"
	"vicinity.dev/vicinity/internal/proxy/nodeaddresses"
	rolloutcontroller "vicinity.dev/vicinity/internal/rollout/controller"
	routingcontroller "vicinity.dev/vicinity/internal/routing/controller"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
	shiftcontroller "vicinity.dev/vicinity/internal/shift/controller"
)

const lease = "vicinity-controller"

// stopTime is how long requests and syncs may take when the program ends.
const stopTime = 10 * time.Second

// renewTime is how long a leader may take to renew its Lease.
const renewTime = 10 * time.Second

// program is a controller with the features of a config. The order of features matters: later ones use
// what earlier ones have made.
type program struct {
	*config
	manager.Manager
	certificates *kitcertificates.Certificates // nil without webhooks
	syncs        *shell.Syncs
	standby      *shiftcontroller.Standby
	ledger       *reservation.Ledger // nil unless budgets are kept
	pacer        *pacing.Pacer       // nil unless scale-downs are paced
	requests     *lifecycle.Detector // nil unless EvictionRequests are answered
}

// run runs the controller until the context ends.
func (c *config) run(ctx context.Context) error {
	logger := c.log.Logger(os.Stderr)
	log.SetLogger(logger)
	klog.SetLogger(logger.WithName("client"))
	p := &program{config: c, syncs: shell.NewSyncs(clock.RealClock{})}
	var err error
	if p.certificates, err = c.webhooks.certify(c.namespace); err != nil {
		return err
	}
	api, err := c.api()
	if err != nil {
		return err
	}
	if err := awaitAPI(ctx, api, logger, usualAPIWait()); err != nil || ctx.Err() != nil {
		return err
	}
	leave := &farewell{}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	standby := shiftcontroller.Options{Node: c.node, OnChange: leave.leaving.Store, Leave: stop}
	if !c.routing.Settings.WithoutRouting && c.webhooks.any() {
		standby.Service = types.NamespacedName{Namespace: c.namespace, Name: c.webhooks.service}
	}
	p.standby = shiftcontroller.New(standby)
	if p.Manager, err = p.manager(api, leave); err != nil {
		return err
	}
	for _, add := range []func(context.Context) error{
		p.addRouting, p.addStandby, p.addLocators, p.addNodeAddresses, p.addBudgets, p.addResponder, p.addScaleDown, p.addRollouts, p.addPacing, p.addWebhooks,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	if c.webhooks.evictions || c.webhooks.scales {
		// The webhooks need their caches while they are called.
		var end context.CancelFunc
		ctx, end = leave.take(ctx, farewellTime)
		defer end()
	}
	return p.Start(ctx)
}

func (p *program) manager(api *rest.Config, leave *farewell) (manager.Manager, error) {
	c := p.config
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	served := webhook.Options{Port: c.webhooks.port}
	if p.certificates != nil {
		served.TLSOpts = []func(*tls.Config){p.certificates.Configure}
	}
	leave.Server = webhook.NewServer(served)
	cached := routingcontroller.CacheOptions(c.routing)
	for _, feature := range []struct {
		enabled bool
		needs   func(*cache.Options)
	}{
		{c.nodeAddresses, func(o *cache.Options) { nodeaddresses.CacheOptions(o, c.namespace) }},
		{c.locators.Locates(), namescontroller.CacheOptions},
		{c.budgets || c.scaleDown || c.rollouts, reservation.CacheOptions},
		{c.rollouts, rolloutcontroller.CacheOptions},
	} {
		if feature.enabled {
			feature.needs(&cached)
		}
	}
	lock, err := newLease(api, c.namespace)
	if err != nil {
		return nil, err
	}
	grace, renew := stopTime, renewTime
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme:                              scheme,
		Cache:                               cached,
		LeaderElection:                      c.leaderElect,
		LeaderElectionID:                    lease,
		LeaderElectionResourceLockInterface: p.standby.Lock(lock),
		RenewDeadline:                       &renew,
		LeaderElectionReleaseOnCancel:       true, // main ends when run does
		Metrics:                             metricsserver.Options{BindAddress: c.metrics},
		HealthProbeBindAddress:              c.health,
		PprofBindAddress:                    c.pprof,
		GracefulShutdownTimeout:             &grace,
		WebhookServer:                       leave,
	})
	if err != nil {
		return nil, fmt.Errorf("starting up: %w", err)
	}
	return mgr, nil
}

// newLease returns the Lease of the leader, as a manager makes it by itself.
func newLease(api *rest.Config, namespace string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica for its Lease: %w", err)
	}
	id := host + "_" + string(uuid.NewUUID())
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: typedcorev1.NewForConfigOrDie(api).Events(namespace)})
	recorder := events.NewRecorder(clientgoscheme.Scheme, corev1.EventSource{Component: id})
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, lease, resourcelock.ResourceLockConfig{Identity: id, EventRecorder: recorder}, api, renewTime)
}

// api returns the configuration of the API client, whose answers set the clock.
func (c *config) api() (*rest.Config, error) {
	api, err := daemon.API(c.kubeconfig, "")
	if err != nil {
		return nil, err
	}
	api.QPS, api.Burst = c.qps, c.burst
	api.UserAgent = "vicinity-controller"
	c.clock = new(command.Clock)
	api.Wrap(c.clock.Wrap)
	return api, nil
}
