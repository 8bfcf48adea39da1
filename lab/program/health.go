package program

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// The services that an echo reports health for by gRPC. The empty service is readiness too.
const (
	readyService = "ready"
	liveService  = "live"
)

// health answers gRPC health checks like /readyz and /livez.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	state *behaviour
}

func newHealthServer(state *behaviour) *grpc.Server {
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health{state: state})
	return server
}

// Check reports whether a service serves.
func (h health) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	var serves bool
	switch service := request.GetService(); service {
	case "", readyService:
		serves = h.state.snapshot().Ready
	case liveService:
		serves = h.state.isLive()
	default:
		return nil, status.Errorf(codes.NotFound, "service %q is unknown; it must be %s, %s or empty", service, readyService, liveService)
	}
	answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}
	if serves {
		answer.Status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return answer, nil
}
