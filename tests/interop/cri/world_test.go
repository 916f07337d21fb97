// Package cri checks the node agent on a real containerd: see ../containerd, which installs what is needed and runs it.
package cri

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

// patience is how long anything may take before a test fails.
const patience = 2 * time.Minute

// app is the image of all pods.
const app = "example.com/app:1"

// images are those that containerd has, by their file.
var images = map[string]string{"app.tar": app, "pause.tar": "example.com/pause:1"}

// world is a containerd, a control plane, a node agent and a driver, each a process of its own.
type world struct {
	dir        string
	tools      string
	bin        string
	containerd *exec.Cmd
	up         *exec.Cmd
	agent      *exec.Cmd
	driver     *exec.Cmd
	// A file with the boot ID that agent and driver see; empty for that of the machine.
	boot string
	// Where containerd finds CNI plugins; empty for none, so that pods share the network of the host.
	pluginDirectory string
	config          *rest.Config
	client          kubernetes.Interface
}

var shared *world

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "ac")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := &world{dir: dir, tools: os.Getenv("CONTAINERD_TOOLS"), bin: os.Getenv("ALLOT_BIN")}
	defer w.end()
	if err := w.begin(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		w.logs()
		return 1
	}
	shared = w
	code := m.Run()
	if code != 0 {
		w.logs()
	}
	return code
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

// spawn starts a process whose output goes to a log, and that does not outlive the tests.
func (w *world) spawn(name, program string, arguments ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(w.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "PATH="+w.tools+":"+os.Getenv("PATH"))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command, command.Start()
}

// spawnInBoot starts a process as spawn does, which sees the boot ID of the world.
func (w *world) spawnInBoot(name, program string, arguments ...string) (*exec.Cmd, error) {
	if w.boot == "" {
		return w.spawn(name, program, arguments...)
	}
	// In a mount namespace of its own: $0 is the file, all others are the command.
	script := `mount --bind "$0" ` + bootID + ` && exec "$@"`
	all := append([]string{"--mount", "--propagation", "slave", "sh", "-c", script, w.boot, program}, arguments...)
	return w.spawn(name, "unshare", all...)
}

// started are the processes of the node.
func (w *world) started() []*exec.Cmd {
	return []*exec.Cmd{w.agent, w.driver, w.containerd}
}

func kill(command *exec.Cmd, signal syscall.Signal) {
	if command != nil && command.ProcessState == nil {
		_ = command.Process.Signal(signal)
		_ = command.Wait()
	}
}

// configure writes containerd's configuration.
func (w *world) configure(cdi bool) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = %[3]q
[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = %[4]t
cdi_spec_dirs = [%[5]q]
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%[8]q]
conf_dir = %[6]q
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = %[7]q
SystemdCgroup = false
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "example.com/pause:1"
`, w.path("root"), w.path("state"), w.path("c.sock"), cdi, w.path("cdi"), w.path("cni"), runc, cmp.Or(w.pluginDirectory, w.path("cni")))
	return os.WriteFile(w.path("config.toml"), []byte(text), 0o600)
}

func (w *world) startContainerd() (err error) {
	w.containerd, err = w.spawn("containerd", filepath.Join(w.tools, "containerd"), "--config", w.path("config.toml"))
	if err != nil {
		return err
	}
	return eventually("containerd answers", func() error {
		_, err := w.ctr("version")
		return err
	})
}

func (w *world) ctr(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all := append([]string{"--address", w.path("c.sock"), "--namespace", "k8s.io"}, arguments...)
	// Warnings go to the standard error.
	var errors strings.Builder
	command := exec.CommandContext(ctx, filepath.Join(w.tools, "ctr"), all...)
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(arguments, " "), err, errors.String())
	}
	return string(out), nil
}

// importImages gives containerd the images of the tests.
func (w *world) importImages() error {
	for file := range images {
		if _, err := w.ctr("images", "import", "--local", "--snapshotter", "native", w.path(file)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) startAgent() (err error) {
	w.agent, err = w.spawnInBoot("agent", w.bin, "node", "--kubeconfig", w.path("up", "kubeconfig"), "--node-name", "n1",
		"--root-dir", w.path("n"), "--runtime", "cri", "--cri-endpoint", "unix://"+w.path("c.sock"),
		// Larger than what programs print that end: a log that is rotated just before the end of its container is empty.
		"--cdi-dir", w.path("cdi"), "--container-log-max-size", "32Ki", "--container-log-max-files", "3",
		// The disk of the machine that runs the tests may be nearly full.
		"--eviction-hard", "")
	return err
}

func (w *world) begin() (err error) {
	if w.tools == "" || w.bin == "" {
		return fmt.Errorf("CONTAINERD_TOOLS and ALLOT_BIN say where containerd and allot are: tests/interop/containerd sets them")
	}
	for _, name := range []string{"cdi", "cni"} {
		if err := os.MkdirAll(w.path(name), 0o755); err != nil {
			return err
		}
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", w.path("app"), "./app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	program, err := os.ReadFile(w.path("app"))
	if err != nil {
		return err
	}
	if err := w.configure(true); err != nil {
		return err
	}
	if err := w.startContainerd(); err != nil {
		return err
	}
	for file, name := range images {
		if err := image(w.path(file), name, program); err != nil {
			return err
		}
	}
	if err := w.importImages(); err != nil {
		return err
	}
	w.up = exec.Command(w.bin, "up", "--nodes", "0", "--in-memory", "--data-dir", w.path("up"), "--listen", "127.0.0.1:0")
	w.up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	log, err := os.Create(w.path("up.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	w.up.Stderr = log
	out, err := w.up.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.up.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("allot up: %w: %s", err, line)
	}
	if w.config, err = clientcmd.BuildConfigFromFlags("", w.path("up", "kubeconfig")); err != nil {
		return err
	}
	w.config.QPS, w.config.Burst = 1000, 2000
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		return err
	}
	if err := w.startAgent(); err != nil {
		return err
	}
	if w.driver, err = w.startDriver("driver", "n1", w.path("n"), w.path("cdi")); err != nil {
		return err
	}
	return w.published(1)
}

// startDriver starts the driver of a node once that has registered: it refuses to start where no agent has made its directories yet.
func (w *world) startDriver(name, node, root, cdi string) (*exec.Cmd, error) {
	if err := eventually(node+" registers", func() error {
		_, err := w.client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	return w.spawnInBoot(name, w.bin, "driver", "gpu", "--kubeconfig", w.path("up", "kubeconfig"), "--node-name", node,
		"--kubelet-dir", root, "--cdi-dir", cdi)
}

// published waits until there are as many slices: one for each node with a driver.
func (w *world) published(number int) error {
	return eventually(fmt.Sprintf("%d slices are published", number), func() error {
		slices, err := w.client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
		if err == nil && len(slices.Items) != number {
			err = fmt.Errorf("%d slices", len(slices.Items))
		}
		return err
	})
}

// end ends everything that was started, containers with their helpers included.
func (w *world) end() {
	kill(w.driver, syscall.SIGTERM)
	kill(w.agent, syscall.SIGTERM)
	kill(w.up, syscall.SIGTERM)
	if w.containerd != nil && w.containerd.ProcessState == nil {
		tasks, _ := w.ctr("tasks", "ls", "-q")
		for _, id := range strings.Fields(tasks) {
			_, _ = w.ctr("tasks", "kill", "--signal", "SIGKILL", id)
			_, _ = w.ctr("tasks", "delete", "--force", id)
		}
		kill(w.containerd, syscall.SIGTERM)
	}
	if os.Getenv("ALLOT_INTEROP_KEEP") == "" {
		_ = os.RemoveAll(w.dir)
	}
}

// logs shows the last lines of every process.
func (w *world) logs() {
	for _, name := range []string{"containerd", "up", "agent", "driver"} {
		text, _ := os.ReadFile(w.path(name + ".log"))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Printf("-- %s\n%s\n", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// eventually asks again until there is no error; for what no event tells.
func eventually(what string, holds func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// pod is one that runs the program of the image with these arguments.
func pod(name string, arguments ...string) *corev1.Pod {
	grace := int64(2)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName:                      "n1",
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: app, Args: arguments}},
		},
	}
}

// create makes a pod that is deleted with the test.
func create(t testing.TB, wanted *corev1.Pod) {
	t.Helper()
	pods := shared.client.CoreV1().Pods("default")
	_, err := pods.Create(within(t), wanted, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = pods.Delete(context.Background(), wanted.Name, metav1.DeleteOptions{})
		await(t, wanted.Name, "gone", nil)
	})
}

// await watches a pod until the condition holds; without one, until it is gone.
func await(t testing.TB, name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	source := shared.client.CoreV1().RESTClient()
	list := cache.NewListWatchFromClient(source, "pods", "default", fields.OneTermEqualSelector("metadata.name", name))
	var last *corev1.Pod
	gone := func(store cache.Store) (bool, error) { return holds == nil && len(store.List()) == 0, nil }
	_, err := watchtools.UntilWithSync(ctx, list, &corev1.Pod{}, gone, func(event watch.Event) (bool, error) {
		last = event.Object.(*corev1.Pod)
		if event.Type == watch.Deleted {
			return holds == nil, nil
		}
		return holds != nil && holds(last), nil
	})
	if err != nil {
		t.Fatalf("pod %s: waiting for %s: %v; last seen: %+v", name, what, err, last)
	}
	return last
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// log is what a container has written so far.
func log(t testing.TB, name string) string {
	t.Helper()
	text, err := shared.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(within(t))
	must(t, err)
	return string(text)
}

// logged waits until a container has written something.
func logged(t testing.TB, name, wanted string) string {
	t.Helper()
	var text string
	must(t, eventually(name+" writes "+wanted, func() error {
		raw, err := shared.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(within(t))
		text = string(raw)
		if err == nil && !strings.Contains(text, wanted) {
			err = fmt.Errorf("only %q", text)
		}
		return err
	}))
	return text
}

// ready waits until the node has this status.
func ready(t testing.TB, status corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	must(t, eventually("the node is ready: "+string(status), func() (err error) {
		node, err = shared.client.CoreV1().Nodes().Get(within(t), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == status {
				return nil
			}
		}
		return fmt.Errorf("%+v", node.Status.Conditions)
	}))
	return node
}
