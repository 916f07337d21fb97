package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// signs is the directory with a file for everything that holds: `alive`, `ready`, `started`.
const signs = "/data"

func holds(sign string) bool {
	_, err := os.Stat(path.Join(signs, path.Base(sign)))
	return err == nil
}

// health answers for the service of the sign's name.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (health) Check(_ context.Context, request *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if holds(request.Service) {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return &grpc_health_v1.HealthCheckResponse{Status: status}, nil
}

// serve answers probes by HTTP and gRPC. It is alive until the sign is removed.
func serve(webAddress, grpcAddress string) error {
	if err := os.WriteFile(path.Join(signs, "alive"), nil, 0o644); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health{})
	go func() { fmt.Println("error:", server.Serve(listener)) }()
	return http.ListenAndServe(webAddress, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if !holds(request.URL.Path) {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
}
