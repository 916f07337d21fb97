package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// bootID is where the kernel tells which run of the machine this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// processes are the shims of this containerd, and the processes of its containers.
func (w *world) processes() (pids []int, err error) {
	pids = w.shims()
	tasks, err := w.ctr("tasks", "ls")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(tasks) {
		if fields := strings.Fields(line); len(fields) > 1 {
			if pid, err := strconv.Atoi(fields[1]); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// remains are what the kernel keeps for the processes of containers: cgroups and named network namespaces.
func remains(pids []int) (groups, networks []string) {
	named, _ := filepath.Glob("/var/run/netns/*")
	own, _ := os.ReadFile("/proc/self/cgroup")
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for line := range strings.Lines(string(text)) {
			// NUMBER:CONTROLLERS:PATH, where the second version of cgroups has no controllers.
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			// A shim is in that of the tests.
			if len(fields) == 3 && fields[2] != "/" && !strings.Contains(string(own), line) {
				groups = append(groups, filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(fields[1], "name="), fields[2]))
			}
		}
		network, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			continue
		}
		for _, name := range named {
			if of, err := os.Stat(name); err == nil && os.SameFile(of, network) {
				networks = append(networks, name)
			}
		}
	}
	// The deepest first.
	slices.Sort(groups)
	slices.Reverse(groups)
	slices.Sort(networks)
	return slices.Compact(groups), slices.Compact(networks)
}

// reboot ends everything as the end of the machine does: all processes at once, and then what is only in memory. Agent and driver
// see another boot ID from then on. `records`: whether the runtime still has its records of containers, as containerd has; a
// runtime with its records in /run, or CRI-O with `crio wipe`, has none.
func reboot(t *testing.T, records bool) {
	t.Helper()
	pids, err := shared.processes()
	must(t, err)
	groups, networks := remains(pids)
	if len(pids) == 0 || len(groups) == 0 {
		t.Fatalf("%d processes of containers in %q", len(pids), groups)
	}
	for _, command := range shared.started() {
		kill(command, syscall.SIGKILL)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	must(t, eventually("the processes have ended", func() error {
		for _, pid := range pids {
			// What nothing reaps has no mounts and no namespaces any longer either.
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(text), ") Z ") {
				return fmt.Errorf("%d is there", pid)
			}
		}
		return nil
	}))
	must(t, unmountBelow(shared.path()))
	for _, name := range networks {
		must(t, errors.Join(syscall.Unmount(name, syscall.MNT_DETACH), os.Remove(name)))
	}
	for _, group := range groups {
		must(t, eventually(group+" is removed", func() error {
			if err := syscall.Rmdir(group); err != nil && !errors.Is(err, syscall.ENOENT) {
				return err
			}
			return nil
		}))
	}
	must(t, os.RemoveAll(shared.path("state")))
	if !records {
		file := shared.path("root", "io.containerd.metadata.v1.bolt", "meta.db")
		must(t, os.Remove(file))
		for _, kind := range []string{"cri", "runtime.v2"} {
			found, err := filepath.Glob(shared.path("root", "io.containerd.*"+kind+"*"))
			must(t, err)
			for _, directory := range found {
				must(t, os.RemoveAll(directory))
			}
		}
	}
	files, err := os.ReadDir(shared.path("cdi"))
	must(t, err)
	if len(files) == 0 {
		t.Error("there was no CDI file before")
	}
	for _, file := range files {
		must(t, os.Remove(shared.path("cdi", file.Name())))
	}
	shared.boot = shared.path("boot-" + string(uuid.NewUUID()))
	must(t, os.WriteFile(shared.boot, []byte(strings.TrimPrefix(filepath.Base(shared.boot), "boot-")+"\n"), 0o644))
	must(t, shared.startContainerd())
	if !records {
		must(t, shared.importImages())
	}
	must(t, shared.startAgent())
	shared.driver, err = shared.startDriver("driver", "n1", shared.path("n"), shared.path("cdi"))
	must(t, err)
}

// unmountBelow removes every mount below a directory, the last ones first.
func unmountBelow(directory string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], directory+"/") {
			points = append(points, fields[4])
		}
	}
	slices.Reverse(points)
	for _, point := range points {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("%s: %w", point, err)
		}
	}
	return nil
}

// TestReboot reboots the node below pods of every restart policy, once with and once without a network of their own.
func TestReboot(t *testing.T) {
	t.Cleanup(func() {
		// From now on it is the boot of the machine again.
		shared.boot = ""
		kill(shared.agent, syscall.SIGKILL)
		kill(shared.driver, syscall.SIGKILL)
		must(t, shared.startAgent())
		var err error
		shared.driver, err = shared.startDriver("driver", "n1", shared.path("n"), shared.path("cdi"))
		must(t, err)
		must(t, shared.published(1))
	})
	t.Run("the runtime has its records", func(t *testing.T) { rebooted(t, true) })
	t.Run("the runtime has none", func(t *testing.T) { rebooted(t, false) })
	t.Run("pods have networks", func(t *testing.T) {
		podNetwork(t)
		rebooted(t, true)
	})
}

func rebooted(t *testing.T, records bool) {
	always, onFailure, once := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	device := withDevices(t, "boots", gpu(), "env")
	device.Spec.RestartPolicy = always
	device.Spec.InitContainers = []corev1.Container{{Name: "before", Image: app, Args: []string{"say", "begun", "", "0"}}}
	retried := pod("retried", "pause")
	retried.Spec.RestartPolicy = onFailure
	ends := pod("ends", "pause")
	ends.Spec.RestartPolicy = once
	over := pod("was-over", "say", "done", "", "0")
	gone := pod("deleted", "pause")
	for _, wanted := range []*corev1.Pod{device, retried, ends, over, gone} {
		create(t, wanted)
	}
	await(t, "was-over", "over", isOver)
	before := map[string]*corev1.Pod{}
	for _, name := range []string{"boots", "retried", "ends", "deleted"} {
		before[name] = await(t, name, "running", isRunning)
	}
	given := allocatedDevices(t, "boots")
	node := ready(t, corev1.ConditionTrue)

	// A pod that is deleted while the machine is off.
	kill(shared.agent, syscall.SIGKILL)
	must(t, shared.client.CoreV1().Pods("default").Delete(within(t), "deleted", metav1.DeleteOptions{}))
	reboot(t, records)

	for _, name := range []string{"boots", "retried"} {
		after := await(t, name, "running again", func(pod *corev1.Pod) bool {
			return isRunning(pod) && pod.Status.ContainerStatuses[0].State.Running != nil && pod.Status.ContainerStatuses[0].RestartCount > 0
		})
		status, old := after.Status.ContainerStatuses[0], before[name].Status.ContainerStatuses[0]
		if status.RestartCount != 1 || status.ContainerID == old.ContainerID {
			t.Errorf("%s has not started once more: %+v, before %+v", name, status, old)
		}
		if end := status.LastTerminationState.Terminated; end == nil || end.ExitCode == 0 {
			t.Errorf("%s: the run before has not failed: %+v", name, status.LastTerminationState)
		}
		// Nothing is left of what init containers have set up.
		for _, init := range after.Status.InitContainerStatuses {
			if end := init.State.Terminated; init.RestartCount != 1 || end == nil || end.ExitCode != 0 {
				t.Errorf("%s: an init container has not run again: %+v", name, init)
			}
		}
		if !after.Status.StartTime.Equal(before[name].Status.StartTime) {
			t.Errorf("%s: started at %s, before %s", name, after.Status.StartTime, before[name].Status.StartTime)
		}
	}
	if ended := await(t, "ends", "over", isOver); ended.Status.Phase != corev1.PodFailed || ended.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("a pod that runs once: %+v", ended.Status)
	}
	if over := await(t, "was-over", "as it was", isOver); over.Status.Phase != corev1.PodSucceeded {
		t.Errorf("a pod that was over: %+v", over.Status)
	}
	await(t, "deleted", "gone", nil)

	// Its device is the same, from a CDI file that was written again.
	text := logged(t, "boots", "end of environment")
	if again := allocatedDevices(t, "boots"); again != given || !strings.Contains(text, "GPU_DEVICE_") {
		t.Errorf("devices %q, before %q:\n%s", again, given, text)
	}
	if files, err := os.ReadDir(shared.path("cdi")); err != nil || len(files) == 0 {
		t.Errorf("CDI files: %v %v", files, err)
	}
	out, _, err := execute(t, "websocket", "boots", nil, "/app", "say", "here", "", "0")
	if err != nil || out != "here\n" {
		t.Errorf("exec: %q %v", out, err)
	}
	must(t, shared.published(1))

	// The node tells that it is another boot.
	want := strings.TrimPrefix(filepath.Base(shared.boot), "boot-")
	if after := ready(t, corev1.ConditionTrue); after.Status.NodeInfo.BootID != want || after.UID != node.UID {
		t.Errorf("boot %q instead of %q", after.Status.NodeInfo.BootID, want)
	}
	must(t, eventually("the event about the reboot", func() error {
		events, err := shared.client.CoreV1().Events("default").List(within(t), metav1.ListOptions{FieldSelector: "reason=Rebooted"})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "Node" && event.Message == fmt.Sprintf("Node n1 has been rebooted, boot id: %s", want) {
				return nil
			}
		}
		return fmt.Errorf("%d others", len(events.Items))
	}))
	// Of every pod that runs there is one sandbox and one container; of the others there is nothing.
	must(t, eventually("only what runs is left", func() error {
		left, err := shared.ctr("tasks", "ls", "-q")
		if err != nil {
			return err
		}
		all, err := shared.ctr("containers", "ls", "-q")
		if err != nil {
			return err
		}
		// The init container of the first pod is kept until the pod ends, and those of pods that are over until they are deleted.
		if tasks, containers := len(strings.Fields(left)), len(strings.Fields(all)); tasks != 4 || containers > 9 {
			return fmt.Errorf("%d tasks, %d containers", tasks, containers)
		}
		return nil
	}))
}

// allocatedDevices are the devices that the claim of a pod has.
func allocatedDevices(t *testing.T, name string) string {
	t.Helper()
	found, err := shared.client.CoreV1().Pods("default").Get(within(t), name, metav1.GetOptions{})
	must(t, err)
	claim, err := shared.client.ResourceV1().ResourceClaims("default").
		Get(context.Background(), *found.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	must(t, err)
	var devices []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		devices = append(devices, result.Pool+"/"+result.Device)
	}
	return strings.Join(devices, " ")
}
