package cri

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// freePorts are ports that nothing listens on. Without CNI plugins pods share them with this machine.
func freePorts(t *testing.T, number int) (ports []int32) {
	t.Helper()
	for range number {
		listener, err := net.Listen("tcp", ":0")
		must(t, err)
		defer listener.Close()
		ports = append(ports, int32(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// eventOf waits for an event of a pod with this reason, whose message satisfies the condition.
func eventOf(t *testing.T, name, reason string, holds func(message string) bool) {
	t.Helper()
	must(t, eventually(reason+" of "+name, func() error {
		found, err := shared.client.CoreV1().Events("default").List(within(t), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + name + ",reason=" + reason,
		})
		if err != nil {
			return err
		}
		var seen []string
		for _, event := range found.Items {
			if holds(event.Message) {
				return nil
			}
			seen = append(seen, event.Message)
		}
		return fmt.Errorf("only %q", seen)
	}))
}

// TestProbes has a container that is started, ready and alive as it says, by programs, HTTP and gRPC.
func TestProbes(t *testing.T) {
	for _, kind := range []struct {
		name string
		// asks is the handler that asks for a sign.
		asks func(sign string, web, rpc int32) corev1.ProbeHandler
	}{
		{"exec", func(sign string, _, _ int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/app", "holds", sign}}}
		}},
		{"http", func(sign string, web, _ int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/" + sign, Port: intstr.FromInt32(web)}}
		}},
		{"grpc", func(sign string, _, rpc int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: rpc, Service: &sign}}
		}},
	} {
		t.Run(kind.name, func(t *testing.T) { probed(t, "probed-"+kind.name, kind.asks) })
	}
}

func probed(t *testing.T, name string, asks func(sign string, web, rpc int32) corev1.ProbeHandler) {
	ports := freePorts(t, 2)
	wanted := pod(name, "serve", fmt.Sprintf(":%d", ports[0]), fmt.Sprintf(":%d", ports[1]))
	wanted.Spec.RestartPolicy = corev1.RestartPolicyAlways
	container := &wanted.Spec.Containers[0]
	probe := func(sign string, failures int32) *corev1.Probe {
		// Generous with the time of one: the machine may be busy.
		return &corev1.Probe{ProbeHandler: asks(sign, ports[0], ports[1]), PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: failures}
	}
	container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = probe("started", 1000), probe("ready", 1), probe("alive", 1)
	create(t, wanted)
	sign := func(arguments ...string) {
		t.Helper()
		out, _, err := execute(t, "websocket", name, nil, append([]string{"/app"}, arguments...)...)
		if err != nil {
			t.Fatalf("%q: %v: %s", arguments, err, out)
		}
	}
	status := func(pod *corev1.Pod) corev1.ContainerStatus {
		if len(pod.Status.ContainerStatuses) == 0 {
			return corev1.ContainerStatus{}
		}
		return pod.Status.ContainerStatuses[0]
	}
	started := func(pod *corev1.Pod) bool { return status(pod).Started != nil && *status(pod).Started }
	ready := func(pod *corev1.Pod) bool { return status(pod).Ready }

	running := await(t, name, "running", isRunning)
	eventOf(t, name, "Unhealthy", func(text string) bool { return strings.HasPrefix(text, "Startup probe failed") })
	if running := await(t, name, "running", isRunning); started(running) || ready(running) {
		t.Errorf("started before it says so: %+v", status(running))
	}
	sign("write", "/data/started", "")
	await(t, name, "started", started)
	eventOf(t, name, "Unhealthy", func(text string) bool { return strings.HasPrefix(text, "Readiness probe failed") })
	sign("write", "/data/ready", "")
	await(t, name, "ready", ready)
	sign("remove", "/data/ready")
	after := await(t, name, "not ready", func(pod *corev1.Pod) bool { return !ready(pod) })
	if now := status(after); now.RestartCount != 0 || now.ContainerID != status(running).ContainerID {
		t.Errorf("restarted because it was not ready: %+v", now)
	}
	sign("remove", "/data/alive")
	await(t, name, "restarted", func(pod *corev1.Pod) bool {
		return status(pod).RestartCount == 1 && status(pod).State.Running != nil
	})
	eventOf(t, name, "Unhealthy", func(text string) bool { return strings.HasPrefix(text, "Liveness probe failed") })
	eventOf(t, name, "Killing", func(text string) bool {
		return text == "Container main failed liveness probe, will be restarted"
	})
}
