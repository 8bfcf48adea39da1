package lab

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/lab/storage"
)

// ServeRuntime runs the containers of a lab's nodes, and makes the volumes of its claims,
// until the context ends.
func ServeRuntime(ctx context.Context, dir state.Dir) error {
	ctx, cancel := context.WithCancel(ctx)
	var volumes sync.WaitGroup
	defer volumes.Wait()
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	volumes.Go(func() {
		// Most of a lab works without volumes.
		if err := serveStorage(ctx, dir, log); err != nil {
			log.Error("volumes cannot be provisioned", "error", err)
		}
	})
	return cri.Run(ctx, dir)
}

func serveStorage(ctx context.Context, dir state.Dir, log *slog.Logger) error {
	config, err := clientcmd.BuildConfigFromFlags("", dir.ComponentKubeconfig(controlplane.Storage))
	if err != nil {
		return fmt.Errorf("reading the kubeconfig for volumes: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client for volumes: %w", err)
	}
	return storage.Run(ctx, storage.Options{Client: client, Folder: dir.Volumes(), Log: log})
}
