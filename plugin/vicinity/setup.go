package vicinity

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const pluginName = "vicinity"

var log = clog.NewWithPlugin(pluginName)

func init() { plugin.Register(pluginName, setup) }

// The defaults and limits of the Corefile.
const (
	defaultTTL            = 5 // seconds, as in the plugin kubernetes
	defaultStartupTimeout = 5 * time.Second
	maxTTL                = 3600
)

// options has the settings of a server block.
type options struct {
	zones          []string
	ttl            uint32
	plan           bool
	subnetSources  []netip.Prefix
	apiServer      apiServer
	startupTimeout time.Duration
}

func setup(c *caddy.Controller) error {
	v, o, err := parse(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	if err := checkOrder(dnsserver.Directives); err != nil {
		return plugin.Error(pluginName, err)
	}
	config, err := o.apiServer.clientConfig()
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	startups.stopDropped()
	start := startups.of(c)
	common := start.clusterOf(o.apiServer)
	v.cluster = common.cluster
	first := false
	c.OnFirstStartup(func() error { first = true; return nil })
	c.OnStartup(func() error {
		warnOfZones(v.zones, zonesOf(dnsserver.GetConfig(c).Handler("kubernetes")))
		start.onStop(func() { v.stopped.Store(true) })
		if !common.watched {
			w, err := startWatching(config, common.cluster)
			if err != nil {
				return plugin.Error(pluginName, err)
			}
			common.watched = true
			start.onStop(w.stop)
		}
		switch limit := max(o.startupTimeout, defaultStartupTimeout); {
		case first && !common.await(o.startupTimeout):
			log.Warning("Starting without knowing Services and nodes: until the API server answers, names of Services fail with SERVFAIL")
		case !first && !common.await(limit):
			start.stop()
			return plugin.Error(pluginName, fmt.Errorf("the API server did not list all resources within %s, so the server keeps its previous Corefile: "+
				"fix the errors logged before this one, or raise startup_timeout; the server reads the Corefile again when it changes", limit))
		}
		return nil
	})
	c.OnRestartFailed(func() error { startups.stopDropped(); return nil })
	c.OnShutdown(func() error { start.stop(); return nil })
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		v.Next = next
		return v
	})
	return nil
}

// zonesOf returns the zones of the plugin kubernetes, none without it. It uses reflection instead of the plugin's type: tests put
// this plugin into the chain of that package.
func zonesOf(backend plugin.Handler) []string {
	value := reflect.ValueOf(backend)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return nil
	}
	field := value.Elem().FieldByName("Zones")
	if !field.IsValid() {
		return nil
	}
	zones, _ := field.Interface().([]string)
	return zones
}

// warnOfZones logs the zones that the plugin kubernetes does not serve. Its answers are in other zones then, and are not filtered.
func warnOfZones(zones, served []string) {
	for _, zone := range zones {
		if len(served) > 0 && plugin.Zones(served).Matches(zone) == "" {
			log.Warningf("No answer in the zone %s is filtered, because the plugin kubernetes serves %s: give both plugins the same zones", zone, strings.Join(served, ", "))
		}
	}
}

// checkOrder refuses a wrong order of plugins: answers for one client would reach others, or would be signed before they are
// chosen.
func checkOrder(directives []string) error {
	at := slices.Index(directives, pluginName)
	for _, below := range []string{"cache", "kubernetes"} {
		if i := slices.Index(directives, below); i >= 0 && i < at {
			return fmt.Errorf("this server was built with %s before %s: clients would get answers for other clients; build it with %[2]s before %[1]s, or use vicinity-dns", below, pluginName)
		}
	}
	if i := slices.Index(directives, "dnssec"); i > at {
		return fmt.Errorf("this server was built with %s before dnssec: answers would be signed before they are chosen; build it with dnssec before %[1]s, or use vicinity-dns", pluginName)
	}
	return nil
}

// parse reads the lines of one server block.
func parse(c *caddy.Controller) (*Vicinity, *options, error) {
	o := &options{ttl: defaultTTL, startupTimeout: defaultStartupTimeout}
	for i := 0; c.Next(); i++ {
		if i > 0 {
			return nil, nil, plugin.ErrOnce
		}
		for _, zone := range plugin.OriginsFromArgsOrServerBlock(c.RemainingArgs(), c.ServerBlockKeys) {
			if dnsutil.IsReverse("."+zone) == 0 {
				o.zones = append(o.zones, zone)
			}
		}
		for c.NextBlock() {
			if err := o.read(c.Val(), c.RemainingArgs()); err != nil {
				return nil, nil, c.Err(err.Error())
			}
		}
	}
	if len(o.zones) == 0 || slices.Contains(o.zones, ".") {
		return nil, nil, c.Err("the zone of the cluster is missing: name it as in the line of kubernetes, such as \"vicinity cluster.local\"")
	}
	v := New(o.zones)
	v.ttl, v.plan, v.subnetSources = o.ttl, o.plan, o.subnetSources
	return v, o, nil
}

// read reads a line of the block.
func (o *options) read(directive string, args []string) error {
	counted := func(least, most int, what string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s %s: it must have %s", directive, strings.Join(args, " "), what)
		}
		return nil
	}
	switch directive {
	case "ttl":
		if err := counted(1, 1, "one number of seconds"); err != nil {
			return err
		}
		n, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || n > maxTTL {
			return fmt.Errorf("ttl %q: it must be a number of seconds from 0 to %d", args[0], maxTTL)
		}
		o.ttl = uint32(n)
	case "plan":
		o.plan = true
		return counted(0, 0, "no arguments")
	case "client_subnet":
		if len(args) == 0 {
			return errors.New("client_subnet: it must have the addresses or ranges of the resolvers to believe")
		}
		for _, arg := range args {
			prefix, err := netip.ParsePrefix(arg)
			if mapped := prefix.Addr(); mapped.Is4In6() && prefix.Bits() >= 96 {
				prefix = netip.PrefixFrom(mapped.Unmap(), prefix.Bits()-96)
			}
			if address, addrErr := netip.ParseAddr(arg); addrErr == nil {
				prefix, err = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
			}
			if err != nil {
				return fmt.Errorf("client_subnet %q: it must be an address such as 169.254.20.10 or a range such as 10.0.0.0/24", arg)
			}
			o.subnetSources = append(o.subnetSources, prefix.Masked())
		}
	case "kubeconfig":
		if err := counted(1, 2, "a file and at most one context"); err != nil {
			return err
		}
		o.apiServer.kubeconfig = args[0]
		if len(args) == 2 {
			o.apiServer.context = args[1]
		}
	case "startup_timeout":
		if err := counted(1, 1, "one duration"); err != nil {
			return err
		}
		d, err := time.ParseDuration(args[0])
		if err != nil || d < 0 {
			return fmt.Errorf("startup_timeout %q: it must be a duration such as 5s", args[0])
		}
		o.startupTimeout = d
	default:
		return fmt.Errorf("unknown directive %q: allowed are client_subnet, kubeconfig, plan, startup_timeout and ttl", directive)
	}
	return nil
}

// apiServer has the settings that choose an API server and its user. Without a kubeconfig they are those of a pod in the cluster.
type apiServer struct{ kubeconfig, context string }

// clientConfig returns the configuration of the API client.
func (s apiServer) clientConfig() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if s.kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: s.kubeconfig}
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = fmt.Sprintf("%s/%s (%s/%s) vicinity", coremain.CoreName, coremain.CoreVersion, runtime.GOOS, runtime.GOARCH)
	return config, nil
}

// startups has the startups of all servers of this program. Caddy drops a server that fails to start, for example after a reload,
// without a call to its plugins. So a later server stops the watches of the dropped one.
var startups registry

// registry has the startups of servers until these are gone.
type registry struct {
	mu  sync.Mutex
	all []*startup
}

// startup has the clusters that the blocks of one server watch, and the functions that stop the watches. The storage of the
// server's instance has it.
type startup struct {
	mu       sync.Mutex
	stops    []func()
	clusters map[apiServer]*sharedCluster
}

// sharedCluster is the cluster of all blocks with one API server: each block of its own would hold all objects again.
type sharedCluster struct {
	*cluster
	watched bool // caddy starts the blocks one after another
}

func (s *startup) clusterOf(from apiServer) *sharedCluster {
	if s.clusters[from] == nil {
		common := &sharedCluster{cluster: newCluster()}
		common.unlisted.Store(1) // until the watches start
		s.clusters[from] = common
	}
	return s.clusters[from]
}

type startupKey struct{}

// of returns the startup of a block's server.
func (r *registry) of(c *caddy.Controller) *startup {
	if s, ok := c.Get(startupKey{}).(*startup); ok {
		return s
	}
	s := &startup{clusters: map[apiServer]*sharedCluster{}}
	c.Set(startupKey{}, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	return s
}

// stopDropped stops the watches of servers that caddy has dropped.
func (r *registry) stopDropped() {
	live := map[*startup]bool{}
	for _, instance := range caddy.Instances() {
		instance.StorageMu.RLock()
		if s, ok := instance.Storage[startupKey{}].(*startup); ok {
			live[s] = true
		}
		instance.StorageMu.RUnlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(s *startup) bool {
		if !live[s] {
			s.stop()
		}
		return !live[s]
	})
}

// onStop adds a function for stop.
func (s *startup) onStop(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

// stop calls the functions of onStop, once.
func (s *startup) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stops {
		stop()
	}
	s.stops = nil
}
