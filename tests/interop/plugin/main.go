// A DRA driver as people write and ship them: everything but the devices comes from the official helper, it finds the API
// server by its service account, and it uses the paths of a kubelet. image_driver_test.go packs it into an image.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	name = "image.example.com"
	cdi  = "/var/run/cdi"
)

type driver struct{ node string }

func spec(claim types.UID) string { return filepath.Join(cdi, fmt.Sprintf("%s-%s.json", name, claim)) }

func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		var devices []any
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver != name {
				continue
			}
			id := string(claim.UID) + "-" + allocated.Device
			devices = append(devices, map[string]any{
				"name":           id,
				"containerEdits": map[string]any{"env": []string{"IMAGE_DEVICE=" + d.node + "/" + allocated.Device}},
			})
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{allocated.Request}, PoolName: allocated.Pool, DeviceName: allocated.Device,
				CDIDeviceIDs: []string{name + "/device=" + id},
			})
		}
		text, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": name + "/device", "devices": devices})
		if err == nil {
			err = os.WriteFile(spec(claim.UID), text, 0o644)
		}
		result.Err = err
		results[claim.UID] = result
	}
	return results, nil
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

// WatchHealthStatus has nothing to report: the devices are always well.
func (d driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

func (d driver) HandleError(_ context.Context, err error, msg string) { log.Printf("%s: %v", msg, err) }

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	node := os.Getenv("NODE_NAME")
	data := filepath.Join(kubeletplugin.KubeletPluginsDir, name)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{node},
		kubeletplugin.DriverName(name), kubeletplugin.NodeName(node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(kubeletplugin.KubeletRegistryDir), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := []resourcev1.Device{{Name: "one"}, {Name: "two"}}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
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
