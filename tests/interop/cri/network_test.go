package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// plugins is where Debian installs the CNI plugins.
const plugins = "/usr/lib/cni"

const netDriver = "net.allot.dev"

func ip(arguments ...string) error {
	out, err := exec.Command("ip", arguments...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return err
}

// wires counts those that were made: the kernel may still be removing one.
var wires int

// wire makes two interfaces of this machine that are each other's peer. They are removed with the test.
func wire(t *testing.T) string {
	t.Helper()
	wires++
	name, peer := fmt.Sprintf("acw%d-%d", os.Getpid(), wires), fmt.Sprintf("acp%d-%d", os.Getpid(), wires)
	if err := ip("link", "add", name, "type", "veth", "peer", "name", peer); err != nil {
		t.Skipf("interfaces cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = ip("link", "del", name) })
	must(t, ip("link", "set", name, "up"))
	must(t, ip("link", "set", peer, "up"))
	if err := ip("link", "add", "acprobe", "link", name, "type", "macvlan"); err != nil {
		t.Skipf("macvlan is not permitted here: %v", err)
	}
	must(t, ip("link", "del", "acprobe"))
	return name
}

// podNetwork configures a CNI network, in which each pod has a network namespace of its own, until the test ends.
func podNetwork(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(plugins + "/ptp"); err != nil {
		t.Skipf("no CNI plugins: %v", err)
	}
	podNetworkOf(t, plugins, fmt.Sprintf(
		`{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.79.0.0/24", "dataDir": %q}}`, shared.path("addresses")))
}

// podNetworkOf is the network of one plugin in a directory.
func podNetworkOf(t *testing.T, directory, plugin string) {
	t.Helper()
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [%s]}`, plugin)
	file := shared.path("cni", "10-pods.conflist")
	restart := func() error {
		kill(shared.containerd, syscall.SIGTERM)
		return shared.startContainerd()
	}
	shared.pluginDirectory = directory
	must(t, shared.configure(true))
	must(t, os.WriteFile(file, []byte(text), 0o600))
	must(t, restart())
	t.Cleanup(func() {
		shared.pluginDirectory = ""
		must(t, errors.Join(os.Remove(file), shared.configure(true), restart()))
		networked(t, corev1.ConditionFalse)
	})
	networked(t, corev1.ConditionTrue)
}

// networked waits until the node reports whether the runtime has a network for pods.
func networked(t testing.TB, status corev1.ConditionStatus) {
	t.Helper()
	must(t, eventually("the network is ready: "+string(status), func() error {
		node, err := shared.client.CoreV1().Nodes().Get(within(t), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == "NetworkReady" && condition.Status == status {
				return nil
			}
		}
		return fmt.Errorf("%+v", node.Status.Conditions)
	}))
}

// netClass creates the class of the network driver.
func netClass(t *testing.T) {
	t.Helper()
	classes := shared.client.ResourceV1().DeviceClasses()
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: netDriver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", netDriver)}},
		}},
	}
	_, err := classes.Create(within(t), class, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), netDriver, metav1.DeleteOptions{}) })
}

// withInterface is a pod with an interface that the network driver adds, placed by the scheduler.
func withInterface(t *testing.T, name, device string, parameters map[string]any, arguments ...string) *corev1.Pod {
	t.Helper()
	parameters["apiVersion"], parameters["kind"] = netDriver+"/v1alpha1", "InterfaceConfig"
	raw, err := json.Marshal(parameters)
	must(t, err)
	return withDevices(t, name, resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "nic", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: netDriver,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
				Expression: fmt.Sprintf("device.attributes['dra.net'].ifName == %q", device),
			}}},
		}}},
		Config: []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: netDriver, Parameters: runtime.RawExtension{Raw: raw}},
		}}},
	}, arguments...)
}

// interfaces are the names in the text of /proc/net/dev.
func interfaces(text string) (names []string) {
	for line := range strings.Lines(text) {
		if name, _, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// attached waits until the claim of a pod reports its interface.
func attached(t *testing.T, name string) resourcev1.NetworkDeviceData {
	t.Helper()
	var data resourcev1.NetworkDeviceData
	must(t, eventually(name+" is attached", func() error {
		pod, err := shared.client.CoreV1().Pods("default").Get(within(t), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pod.Status.ResourceClaimStatuses) == 0 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return errors.New("no claim")
		}
		claim := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		found, err := shared.client.ResourceV1().ResourceClaims("default").Get(within(t), claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, device := range found.Status.Devices {
			for _, condition := range device.Conditions {
				if condition.Reason == "Attached" && device.NetworkData != nil {
					data = *device.NetworkData
					return nil
				}
			}
		}
		return fmt.Errorf("%+v", found.Status.Devices)
	}))
	return data
}

// TestNetworkDriver gives pods interfaces beside the one of their CNI network, while driver and agent are killed.
func TestNetworkDriver(t *testing.T) {
	device := wire(t)
	podNetwork(t)
	netClass(t)
	start := func() *exec.Cmd {
		driver, err := shared.spawn("net", shared.bin, "driver", "net", "node", "--kubeconfig", shared.path("up", "kubeconfig"),
			"--node-name", "n1", "--kubelet-dir", shared.path("n"), "--cdi-dir", shared.path("cdi"), "--interface", fmt.Sprintf("acw%d-*", os.Getpid()))
		must(t, err)
		return driver
	}
	driver := start()
	t.Cleanup(func() { kill(driver, syscall.SIGTERM) })

	t.Run("macvlan", func(t *testing.T) {
		parameters := map[string]any{"mode": "macvlan", "interfaceName": "data0", "addresses": []string{"10.78.0.2/24"}}
		create(t, withInterface(t, "macvlan", device, parameters, "show-and-wait", "/proc/net/dev"))
		running := await(t, "macvlan", "running", isRunning)
		if address := running.Status.PodIP; !strings.HasPrefix(address, "10.79.0.") {
			t.Errorf("address of the pod: %q", address)
		}
		if names := interfaces(logged(t, "macvlan", "end of files")); !slices.Equal(names, []string{"data0", "eth0", "lo"}) {
			t.Errorf("interfaces %q", names)
		}
		data := attached(t, "macvlan")
		if data.InterfaceName != "data0" || !slices.Equal(data.IPs, []string{"10.78.0.2/24"}) || data.HardwareAddress == "" {
			t.Errorf("network data %+v", data)
		}
		// What was attached stays, and is released by those that come after.
		kill(driver, syscall.SIGKILL)
		kill(shared.agent, syscall.SIGKILL)
		must(t, shared.startAgent())
		driver = start()
		// A later pod shows that the new agent has looked at everything, and where it listens is known.
		create(t, pod("beside", "pause"))
		await(t, "beside", "running", isRunning)
		out, _, err := execute(t, "spdy", "macvlan", nil, "/app", "show", "/proc/net/dev")
		must(t, err)
		if names := interfaces(out); !slices.Equal(names, []string{"data0", "eth0", "lo"}) {
			t.Errorf("interfaces after the restarts %q", names)
		}
	})
	// The device and the address of the pod before are free again.
	t.Run("macvlan with the same address", func(t *testing.T) {
		parameters := map[string]any{"mode": "macvlan", "addresses": []string{"10.78.0.2/24"}}
		create(t, withInterface(t, "again", device, parameters, "show-and-wait", "/proc/net/dev"))
		await(t, "again", "running", isRunning)
		if names := interfaces(logged(t, "again", "end of files")); !slices.Equal(names, []string{"eth0", "lo", "net1"}) {
			t.Errorf("interfaces %q", names)
		}
		if data := attached(t, "again"); !slices.Equal(data.IPs, []string{"10.78.0.2/24"}) {
			t.Errorf("network data %+v", data)
		}
	})
	t.Run("host-device", func(t *testing.T) {
		parameters := map[string]any{"mode": "host-device", "addresses": []string{"10.78.0.3/24"}}
		create(t, withInterface(t, "moved", device, parameters, "show-and-wait", "/proc/net/dev"))
		await(t, "moved", "running", isRunning)
		if names := interfaces(logged(t, "moved", "end of files")); !slices.Equal(names, []string{device, "eth0", "lo"}) {
			t.Errorf("interfaces %q", names)
		}
		if err := ip("link", "show", device); err == nil {
			t.Errorf("%s is on the node as well", device)
		}
	})
	// An interface that is refused is in the reason that the pod shows.
	t.Run("refused", func(t *testing.T) {
		must(t, eventually("the pod of the test before is gone", func() error {
			_, err := shared.client.CoreV1().Pods("default").Get(within(t), "moved", metav1.GetOptions{})
			if err == nil {
				return errors.New("it is there")
			}
			return nil
		}))
		device = wire(t)
		create(t, withInterface(t, "refused-nic", device, map[string]any{"mode": "macvlan", "mtu": 9000}, "pause"))
		must(t, eventually("the event", func() error {
			events, err := shared.client.CoreV1().Events("default").List(within(t), metav1.ListOptions{
				FieldSelector: "involvedObject.name=refused-nic",
			})
			if err != nil {
				return err
			}
			var seen []string
			for _, event := range events.Items {
				if strings.Contains(strings.ToLower(event.Message), "mtu") {
					return nil
				}
				seen = append(seen, event.Reason+": "+event.Message)
			}
			return fmt.Errorf("only %q", seen)
		}))
	})
}

// TestNetworkPluginsAtFault has the runtime call plugins that print garbage, fail, and never end.
func TestNetworkPluginsAtFault(t *testing.T) {
	directory := shared.path("plugins-at-fault")
	must(t, os.MkdirAll(directory, 0o755))
	// What it does is in a file, which changes. It answers what it can do, and undoes everything.
	script := fmt.Sprintf(`#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD) . %s ;;
esac
`, shared.path("fault"))
	must(t, os.WriteFile(directory+"/fault", []byte(script), 0o755))
	// Every sandbox has a loopback interface.
	must(t, os.Symlink(plugins+"/loopback", directory+"/loopback"))
	podNetworkOf(t, directory, `{"type": "fault"}`)
	// The number is that of this run.
	endless := fmt.Sprintf("sleep 1000.%d", os.Getpid())
	for name, fault := range map[string]string{
		"garbage":  `printf '\001\033[2J{]}'`,
		"nothing":  `:`,
		"refusal":  `echo '{"cniVersion": "1.0.0", "code": 7, "msg": "no address is left"}'; exit 1`,
		"loopback": `echo '{"cniVersion": "1.0.0", "ips": [{"address": "127.0.0.1/8"}, {"address": "not one"}]}'`,
		"hangs":    "exec " + endless,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(shared.path("fault"), []byte(fault), 0o644))
			create(t, pod("net-"+name, "pause"))
			if name == "hangs" {
				must(t, eventually("the plugin is called", func() error {
					return exec.Command("pgrep", "-f", "^"+endless+"$").Run()
				}))
				return // It is deleted, and does not wait for the plugin.
			}
			eventOf(t, "net-"+name, "FailedCreatePodSandBox", func(string) bool { return true })
		})
	}
	ready(t, corev1.ConditionTrue)
}
