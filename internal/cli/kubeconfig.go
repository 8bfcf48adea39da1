package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// clusterFlags choose the cluster and the user, as kubectl's flags do.
type clusterFlags struct {
	kubeconfig string
	context    string
	namespace  string
	as         string
	timeout    time.Duration
}

func (f *clusterFlags) add(flags *pflag.FlagSet, namespaceUsage string) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", namespaceUsage)
	f.addConnection(flags)
}

// addConnection adds all flags except --namespace.
func (f *clusterFlags) addConnection(flags *pflag.FlagSet) {
	flags.StringVar(&f.context, "context", "", "`NAME` of the kubeconfig context (default the current one)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default $KUBECONFIG or ~/.kube/config; in a pod, its service account)")
	flags.StringVar(&f.as, "as", "", "`USER` to impersonate")
	flags.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "how long to wait for each response")
	command.Share(flags, "Cluster flags", "context", "kubeconfig", "as", "request-timeout")
}

// connection is a cluster as one user sees it.
type connection struct {
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// clock has the time of the API server, from its responses.
	clock *command.Clock
	// namespace is from the flags or the context.
	namespace string
	// server is the cluster's address, for messages.
	server string
	config *rest.Config
}

// connector connects by flags. Tests replace it.
type connector func(*clusterFlags) (*connection, error)

func (c connector) reader(f *clusterFlags) (*clusterReader, error) {
	connected, err := c(f)
	if err != nil {
		return nil, err
	}
	return &clusterReader{connection: connected, now: time.Now()}, nil
}

// Client-side limits: large clusters are read in many pages.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

// connect reads the kubeconfig. It does not talk to the cluster.
func connect(f *clusterFlags) (*connection, error) {
	if f.timeout < 0 {
		return nil, command.UsageErrorf("--request-timeout %s is not allowed; it must not be negative; 0 means no limit", f.timeout)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false // loading returns an error instead
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.AuthInfo.Impersonate = f.as
	overrides.Context.Namespace = f.namespace
	loading := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if err := f.check(loading); err != nil {
		return nil, err
	}
	config, err := loading.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is named: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := loading.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.Timeout = f.timeout
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	config.UserAgent = "vicinity"
	config.WarningHandler = rest.NoWarnings{}
	return newConnection(config, namespace)
}

// check finds faults that clientcmd reports unclearly or not at all.
func (f *clusterFlags) check(loading clientcmd.ClientConfig) error {
	raw, err := loading.RawConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	name := cmp.Or(f.context, raw.CurrentContext)
	chosen, found := raw.Contexts[name]
	if !found && (f.context != "" || name != "") {
		return fmt.Errorf("context %q is not in the kubeconfig; %s", name, listed(slices.Sorted(maps.Keys(raw.Contexts))))
	}
	if found {
		if _, known := raw.Clusters[chosen.Cluster]; !known {
			return fmt.Errorf("context %q names the cluster %q, which is not in the kubeconfig", name, chosen.Cluster)
		}
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + plaintext.FirstOf(names, mostListed)
}

// mostListed limits the names that a message lists.
const mostListed = 10

func newConnection(config *rest.Config, namespace string) (*connection, error) {
	c := &connection{clock: new(command.Clock), namespace: namespace, server: config.Host, config: config}
	config.Wrap(c.clock.Wrap)
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	binary.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.typed, err = kubernetes.NewForConfig(binary); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}
