// Package release installs Vicinity's chart in a lab with Helm's library.
//
// It installs, upgrades and removes the lab's only release, and returns when the API has accepted
// its objects. It does not check whether they work. It removes and reinstalls an interrupted
// release.
package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	helm "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// The release of a lab, and the namespace of its objects.
const (
	Name      = "vicinity"
	Namespace = "vicinity-system"
)

const history = 5

// timeout limits how long Helm waits until removed objects are deleted.
const timeout = time.Minute

// Apply installs a chart without its CRDs, or upgrades the release to it and to exactly these
// values.
func Apply(ctx context.Context, config *rest.Config, c Chart, values Values) error {
	h, err := connect(config)
	if err != nil {
		return err
	}
	upgradable, err := h.isUpgradable()
	if err != nil {
		return err
	}
	if !upgradable {
		return h.install(ctx, c.chart, values)
	}
	return h.upgrade(ctx, c.chart, values)
}

// Change upgrades the release with the same chart, and with key=value assignments added to its
// values.
func Change(ctx context.Context, config *rest.Config, assignments ...string) error {
	h, err := connect(config)
	if err != nil {
		return err
	}
	last, err := h.last()
	if err != nil {
		return err
	}
	if last == nil {
		return fmt.Errorf("there is no release %s to change", Name)
	}
	if last.Info.Status != common.StatusDeployed {
		return fmt.Errorf("the last revision of release %s is %s, not deployed: install it again", Name, last.Info.Status)
	}
	values := Values{}
	maps.Copy(values, runtime.DeepCopyJSON(last.Config))
	if err := values.Set(assignments...); err != nil {
		return err
	}
	return h.upgrade(ctx, last.Chart, values)
}

// Rollback restores the chart and the values of the previous revision. CRDs stay as they are.
func Rollback(config *rest.Config) error {
	h, err := connect(config)
	if err != nil {
		return err
	}
	back := action.NewRollback(h.helm)
	back.MaxHistory, back.WaitStrategy, back.Timeout = history, kube.HookOnlyStrategy, timeout
	if err := back.Run(Name); err != nil {
		return fmt.Errorf("rolling the release back: %w", err)
	}
	return nil
}

// Remove removes the release, if there is one. CRDs and custom resources stay.
func Remove(config *rest.Config) error {
	h, err := connect(config)
	if err != nil {
		return err
	}
	return h.remove()
}

type cluster struct {
	helm *action.Configuration
}

func connect(config *rest.Config) (cluster, error) {
	kube.ManagedFieldsManager = "helm" // or "helm upgrade" would conflict with the name of this program
	g, err := newGetter(config)
	if err != nil {
		return cluster{}, fmt.Errorf("preparing Helm: %w", err)
	}
	configuration := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := configuration.Init(g, Namespace, "secret"); err != nil {
		return cluster{}, fmt.Errorf("preparing Helm: %w", err)
	}
	return cluster{helm: configuration}, nil
}

func (h cluster) last() (*helm.Release, error) {
	last, err := h.helm.Releases.Last(Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking for release %s: %w", Name, err)
	}
	found, ok := last.(*helm.Release)
	if !ok {
		return nil, fmt.Errorf("looking for release %s: its type is %T, want %T", Name, last, found)
	}
	return found, nil
}

// isUpgradable reports whether there is a release to upgrade. It removes an interrupted one.
func (h cluster) isUpgradable() (bool, error) {
	switch last, err := h.last(); {
	case err != nil || last == nil:
		return false, err
	case last.Info.Status != common.StatusDeployed:
		return false, h.remove()
	}
	return true, nil
}

func (h cluster) install(ctx context.Context, c *chart.Chart, values Values) error {
	install := action.NewInstall(h.helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.SkipCRDs = Name, Namespace, true, true
	install.WaitStrategy, install.Timeout = kube.HookOnlyStrategy, timeout
	if _, err := install.RunWithContext(ctx, c, values); err != nil {
		return fmt.Errorf("installing the chart: %w", err)
	}
	return nil
}

func (h cluster) upgrade(ctx context.Context, c *chart.Chart, values Values) error {
	upgrade := action.NewUpgrade(h.helm)
	upgrade.Namespace, upgrade.MaxHistory, upgrade.ResetValues = Namespace, history, true
	upgrade.WaitStrategy, upgrade.Timeout = kube.HookOnlyStrategy, timeout
	if _, err := upgrade.RunWithContext(ctx, Name, c, values); err != nil {
		return fmt.Errorf("changing the release: %w", err)
	}
	return nil
}

func (h cluster) remove() error {
	uninstall := action.NewUninstall(h.helm)
	uninstall.IgnoreNotFound = true
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, timeout
	if _, err := uninstall.Run(Name); err != nil {
		return fmt.Errorf("removing the release: %w", err)
	}
	return nil
}
