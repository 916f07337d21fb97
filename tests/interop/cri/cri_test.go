package cri

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// gpu is a claim of a GPU of the driver.
func gpu() resourcev1.DeviceClaim {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}
	return resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}
}

// claimTemplate creates a template for claims of devices, which is deleted with the test.
func claimTemplate(t *testing.T, name string, devices resourcev1.DeviceClaim) {
	t.Helper()
	templates := shared.client.ResourceV1().ResourceClaimTemplates("default")
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Spec.Devices = devices
	_, err := templates.Create(within(t), template, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = templates.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// claim gives the container of a pod the devices of a template. The scheduler places the pod.
func claim(pod *corev1.Pod, template string) {
	pod.Spec.NodeName = ""
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
}

// withDevices is a pod with devices, placed by the scheduler.
func withDevices(t *testing.T, name string, devices resourcev1.DeviceClaim, arguments ...string) *corev1.Pod {
	t.Helper()
	claimTemplate(t, name, devices)
	wanted := pod(name, arguments...)
	claim(wanted, name)
	return wanted
}

// configMap creates a config map with one key, which is deleted with the test.
func configMap(t *testing.T, name string) {
	t.Helper()
	maps := shared.client.CoreV1().ConfigMaps("default")
	_, err := maps.Create(within(t), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": "from the map\n"},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = maps.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func TestNodeTellsItsRuntime(t *testing.T) {
	node := ready(t, corev1.ConditionTrue)
	if version := node.Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(version, "containerd://") ||
		strings.Contains(version, "Unknown") {
		t.Errorf("runtime %q", version)
	}
	// Without --node-ip: Endpoints and EndpointSlices do not accept a loopback address.
	for _, told := range node.Status.Addresses {
		if told.Type == corev1.NodeInternalIP && net.ParseIP(told.Address).IsLoopback() {
			t.Errorf("address %s, and this machine has %s", told.Address, address(t))
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "NetworkReady" && !strings.Contains(condition.Message, "pods share the network of the host") {
			t.Errorf("NetworkReady: %+v", condition)
		}
	}
}

func TestDevice(t *testing.T) {
	wanted := withDevices(t, "device", gpu(), "env")
	wanted.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FROM", Value: "pod"}}
	create(t, wanted)
	running := await(t, "device", "running", isRunning)
	if id := running.Status.ContainerStatuses[0].ContainerID; !strings.HasPrefix(id, "containerd://") {
		t.Errorf("container id %q", id)
	}
	text := logged(t, "device", "end of environment")
	for _, line := range []string{"GPU_DEVICE_", "FROM=pod", "PATH=/"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in the environment:\n%s", line, text)
		}
	}
}

func TestSwitchedOffDevicesAreNotLeftOut(t *testing.T) {
	restart := func(cdi bool) {
		must(t, shared.configure(cdi))
		kill(shared.containerd, syscall.SIGTERM)
		must(t, shared.startContainerd())
	}
	restart(false)
	on := false
	defer func() {
		if !on {
			restart(true)
		}
	}()
	create(t, withDevices(t, "refused", gpu(), "env"))
	refused := await(t, "refused", "refused", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
			pod.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerError"
	})
	message := refused.Status.ContainerStatuses[0].State.Waiting.Message
	if !strings.Contains(message, "unresolvable CDI devices") {
		t.Errorf("message %q", message)
	}
	must(t, eventually("the event", func() error {
		events, err := shared.client.CoreV1().Events("default").List(within(t), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "DevicesNotInjected" && strings.Contains(event.Message, "set enable_cdi = true") {
				return nil
			}
		}
		return errors.New("not there")
	}))
	restart(true)
	on = true
	await(t, "refused", "running after CDI was switched on", isRunning)
}

// execute runs a program in a container over one of the transports.
func execute(t *testing.T, transport, name string, stdin io.Reader, command ...string) (string, string, error) {
	t.Helper()
	options := &corev1.PodExecOptions{Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true}
	url := shared.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(name).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).URL()
	var executor remotecommand.Executor
	var err error
	if transport == "spdy" {
		executor, err = remotecommand.NewSPDYExecutor(shared.config, "POST", url)
	} else {
		executor, err = remotecommand.NewWebSocketExecutor(shared.config, "GET", url.String())
	}
	must(t, err)
	var out, errs bytes.Buffer
	err = executor.StreamWithContext(within(t), remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errs})
	return out.String(), errs.String(), err
}

func TestStreams(t *testing.T) {
	create(t, pod("streams", "echo"))
	await(t, "streams", "running", isRunning)
	// Pods share the network of the host: the port is one that is free.
	var port uint16
	_, err := fmt.Sscanf(logged(t, "streams", "now\n"), "listening on %d now", &port)
	must(t, err)
	for _, transport := range []string{"websocket", "spdy"} {
		t.Run(transport, func(t *testing.T) {
			out, errs, err := execute(t, transport, "streams", nil, "/app", "say", "hello", "oh", "7")
			var code utilexec.CodeExitError
			if out != "hello\n" || errs != "oh\n" || !errors.As(err, &code) || code.Code != 7 {
				t.Errorf("out %q, err %q: %v", out, errs, err)
			}
			// The end of the input arrives, and all of a large one before it.
			large := strings.Repeat("0123456789abcde\n", 64*1024)
			out, _, err = execute(t, transport, "streams", strings.NewReader(large), "/app", "cat")
			must(t, err)
			if out != large {
				t.Errorf("%d of %d bytes came back", len(out), len(large))
			}
		})
	}
	t.Run("port-forward", func(t *testing.T) {
		round, upgrader, err := spdy.RoundTripperFor(shared.config)
		must(t, err)
		url := shared.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("streams").
			SubResource("portforward").URL()
		dialer := spdy.NewDialer(upgrader, &http.Client{Transport: round}, "POST", url)
		stop, up := make(chan struct{}), make(chan struct{})
		var out, errs bytes.Buffer
		forwarder, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, up, &out, &errs)
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- forwarder.ForwardPorts() }()
		defer close(stop)
		select {
		case <-up:
		case err := <-ended:
			t.Fatal(err)
		}
		ports, err := forwarder.GetPorts()
		must(t, err)
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		must(t, err)
		_, err = io.WriteString(connection, "hello\n")
		must(t, err)
		// The end of one direction is not passed on by containerd: what was answered before it is read.
		text, err := bufio.NewReader(connection).ReadString('\n')
		must(t, err)
		must(t, connection.Close())
		if text != "HELLO\n" {
			t.Errorf("answer %q; %s", text, errs.String())
		}
	})
}

func TestSecurityContext(t *testing.T) {
	wanted := pod("secure", "show", "/proc/self/status")
	user, yes, no := int64(1000), true, false
	wanted.Spec.SecurityContext = &corev1.PodSecurityContext{
		SupplementalGroups: []int64{7},
		SeccompProfile:     &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wanted.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	create(t, wanted)
	await(t, "secure", "over", isOver)
	text := log(t, "secure")
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	for name, value := range map[string]string{
		"Uid": "1000 1000 1000 1000", "NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapBnd": "0000000000000000",
	} {
		if fields[name] != value {
			t.Errorf("%s is %q instead of %q", name, fields[name], value)
		}
	}
	if !slices.Contains(strings.Fields(fields["Groups"]), "7") {
		t.Errorf("groups %q", fields["Groups"])
	}

	root := pod("root", "pause")
	root.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: &yes}
	create(t, root)
	await(t, "root", "refused", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(pod.Status.ContainerStatuses[0].State.Waiting.Message, "image will run as root")
	})
}

func TestVolumesAndEnds(t *testing.T) {
	configMap(t, "m")
	wanted := pod("volumes", "show", "/map/key", "/one", "/etc/hosts")
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "m"},
	}}
	wanted.Spec.Volumes = []corev1.Volume{{Name: "m", VolumeSource: source}}
	wanted.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "m", MountPath: "/map"}, {Name: "m", MountPath: "/one", SubPath: "key"},
	}
	create(t, wanted)
	over := await(t, "volumes", "over", isOver)
	if over.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s: %+v", over.Status.Phase, over.Status)
	}
	text := log(t, "volumes")
	if strings.Count(text, "from the map") != 2 || !strings.Contains(text, "Kubernetes-managed hosts file") {
		t.Errorf("files:\n%s", text)
	}

	create(t, pod("fails", "say", "a", "b", "3"))
	over = await(t, "fails", "over", isOver)
	if end := over.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 || end.Reason != "Error" {
		t.Errorf("end %+v", over.Status.ContainerStatuses[0].State)
	}

	greedy := pod("greedy", "eat")
	greedy.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	create(t, greedy)
	over = await(t, "greedy", "over", isOver)
	if end := over.Status.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("end %+v", over.Status.ContainerStatuses[0].State)
	}
}

// TestLogsAndUsage takes the time of two looks at the sizes of logs, ten seconds each.
func TestLogsAndUsage(t *testing.T) {
	create(t, pod("counts", "count"))
	counts := await(t, "counts", "running", isRunning)
	directory := shared.path("n", "logs", fmt.Sprintf("default_counts_%s", counts.UID), counts.Spec.Containers[0].Name)
	must(t, eventually("the log is rotated twice", func() error {
		files, err := os.ReadDir(directory)
		if err == nil && len(files) != 3 {
			err = fmt.Errorf("files: %v", files)
		}
		return err
	}))
	// The runtime goes on with the new file.
	must(t, eventually("the new log grows", func() error {
		// While it is rotated again there is none.
		info, err := os.Stat(filepath.Join(directory, "0.log"))
		if err == nil && info.Size() == 0 {
			err = errors.New("it is empty")
		}
		return err
	}))
	must(t, eventually("the container is measured", func() error {
		request := shared.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/metrics/resource")
		text, err := request.DoRaw(within(t))
		if err != nil {
			return err
		}
		for _, metric := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"} {
			sample := fmt.Sprintf("%s{container=%q,namespace=\"default\",pod=\"counts\"}", metric, counts.Spec.Containers[0].Name)
			if !strings.Contains(string(text), sample) {
				return fmt.Errorf("no %s in:\n%s", sample, text)
			}
		}
		if !strings.Contains(string(text), "resource_scrape_error 0") {
			return fmt.Errorf("containers were not measured:\n%s", text)
		}
		return nil
	}))
}

// TestResize gives a container other resources while it runs. The status shows what the runtime reports.
func TestResize(t *testing.T) {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	wanted := pod("grows", "count")
	wanted.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: amounts("100m", "32Mi"), Limits: amounts("200m", "128Mi"),
	}
	create(t, wanted)
	has := func(pod *corev1.Pod, cpu, memory string) bool {
		if !isRunning(pod) {
			return false
		}
		found := pod.Status.ContainerStatuses[0].Resources
		return found != nil && found.Limits.Cpu().Equal(resource.MustParse(cpu)) &&
			found.Limits.Memory().Equal(resource.MustParse(memory))
	}
	before := await(t, "grows", "with its limits", func(pod *corev1.Pod) bool { return has(pod, "200m", "128Mi") })
	if user := before.Status.ContainerStatuses[0].User; user == nil || user.Linux == nil {
		t.Errorf("the user of the container is not in the status")
	}
	patch := `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"150m"},"limits":{"cpu":"300m","memory":"256Mi"}}}]}}`
	_, err := shared.client.CoreV1().Pods("default").Patch(within(t), "grows", types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "resize")
	must(t, err)
	after := await(t, "grows", "with other limits", func(pod *corev1.Pod) bool { return has(pod, "300m", "256Mi") })
	if first, second := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; first.ContainerID != second.ContainerID ||
		second.RestartCount != 0 || !second.AllocatedResources.Cpu().Equal(resource.MustParse("150m")) {
		t.Errorf("status %+v, before %+v", second, first)
	}
}

// counted waits until a container that counts has come to a number, and returns the last one. The log may have been
// rotated: how many lines it has says nothing.
func counted(t *testing.T, name string, wanted int) (last int) {
	t.Helper()
	must(t, eventually(fmt.Sprintf("%s counts to %d", name, wanted), func() error {
		text, err := shared.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(within(t))
		if err != nil {
			return err
		}
		last = -1
		for line := range strings.Lines(string(text)) {
			_, _ = fmt.Sscanf(line, "count %d\n", &last)
		}
		if last < wanted {
			return fmt.Errorf("only %d", last)
		}
		return nil
	}))
	return last
}

func TestKills(t *testing.T) {
	create(t, withDevices(t, "stays", gpu(), "count"))
	before := await(t, "stays", "running", isRunning).Status.ContainerStatuses[0]
	counted(t, "stays", 5)
	same := func(what string) {
		t.Helper()
		now, err := shared.client.CoreV1().Pods("default").Get(within(t), "stays", metav1.GetOptions{})
		must(t, err)
		status := now.Status.ContainerStatuses[0]
		if status.ContainerID != before.ContainerID || status.State.Running == nil || status.RestartCount != 0 {
			t.Fatalf("after %s: %+v", what, status)
		}
	}
	t.Run("agent", func(t *testing.T) {
		kill(shared.agent, syscall.SIGKILL)
		must(t, shared.startAgent())
		// A later pod shows that the new agent has looked at everything.
		create(t, pod("later", "pause"))
		await(t, "later", "running", isRunning)
		same("the agent was killed")
		out, _, err := execute(t, "spdy", "stays", nil, "/app", "say", "again", "", "0")
		must(t, err)
		if out != "again\n" {
			t.Errorf("out %q", out)
		}
		counted(t, "stays", counted(t, "stays", 0)+3)
	})
	t.Run("containerd", func(t *testing.T) {
		kill(shared.containerd, syscall.SIGKILL)
		ready(t, corev1.ConditionFalse)
		same("containerd was killed")
		must(t, shared.startContainerd())
		ready(t, corev1.ConditionTrue)
		create(t, pod("after", "pause"))
		await(t, "after", "running", isRunning)
		same("containerd came back")
	})
	t.Run("program", func(t *testing.T) {
		_, id, _ := strings.Cut(before.ContainerID, "://")
		_, err := shared.ctr("tasks", "kill", "--signal", "SIGKILL", id)
		must(t, err)
		over := await(t, "stays", "over", isOver)
		if end := over.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 {
			t.Errorf("end %+v", over.Status.ContainerStatuses[0].State)
		}
	})
}
