package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const apiService = `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
"spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
"insecureSkipTLSVerify": true, "service": {"namespace": "kube-system", "name": "metrics-server", "port": 443}}}`

// serveMetrics runs the metrics server beside the cluster, whose API server reaches it by a service, until the test ends.
func serveMetrics(t *testing.T) {
	t.Helper()
	program := os.Getenv("METRICS_SERVER")
	if program == "" {
		t.Skip("METRICS_SERVER is not set: ../containerd says why")
	}
	at, port := address(t), freePorts(t, 1)[0]
	kubeconfig := shared.path("up", "kubeconfig")
	server, err := shared.spawn("metrics", program, "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
		"--authorization-kubeconfig", kubeconfig, "--kubelet-insecure-tls", "--kubelet-use-node-status-port",
		"--kubelet-preferred-address-types", "InternalIP", "--metric-resolution", "10s", "--kubelet-request-timeout", "9s",
		"--cert-dir", shared.path("metrics"),
		"--secure-port", fmt.Sprint(port))
	must(t, err)
	t.Cleanup(func() { kill(server, syscall.SIGTERM) })
	services := shared.client.CoreV1().Services("kube-system")
	_, err = services.Create(within(t), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(port)}}},
	}, metav1.CreateOptions{})
	must(t, err)
	slices := shared.client.DiscoveryV1().EndpointSlices("kube-system")
	_, err = slices.Create(within(t), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "metrics-server", Labels: map[string]string{discoveryv1.LabelServiceName: "metrics-server"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	must(t, err)
	registration := shared.client.Discovery().RESTClient()
	must(t, registration.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Body([]byte(apiService)).
		SetHeader("Content-Type", "application/json").Do(within(t)).Error())
	t.Cleanup(func() {
		ctx := context.Background()
		_ = registration.Delete().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").Do(ctx).Error()
		_ = services.Delete(ctx, "metrics-server", metav1.DeleteOptions{})
		_ = slices.Delete(ctx, "metrics-server", metav1.DeleteOptions{})
	})
}

// top asks until kubectl shows a line of this name with amounts of CPU and memory.
func top(t *testing.T, kubectl, name string, arguments ...string) {
	t.Helper()
	must(t, eventually("kubectl top "+strings.Join(arguments, " "), func() error {
		all := append([]string{"--kubeconfig", shared.path("up", "kubeconfig"), "top"}, arguments...)
		out, err := exec.Command(kubectl, all...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == name && strings.Contains(line, "m ") &&
				strings.Contains(line, "Mi") && !strings.Contains(line, " 0Mi") {
				return nil
			}
		}
		return errors.New(string(out))
	}))
}

// TestTop shows what nodes and pods use by the metrics server, which asks both node agents: that on containerd, and one that runs
// containers itself. It takes the time of two of its looks, ten seconds each.
func TestTop(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	serveMetrics(t)
	startOwn(t)
	for _, node := range []string{"n1", "n2"} {
		wanted := pod("used-"+node, "count")
		wanted.Spec.NodeName = node
		create(t, wanted)
		await(t, wanted.Name, "running", isRunning)
	}
	for _, node := range []string{"n1", "n2"} {
		top(t, kubectl, node, "nodes")
		top(t, kubectl, "used-"+node, "pods")
	}
}
