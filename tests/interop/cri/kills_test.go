package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shims are the processes of this containerd that keep containers.
func (w *world) shims() (pids []int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		// Of a process that has ended meanwhile there is no line.
		line, _ := os.ReadFile(file)
		program, arguments, _ := strings.Cut(string(line), "\x00")
		if filepath.Base(program) != "containerd-shim-runc-v2" || !strings.Contains(arguments, w.dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// programs are the processes of the tests' image in containers of this containerd, by the ID of their container.
func (w *world) programs() map[int]string {
	found := map[int]string{}
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range all {
		// Of a process that has ended meanwhile there is nothing.
		program, _ := os.Readlink(link)
		directory := filepath.Dir(link)
		text, _ := os.ReadFile(directory + "/cgroup")
		_, group, in := strings.Cut(string(text), "/k8s.io/")
		mounts, _ := os.ReadFile(directory + "/mountinfo")
		if program != "/app" || !in || !strings.Contains(string(mounts), w.dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(directory)); err == nil {
			id, _, _ := strings.Cut(group, "\n")
			found[pid] = id
		}
	}
	return found
}

// victims are what is killed, each with how it is started again.
var victims = []struct {
	name string
	kill func(t *testing.T)
}{
	{"agent", func(t *testing.T) {
		kill(shared.agent, syscall.SIGKILL)
		must(t, shared.startAgent())
	}},
	{"driver", func(t *testing.T) {
		kill(shared.driver, syscall.SIGKILL)
		var err error
		shared.driver, err = shared.startDriver("driver", "n1", shared.path("n"), shared.path("cdi"))
		must(t, err)
	}},
	{"containerd", func(t *testing.T) {
		kill(shared.containerd, syscall.SIGKILL)
		must(t, shared.startContainerd())
	}},
	{"shim", func(t *testing.T) {
		for _, pid := range shared.shims() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}},
	{"all of them", func(t *testing.T) {
		kill(shared.agent, syscall.SIGKILL)
		kill(shared.driver, syscall.SIGKILL)
		kill(shared.containerd, syscall.SIGKILL)
		for _, pid := range shared.shims() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		must(t, errors.Join(shared.startContainerd(), shared.startAgent()))
		var err error
		shared.driver, err = shared.startDriver("driver", "n1", shared.path("n"), shared.path("cdi"))
		must(t, err)
	}},
}

// TestKillsAtEveryStep kills each part while a pod with a device begins, has a sandbox, runs, and ends. The pod runs in the end, with
// its device, and nothing of it is left when it is deleted.
func TestKillsAtEveryStep(t *testing.T) {
	for _, victim := range victims {
		for _, step := range []string{"begins", "has a sandbox", "runs", "ends"} {
			t.Run(victim.name+" while it "+step, func(t *testing.T) {
				name := "k-" + strings.ReplaceAll(victim.name, " ", "-") + "-" + strings.ReplaceAll(step, " ", "-")
				wanted := withDevices(t, name, gpu(), "env")
				wanted.Spec.RestartPolicy = corev1.RestartPolicyAlways
				create(t, wanted)
				switch step {
				case "begins":
					await(t, name, "scheduled", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
				case "has a sandbox":
					must(t, eventually("a shim", func() error {
						if len(shared.shims()) == 0 {
							return errors.New("there is none")
						}
						return nil
					}))
				default:
					await(t, name, "running", isRunning)
				}
				if step == "ends" {
					must(t, shared.client.CoreV1().Pods("default").Delete(within(t), name, metav1.DeleteOptions{}))
					victim.kill(t)
					await(t, name, "gone", nil)
					return
				}
				victim.kill(t)
				await(t, name, "running after that", func(pod *corev1.Pod) bool {
					return isRunning(pod) && pod.Status.ContainerStatuses[0].State.Running != nil
				})
				// A container that is going to be restarted may still be shown as running: a program in it proves that it is.
				must(t, eventually("the container answers", func() error {
					out, _, err := execute(t, "websocket", name, nil, "/app", "say", "here", "", "0")
					if err == nil && out != "here\n" {
						err = fmt.Errorf("out %q", out)
					}
					return err
				}))
				if text := logged(t, name, "end of environment"); !strings.Contains(text, "GPU_DEVICE_") {
					t.Errorf("no device:\n%s", text)
				}
			})
		}
	}
	ready(t, corev1.ConditionTrue)
	must(t, eventually("no shim is left", func() error {
		if left := shared.shims(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	}))
	// Programs outlive a shim that is killed. containerd ends them when it notices.
	must(t, eventually("no program is left", func() error {
		if left := shared.programs(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	}))
}

// TestFrozenContainerd lets containerd answer nothing for a while: it takes the time of one call that is given up.
func TestFrozenContainerd(t *testing.T) {
	wanted := pod("stands", "count")
	create(t, wanted)
	before := await(t, "stands", "running", isRunning).Status.ContainerStatuses[0]
	must(t, shared.containerd.Process.Signal(syscall.SIGSTOP))
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			must(t, shared.containerd.Process.Signal(syscall.SIGCONT))
		}
	}
	defer thaw()
	// What is asked for meanwhile is done later.
	create(t, pod("meanwhile", "pause"))
	create(t, pod("removed", "pause"))
	must(t, shared.client.CoreV1().Pods("default").Delete(within(t), "removed", metav1.DeleteOptions{}))
	node := ready(t, corev1.ConditionFalse)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && !strings.Contains(condition.Message, "container runtime is down") {
			t.Errorf("%+v", condition)
		}
	}
	now, err := shared.client.CoreV1().Pods("default").Get(within(t), "stands", metav1.GetOptions{})
	must(t, err)
	if status := now.Status.ContainerStatuses[0]; status.State.Running == nil || status.ContainerID != before.ContainerID {
		t.Errorf("concluded from silence: %+v", status)
	}
	thaw()
	ready(t, corev1.ConditionTrue)
	await(t, "meanwhile", "running", isRunning)
	await(t, "removed", "gone", nil)
	now, err = shared.client.CoreV1().Pods("default").Get(within(t), "stands", metav1.GetOptions{})
	must(t, err)
	if status := now.Status.ContainerStatuses[0]; status.State.Running == nil || status.ContainerID != before.ContainerID || status.RestartCount != 0 {
		t.Errorf("not the same: %+v, before %+v", status, before)
	}
}
