package agent

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func (w *worker) checkHealth(ctx context.Context, call hookCall, action *corev1.GRPCAction) error {
	addr, err := probeAddress(call, "", intstr.FromInt32(action.Port))
	if err != nil {
		return err
	}
	return queryHealth(ctx, addr, ptr.Deref(action.Service, ""), func(ctx context.Context, addr string) (net.Conn, error) {
		return w.dial(ctx, call.pod, addr)
	})
}

func queryHealth(ctx context.Context, addr, service string, dial func(context.Context, string) (net.Conn, error)) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithContextDialer(dial), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/vicinity"))
	if err != nil {
		return err
	}
	defer conn.Close()
	response, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return fmt.Errorf("health rpc failed: %w", err)
	}
	if response.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", response.Status)
	}
	return nil
}
