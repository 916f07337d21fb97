package cri

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// upWithRuntime is a cluster of one process, `allot up --runtime cri`, on the containerd of the tests, and ends with the test.
func upWithRuntime(t *testing.T, name string, flags ...string) kubernetes.Interface {
	t.Helper()
	directory := shared.path(name)
	arguments := []string{"up", "--runtime", "cri", "--cri-endpoint", "unix://" + shared.path("c.sock"), "--no-driver",
		"--in-memory", "--data-dir", directory, "--listen", "127.0.0.1:0"}
	up := exec.Command(shared.bin, append(arguments, flags...)...)
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	log, err := os.Create(shared.path(name + ".log"))
	must(t, err)
	defer log.Close()
	up.Stderr = log
	out, err := up.StdoutPipe()
	must(t, err)
	must(t, up.Start())
	t.Cleanup(func() { kill(up, syscall.SIGTERM) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v: %s%s", err, line, text)
	}
	config, err := clientcmd.BuildConfigFromFlags("", directory+"/kubeconfig")
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// TestWebhookByService runs an admission webhook as a pod of `allot up --runtime cri`, which the API server reaches by its service.
func TestWebhookByService(t *testing.T) {
	t.Run("in the network of the host", func(t *testing.T) { webhookByService(t, "up-host", "--node-ip", address(t)) })
	t.Run("in a network of pods", func(t *testing.T) {
		podNetwork(t)
		webhookByService(t, "up-cni")
	})
}

// address is one of this machine that EndpointSlices may contain.
func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has only loopback addresses")
	return ""
}

func webhookByService(t *testing.T, name string, flags ...string) {
	client := upWithRuntime(t, name, flags...)
	ctx := within(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	must(t, listener.Close())

	certificate, key, err := cert.GenerateSelfSignedCertKey("hook.default.svc", nil, nil)
	must(t, err)
	_, err = client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Data: map[string][]byte{"tls.crt": certificate, "tls.key": key},
	}, metav1.CreateOptions{})
	must(t, err)
	hook := pod("hook", "admit", fmt.Sprintf(":%d", port), "/tls/tls.crt", "/tls/tls.key")
	hook.Labels = map[string]string{"app": "hook"}
	hook.Spec.NodeName = ""
	mounted(hook, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "hook"}}, corev1.VolumeMount{MountPath: "/tls"})
	hook.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}, PeriodSeconds: 1,
	}
	pods := client.CoreV1().Pods("default")
	_, err = pods.Create(ctx, hook, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = pods.Delete(context.Background(), "hook", metav1.DeleteOptions{})
		must(t, eventually("the pod is gone", func() error {
			left, err := pods.List(context.Background(), metav1.ListOptions{})
			if err == nil && len(left.Items) > 0 {
				err = fmt.Errorf("%s is there", left.Items[0].Name)
			}
			return err
		}))
		// Its sandbox is removed a little later, by an agent that is about to end.
		must(t, eventually("the sandbox is gone", func() error {
			left, err := shared.ctr("containers", "ls", "-q", `labels."io.kubernetes.pod.name"==hook`)
			if err == nil && strings.TrimSpace(left) != "" {
				err = fmt.Errorf("left: %s", left)
			}
			return err
		}))
	})
	_, err = client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "hook"},
			Ports:    []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(port)}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, eventually("the service has an endpoint", func() error {
		slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=hook"})
		if err != nil {
			return err
		}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if ptr.Deref(endpoint.Conditions.Ready, false) {
					return nil
				}
			}
		}
		running, err := pods.Get(ctx, "hook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return fmt.Errorf("%+v, pod: %+v", slices.Items, running.Status)
	}))
	// The API server reaches the node at its address.
	_, err = pods.GetLogs("hook", &corev1.PodLogOptions{}).DoRaw(ctx)
	must(t, err)
	configuration := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hook.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{
				CABundle: certificate,
				Service:  &admissionv1.ServiceReference{Namespace: "default", Name: "hook", Path: ptr.To("/admit")},
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}},
		}},
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	must(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	write := func(name, key string) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: "said by the pod"}}
		_, err := maps.Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	number := 0
	must(t, eventually("the webhook counts", func() error {
		// Until the API server has the configuration, everything is admitted.
		number++
		err := write(fmt.Sprintf("refused-%d", number), "refused")
		if err == nil || !strings.Contains(err.Error(), `admission webhook "hook.example.com" denied the request: said by the pod`) {
			return fmt.Errorf("refusal: %v", err)
		}
		return nil
	}))
	must(t, write("permitted", "key"))
	// The policy Fail: without its pod nothing is permitted.
	must(t, pods.Delete(ctx, "hook", metav1.DeleteOptions{}))
	number = 0
	must(t, eventually("the webhook is away", func() error {
		number++
		err := write(fmt.Sprintf("away-%d", number), "key")
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("refusal: %v", err)
		}
		return nil
	}))
}
