package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// classOf creates the class of a driver's devices, which is deleted with the test, and returns a claim of one of them.
func classOf(t *testing.T, driver string) resourcev1.DeviceClaim {
	t.Helper()
	classes := shared.client.ResourceV1().DeviceClasses()
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)}},
		}},
	}
	_, err := classes.Create(within(t), class, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), driver, metav1.DeleteOptions{}) })
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: driver}
	return resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: exactly}}}
}

// withdrawn deletes what a driver that has ended leaves published, and waits until only the driver of all tests is left.
func withdrawn(t *testing.T, driver string) {
	slices := shared.client.ResourceV1().ResourceSlices()
	_ = slices.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.driver=" + driver})
	must(t, shared.published(1))
}

// helperDriver is the driver of ../plugin, which is written on the official helper in Go.
const helperDriver = "image.example.com"

// startHelperDriver starts it as a process of its own on the node.
func startHelperDriver(t *testing.T) *exec.Cmd {
	t.Helper()
	driver, err := shared.spawn("helper", "env", "KUBECONFIG="+shared.path("up", "kubeconfig"), "NODE_NAME=n1",
		"PLUGINS_DIR="+shared.path("n", "plugins"), "REGISTRY_DIR="+shared.path("n", "plugins_registry"),
		"CDI_DIR="+shared.path("cdi"), shared.path("helper"))
	must(t, err)
	return driver
}

// TestHelperDriver gives a pod a device of a driver on the official helper, beside one of ours, and kills the driver, the agent, the
// shims and containerd at the steps of the pod.
func TestHelperDriver(t *testing.T) {
	build := exec.Command("go", "build", "-trimpath", "-o", shared.path("helper"), "../plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	driver := startHelperDriver(t)
	t.Cleanup(func() {
		kill(driver, syscall.SIGTERM)
		withdrawn(t, helperDriver)
	})
	restart := func() {
		kill(driver, syscall.SIGKILL)
		driver = startHelperDriver(t)
	}
	must(t, shared.published(2))
	both := classOf(t, helperDriver)
	both.Requests = append(both.Requests, gpu().Requests...)
	specs := func() int {
		found, err := filepath.Glob(shared.path("cdi", helperDriver+"-*.json"))
		must(t, err)
		return len(found)
	}

	create(t, withDevices(t, "helped", both, "env"))
	running := await(t, "helped", "running", isRunning)
	text := logged(t, "helped", "end of environment")
	for _, line := range []string{"IMAGE_DEVICE=n1/", "GPU_DEVICE_"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in the environment:\n%s", line, text)
		}
	}
	await(t, "helped", "with the health of its device", func(pod *corev1.Pod) bool {
		for _, resource := range pod.Status.ContainerStatuses[0].AllocatedResourcesStatus {
			for _, health := range resource.Resources {
				if strings.Contains(string(health.ResourceID), helperDriver) && health.Health == corev1.ResourceHealthStatusHealthy {
					return true
				}
			}
		}
		return false
	})
	for _, victim := range append(victims, struct {
		name string
		kill func(t *testing.T)
	}{"driver on the helper", func(*testing.T) { restart() }}) {
		if strings.Contains(victim.name, "shim") || strings.Contains(victim.name, "all") {
			// These end the container; see below.
			continue
		}
		victim.kill(t)
		ready(t, corev1.ConditionTrue)
		// The Node tells a little later where the next agent listens.
		must(t, eventually("the container answers after "+victim.name, func() error {
			out, _, err := execute(t, "websocket", "helped", nil, "/app", "say", "here", "", "0")
			if err == nil && out != "here\n" {
				err = fmt.Errorf("out %q", out)
			}
			return err
		}))
	}
	if now := await(t, "helped", "running", isRunning).Status.ContainerStatuses[0]; now.ContainerID != running.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("another container: %+v", now)
	}
	// It is deleted while its driver is away: the claim is given back to the next one.
	kill(driver, syscall.SIGKILL)
	must(t, shared.client.CoreV1().Pods("default").Delete(within(t), "helped", metav1.DeleteOptions{}))
	_, id, _ := strings.Cut(running.Status.ContainerStatuses[0].ContainerID, "://")
	must(t, eventually("the container has ended", func() error {
		tasks, err := shared.ctr("tasks", "ls")
		for line := range strings.Lines(tasks) {
			if strings.HasPrefix(line, id) && strings.Contains(line, "RUNNING") {
				return errors.New(line)
			}
		}
		return err
	}))
	if specs() != 1 {
		t.Errorf("%d CDI files of the driver", specs())
	}
	driver = startHelperDriver(t)
	await(t, "helped", "gone", nil)
	if specs() != 0 {
		t.Errorf("%d CDI files of the driver are left", specs())
	}

	// Everything is killed while a pod with such a device begins.
	wanted := withDevices(t, "helped-again", both, "env")
	wanted.Spec.RestartPolicy = corev1.RestartPolicyAlways
	create(t, wanted)
	await(t, "helped-again", "scheduled", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	restart()
	victims[len(victims)-1].kill(t)
	await(t, "helped-again", "running", func(pod *corev1.Pod) bool {
		return isRunning(pod) && pod.Status.ContainerStatuses[0].State.Running != nil
	})
	if text := logged(t, "helped-again", "end of environment"); !strings.Contains(text, "IMAGE_DEVICE=n1/") {
		t.Errorf("no device:\n%s", text)
	}
}

const toldDriver = "told.example.com"

// told is a driver in this process, with one device, whose CDI file is what the test says.
type told struct {
	mutex sync.Mutex
	// file is the content of the CDI file with a device of this name.
	file func(device string) string
}

func (d *told) path(claim types.UID) string {
	return shared.path("cdi", fmt.Sprintf("%s-%s.json", toldDriver, claim))
}

func (d *told) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		device := string(claim.UID)
		err := os.WriteFile(d.path(claim.UID), []byte(d.file(device)), 0o644)
		allocated := claim.Status.Allocation.Devices.Results[0]
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: []kubeletplugin.Device{{
			Requests: []string{allocated.Request}, PoolName: allocated.Pool, DeviceName: allocated.Device,
			CDIDeviceIDs: []string{toldDriver + "/device=" + device},
		}}}
	}
	return results, nil
}

func (d *told) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.RemoveAll(d.path(claim.UID))
		results[claim.UID] = err
	}
	return results, nil
}

// WatchHealthStatus has nothing to report.
func (d *told) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

func (d *told) HandleError(context.Context, error, string) {}

// startTold starts the driver on the node, until the test ends.
func startTold(t *testing.T) *told {
	t.Helper()
	d := &told{}
	data := shared.path("n", "plugins", toldDriver)
	must(t, os.MkdirAll(data, 0o750))
	ctx, cancel := context.WithCancel(context.Background())
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(toldDriver), kubeletplugin.NodeName("n1"),
		kubeletplugin.KubeClient(shared.client), kubeletplugin.RegistrarDirectoryPath(shared.path("n", "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	must(t, err)
	t.Cleanup(func() {
		helper.Stop()
		cancel()
		withdrawn(t, toldDriver)
	})
	slice := resourceslice.Slice{Devices: []resourcev1.Device{{Name: "one"}}}
	pools := map[string]resourceslice.Pool{"n1": {Slices: []resourceslice.Slice{slice}}}
	must(t, helper.PublishResources(ctx, resourceslice.DriverResources{Pools: pools}))
	must(t, shared.published(2))
	return d
}

// cdi is a CDI file of the driver with one device, which has these edits.
func cdi(version string, edits map[string]any) func(string) string {
	return func(device string) string {
		text, err := json.Marshal(map[string]any{"cdiVersion": version, "kind": toldDriver + "/device", "devices": []any{
			map[string]any{"name": device, "containerEdits": edits},
		}})
		if err != nil {
			panic(err)
		}
		return string(text)
	}
}

// TestHostileDevices gives pods devices whose CDI files are at fault, or ask for what this machine does not have. None of them runs
// without what its device asks for, the reason is in an event, and the next pod with a good file runs.
func TestHostileDevices(t *testing.T) {
	driver := startTold(t)
	request := classOf(t, toldDriver)
	link := wireName(t)
	list := func(value map[string]any) []any { return []any{value} }
	mount := func(host, container string) map[string]any {
		return map[string]any{"mounts": list(map[string]any{"hostPath": host, "containerPath": container, "options": []string{"rbind"}})}
	}
	for _, fault := range []struct {
		name, part string
		file       func(string) string
	}{
		{"no-json", "unresolvable CDI devices", func(string) string { return "{" }},
		{"empty", "unresolvable CDI devices", func(string) string { return "" }},
		{"other-kind", "unresolvable CDI devices", func(device string) string {
			return strings.Replace(cdi("0.6.0", map[string]any{"env": []string{"A=1"}})(device), toldDriver, "other.example.com", 1)
		}},
		{"twice", "unresolvable CDI devices", func(device string) string {
			one := fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["A=1"]}}`, device)
			return fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "%s/device", "devices": [%s, %s]}`, toldDriver, one, one)
		}},
		{"unknown-hook", "unresolvable CDI devices", cdi("0.6.0", map[string]any{"hooks": list(map[string]any{"hookName": "never", "path": "/bin/true"})})},
		{"false-hook", "hook", cdi("0.6.0", map[string]any{"hooks": list(map[string]any{"hookName": "createContainer", "path": "/bin/false"})})},
		{"missing-hook", "hook", cdi("0.6.0", map[string]any{"hooks": list(map[string]any{"hookName": "createRuntime", "path": "/nonexistent/hook"})})},
		{"missing-device", "/dev/none", cdi("0.6.0", map[string]any{"deviceNodes": list(map[string]any{"path": "/dev/none"})})},
		{"missing-mount", "/nonexistent", cdi("0.6.0", mount("/nonexistent", "/m"))},
		{"over-proc", "proc", cdi("0.6.0", mount("/tmp", "/proc/sys"))},
		{"no-interface", "there is no interface", cdi("1.1.0", map[string]any{"netDevices": list(map[string]any{"hostInterfaceName": "ac-none", "name": "net1"})})},
		{"interface", "was not moved", cdi("1.1.0", map[string]any{"netDevices": list(map[string]any{"hostInterfaceName": link, "name": "net1"})})},
		{"rdt", "Intel RDT", cdi("1.1.0", map[string]any{"intelRdt": map[string]any{"closID": "allot-test"}})},
	} {
		t.Run(fault.name, func(t *testing.T) {
			if fault.name == "interface" && link == "" {
				t.Skip("interfaces cannot be made here")
			}
			driver.mutex.Lock()
			driver.file = fault.file
			driver.mutex.Unlock()
			name := "hostile-" + fault.name
			create(t, withDevices(t, name, request, "env"))
			eventOf(t, name, "Failed", func(message string) bool { return strings.Contains(message, fault.part) })
			found, err := shared.client.CoreV1().Pods("default").Get(within(t), name, metav1.GetOptions{})
			must(t, err)
			if isRunning(found) || found.Status.Phase == corev1.PodSucceeded {
				t.Errorf("it runs: %+v", found.Status.ContainerStatuses)
			}
		})
	}
	t.Run("cycle", func(t *testing.T) {
		// A link to itself, and one to a directory that contains it, beside the good file.
		circle := shared.path("cdi", "circle.json")
		must(t, errors.Join(os.Symlink(circle, circle), os.Symlink(shared.path("cdi"), shared.path("cdi", "all.json"))))
		defer func() { must(t, errors.Join(os.Remove(circle), os.Remove(shared.path("cdi", "all.json")))) }()
		good(t, driver, request, "hostile-cycle")
	})
	t.Run("huge", func(t *testing.T) {
		huge := shared.path("cdi", "huge.json")
		must(t, os.WriteFile(huge, []byte(`{"cdiVersion": "0.6.0", "kind": "a.example.com/b", "devices": [`+strings.Repeat(" ", 20<<20)), 0o644))
		defer func() { must(t, os.Remove(huge)) }()
		good(t, driver, request, "hostile-huge")
	})
	t.Run("after all", func(t *testing.T) { good(t, driver, request, "hostile-none") })
	ready(t, corev1.ConditionTrue)
}

// good runs a pod whose device has a variable, a mount and a hook that is in the namespaces of the container.
func good(t *testing.T, driver *told, request resourcev1.DeviceClaim, name string) {
	mark := shared.path(name + ".mark")
	driver.mutex.Lock()
	driver.file = cdi("0.6.0", map[string]any{
		"env":    []string{"TOLD=yes"},
		"mounts": []any{map[string]any{"hostPath": shared.path("cdi"), "containerPath": "/of-device", "options": []string{"ro", "rbind"}}},
		"hooks":  []any{map[string]any{"hookName": "createContainer", "path": "/usr/bin/touch", "args": []string{"touch", mark}}},
	})
	driver.mutex.Unlock()
	create(t, withDevices(t, name, request, "env"))
	await(t, name, "running", isRunning)
	if text := logged(t, name, "end of environment"); !strings.Contains(text, "TOLD=yes") {
		t.Errorf("no variable:\n%s", text)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the hook has not run: %v", err)
	}
}

// wireName is an interface of this machine that exists until the test ends; empty where none can be made.
func wireName(t *testing.T) string {
	t.Helper()
	wires++
	name := fmt.Sprintf("acd%d-%d", os.Getpid(), wires)
	if err := ip("link", "add", name, "type", "dummy"); err != nil {
		if err := ip("link", "add", name, "type", "veth"); err != nil {
			return ""
		}
	}
	t.Cleanup(func() { _ = ip("link", "del", name) })
	return name
}
