package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// driver is a DRA driver as people write them in Go: everything but the devices comes from the official helper.
type driver struct {
	name       string
	cdi        string
	mutex      sync.Mutex
	prepared   map[types.UID]int
	unprepared chan types.UID
	problems   []string
	health     chan kubeletplugin.DeviceHealthReport
	refuse     error
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		if d.refuse != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: d.refuse}
			continue
		}
		result := kubeletplugin.PrepareResult{}
		var entries []any
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver != d.name {
				continue
			}
			name := string(claim.UID) + "-" + allocated.Device
			entries = append(entries, map[string]any{
				"name":           name,
				"containerEdits": map[string]any{"env": []string{"GO_DRIVER_DEVICE=" + allocated.Device}},
			})
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{allocated.Request}, PoolName: allocated.Pool, DeviceName: allocated.Device,
				CDIDeviceIDs: []string{d.name + "/dev=" + name},
			})
		}
		spec, _ := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": d.name + "/dev", "devices": entries})
		if err := os.WriteFile(d.spec(claim.UID), spec, 0o644); err != nil {
			return nil, err
		}
		d.prepared[claim.UID]++
		results[claim.UID] = result
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		_ = os.Remove(d.spec(claim.UID))
		results[claim.UID] = nil
		d.unprepared <- claim.UID
	}
	return results, nil
}

func (d *driver) HandleError(_ context.Context, err error, msg string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.problems = append(d.problems, fmt.Sprintf("%s: %v", msg, err))
}

func (d *driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case report := <-d.health:
			select {
			case reports <- report:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (d *driver) spec(claim types.UID) string {
	return filepath.Join(d.cdi, fmt.Sprintf("%s-%s.json", strings.ReplaceAll(d.name, "/", "_"), claim))
}

// startDriver runs a driver with two devices on the only node of a cluster, with a class for it.
func startDriver(t *testing.T, c *cluster, name string, options ...kubeletplugin.Option) (*driver, *kubeletplugin.Helper) {
	t.Helper()
	d := &driver{
		name: name, cdi: filepath.Join(c.node(), "cdi"), prepared: map[types.UID]int{},
		unprepared: make(chan types.UID, 100), health: make(chan kubeletplugin.DeviceHealthReport, 10),
	}
	data := filepath.Join(c.node(), "plugins", name)
	must(t, os.MkdirAll(data, 0o750))
	must(t, os.MkdirAll(d.cdi, 0o755))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	options = append([]kubeletplugin.Option{
		kubeletplugin.DriverName(name), kubeletplugin.NodeName("node-0"), kubeletplugin.KubeClient(c.client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(c.node(), "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
	}, options...)
	helper, err := kubeletplugin.Start(ctx, d, options...)
	must(t, err)
	t.Cleanup(helper.Stop)
	must(t, helper.PublishResources(ctx, devices("a", "b")))
	_, err = c.client.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", name)},
		}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		must(t, err)
		t.Cleanup(func() {
			_ = c.client.ResourceV1().DeviceClasses().Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	}
	return d, helper
}

func devices(names ...string) resourceslice.DriverResources {
	var slice resourceslice.Slice
	for _, name := range names {
		slice.Devices = append(slice.Devices, resourcev1.Device{
			Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"letter": {StringValue: ptr.To(name)}},
		})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{"node-0": {Slices: []resourceslice.Slice{slice}}}}
}

// user is a pod with a claim of its own for one device.
func user(t *testing.T, c *cluster, namespace, name, class, selector string, script ...string) *corev1.Pod {
	t.Helper()
	request := resourcev1.ExactDeviceRequest{DeviceClassName: class}
	if selector != "" {
		request.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}
	}
	_, err := c.client.ResourceV1().ResourceClaimTemplates(namespace).Create(within(t), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &request}},
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
	pod := sleeper(name, script...)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "c"}}
	return pod
}

// The life of a claim with a driver that is built on k8s.io/dynamic-resource-allocation/kubeletplugin.
func TestGoDriver(t *testing.T) {
	d, helper := startDriver(t, shared, "go.example.com")
	ns := namespace(t, shared)
	ctx := within(t)
	pod := launch(t, shared, ns, user(t, shared, ns, "p", d.name, `device.attributes["go.example.com"].letter == "b"`,
		"echo device=$GO_DRIVER_DEVICE", "trap 'exit 0' TERM; sleep 3600 & wait"))
	// The node can use a plugin before it has told it so.
	awaitRegistration(t, helper)
	// The pod runs when its program begins; what it prints comes later.
	log, err := shared.client.CoreV1().Pods(ns).GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	must(t, err)
	defer log.Close()
	if lines := bufio.NewScanner(log); !lines.Scan() || lines.Text() != "device=b" {
		t.Fatalf("the container saw %q, %v", lines.Text(), lines.Err())
	}
	name := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := shared.client.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	// A driver reports the state of the device in the claim.
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{
		Driver: d.name, Pool: "node-0", Device: "b",
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "Tested", LastTransitionTime: metav1.Now(),
		}},
		NetworkData: &resourcev1.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.9.8.0/24"}},
	}}
	claim, err = shared.client.ResourceV1().ResourceClaims(ns).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	must(t, err)
	if claim.Status.Devices[0].NetworkData.InterfaceName != "net1" {
		t.Fatalf("device status: %+v", claim.Status.Devices)
	}
	must(t, shared.client.CoreV1().Pods(ns).Delete(ctx, "p", metav1.DeleteOptions{}))
	select {
	case uid := <-d.unprepared:
		if uid != claim.UID {
			t.Fatalf("unprepared %s, not %s", uid, claim.UID)
		}
	case <-ctx.Done():
		t.Fatal("the claim was not unprepared")
	}
	awaitEnd[*resourcev1.ResourceClaim](t, shared.client.ResourceV1().RESTClient(), "resourceclaims", ns, name)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.prepared[claim.UID] != 1 || len(d.problems) > 0 {
		t.Fatalf("prepared %v, problems %v", d.prepared, d.problems)
	}
}

// Drivers beside a cluster write their CDI files where container runtimes look: each of the directories counts.
func TestSeveralDirectoriesOfDevices(t *testing.T) {
	directories := []string{t.TempDir(), t.TempDir()}
	c := own(t, "--no-driver", "--cdi-dir", directories[0], "--cdi-dir", directories[1])
	ns := namespace(t, c)
	for number, directory := range directories {
		d, _ := startDriver(t, c, fmt.Sprintf("go%d.example.com", number))
		d.mutex.Lock()
		d.cdi = directory
		d.mutex.Unlock()
		name := fmt.Sprintf("p%d", number)
		launch(t, c, ns, user(t, c, ns, name, d.name, "", "echo device=$GO_DRIVER_DEVICE; sleep 3600"))
		log, err := c.client.CoreV1().Pods(ns).GetLogs(name, &corev1.PodLogOptions{Follow: true}).Stream(within(t))
		must(t, err)
		defer log.Close()
		if lines := bufio.NewScanner(log); !lines.Scan() || lines.Text() == "device=" {
			t.Fatalf("the container saw %q, %v", lines.Text(), lines.Err())
		}
	}
}

// A claim that the driver can not prepare keeps its pod waiting with the driver's words, until it can.
func TestGoDriverThatRefuses(t *testing.T) {
	d, _ := startDriver(t, shared, "refusing.example.com")
	ns := namespace(t, shared)
	d.set(errors.New("the device is on fire"))
	_, err := shared.client.CoreV1().Pods(ns).Create(within(t), user(t, shared, ns, "p", d.name, ""), metav1.CreateOptions{})
	must(t, err)
	awaitEvent(t, shared, ns, "p", "FailedPrepareDynamicResources", "the device is on fire")
	d.set(nil)
	awaitPod(t, shared, ns, "p", "running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
}

// A driver that comes back after an update of its own finds the claim that it prepared before, and the node uses the new
// process; with rolling updates both run for a while.
func TestGoDriverIsReplaced(t *testing.T) {
	const name = "rolling.example.com"
	first, old := startDriver(t, shared, name, kubeletplugin.RollingUpdate("11111111-0000-0000-0000-000000000001"))
	ns := namespace(t, shared)
	launch(t, shared, ns, user(t, shared, ns, "p", name, ""))
	second, new := startDriver(t, shared, name, kubeletplugin.RollingUpdate("11111111-0000-0000-0000-000000000002"))
	awaitRegistration(t, new)
	old.Stop()
	must(t, shared.client.CoreV1().Pods(ns).Delete(within(t), "p", metav1.DeleteOptions{}))
	select {
	case <-second.unprepared:
	case <-first.unprepared:
		t.Fatal("the old process was asked")
	case <-time.After(patience):
		t.Fatal("the claim was not unprepared")
	}
}

// What a driver says about its devices' health is in the status of the pods that use them.
func TestGoDriverReportsHealth(t *testing.T) {
	d, _ := startDriver(t, shared, "health.example.com")
	ns := namespace(t, shared)
	pod := launch(t, shared, ns, user(t, shared, ns, "p", d.name, `device.attributes["health.example.com"].letter == "a"`))
	for _, health := range []kubeletplugin.HealthStatus{kubeletplugin.HealthStatusUnhealthy, kubeletplugin.HealthStatusHealthy} {
		d.health <- kubeletplugin.DeviceHealthReport{Devices: []kubeletplugin.DeviceHealth{{
			PoolName: "node-0", DeviceName: "a", Health: health, LastUpdated: time.Now(),
		}}}
		awaitPod(t, shared, ns, pod.Name, string(health), func(pod *corev1.Pod) bool {
			for _, status := range pod.Status.ContainerStatuses {
				for _, allocated := range status.AllocatedResourcesStatus {
					for _, resource := range allocated.Resources {
						if string(resource.Health) == string(health) {
							return true
						}
					}
				}
			}
			return false
		})
	}
}

// awaitRegistration asks the helper until the node has told it that it is registered.
func awaitRegistration(t *testing.T, helper *kubeletplugin.Helper) {
	t.Helper()
	must(t, wait.PollUntilContextCancel(within(t), 20*time.Millisecond, true, func(context.Context) (bool, error) {
		status := helper.RegistrationStatus()
		return status != nil && status.PluginRegistered, nil
	}))
}

func (d *driver) set(refuse error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.refuse = refuse
}
