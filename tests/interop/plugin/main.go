// A DRA driver as people write and ship them: everything but the devices comes from the official helper, it finds the API
// server by its service account, and it uses the paths of a kubelet. image_driver_test.go packs it into an image;
// conformance_test.go tries it with `allot conformance driver`, which gives it other paths by its environment.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const name = "image.example.com"

var devices = []string{"one", "two", "three"}

var cdi = variable("CDI_DIR", "/var/run/cdi")

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

type driver struct{ node string }

func spec(claim types.UID) string { return filepath.Join(cdi, fmt.Sprintf("%s-%s.json", name, claim)) }

func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		var entries []any
		result.Err = refusal(claim.Status.Allocation.Devices.Config)
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver != name {
				continue
			}
			if !slices.Contains(devices, allocated.Device) {
				result.Err = fmt.Errorf("there is no device %q", allocated.Device)
			}
			id := string(claim.UID) + "-" + allocated.Device
			entries = append(entries, map[string]any{
				"name":           id,
				"containerEdits": map[string]any{"env": []string{"IMAGE_DEVICE=" + d.node + "/" + allocated.Device}},
			})
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{allocated.Request}, PoolName: allocated.Pool, DeviceName: allocated.Device,
				CDIDeviceIDs: []string{name + "/device=" + id},
			})
		}
		if result.Err == nil {
			result.Err = write(spec(claim.UID), map[string]any{"cdiVersion": "0.6.0", "kind": name + "/device", "devices": entries})
		}
		if result.Err != nil {
			result.Devices = nil
		}
		results[claim.UID] = result
	}
	return results, nil
}

// refusal: the driver takes no parameters.
func refusal(configs []resourcev1.DeviceAllocationConfiguration) error {
	for _, config := range configs {
		if config.Opaque != nil && config.Opaque.Driver == name {
			return fmt.Errorf("%s takes no parameters", name)
		}
	}
	return nil
}

// write renames a whole file into place: a runtime may read the directory at any time.
func write(path string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(spec(claim.UID))
		if os.IsNotExist(err) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

// WatchHealthStatus says that all devices are well, and says it again before the helper calls that stale.
func (d driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	again := time.NewTicker(10 * time.Second)
	defer again.Stop()
	for {
		var report kubeletplugin.DeviceHealthReport
		for _, device := range devices {
			report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
				PoolName: d.node, DeviceName: device, Health: kubeletplugin.HealthStatusHealthy, LastUpdated: time.Now(),
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

func (d driver) HandleError(_ context.Context, err error, msg string) { log.Printf("%s: %v", msg, err) }

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Without KUBECONFIG this is the service account.
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	node := os.Getenv("NODE_NAME")
	data := filepath.Join(variable("PLUGINS_DIR", kubeletplugin.KubeletPluginsDir), name)
	registry := variable("REGISTRY_DIR", kubeletplugin.KubeletRegistryDir)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{node},
		kubeletplugin.DriverName(name), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	var slice resourceslice.Slice
	for _, device := range devices {
		slice.Devices = append(slice.Devices, resourcev1.Device{Name: device})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{slice}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
