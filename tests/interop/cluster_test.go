// Package interop checks that clients written for Kubernetes do not notice that the server is allot: every test talks
// to the real binary, named by ALLOT_BIN, through unmodified client libraries. Start it with ./run.
package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

// patience is how long anything may take before a test fails; nothing waits that long when all is well.
const patience = 2 * time.Minute

// cluster is a running `allot up`.
type cluster struct {
	dir        string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	process    *exec.Cmd
}

// shared serves every test that needs no cluster of its own.
var shared *cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// A short path: sockets of drivers lie deep below it, and theirs have at most 107 bytes.
	dir, err := os.MkdirTemp("/tmp", "ai")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared, err = start(dir, "--in-memory")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.stop()
	return m.Run()
}

// start runs `allot up` on a directory and returns when it says that it is ready.
func start(dir string, flags ...string) (*cluster, error) {
	bin := os.Getenv("ALLOT_BIN")
	if bin == "" {
		return nil, fmt.Errorf("ALLOT_BIN does not name the allot binary; see ./run")
	}
	log, err := os.OpenFile(filepath.Join(dir, "allot.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	arguments := append([]string{"up", "--data-dir", dir}, flags...)
	if !slices.Contains(flags, "--listen") {
		arguments = append(arguments, "--listen", "127.0.0.1:0")
	}
	process := exec.Command(bin, arguments...)
	process.Stderr = log
	// The cluster must not outlive the tests, however they end.
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		ready <- line
		_, _ = io.Copy(io.Discard, stdout)
	}()
	c := &cluster{dir: dir, process: process}
	select {
	case line := <-ready:
		_, kubeconfig, found := strings.Cut(strings.TrimSpace(line), "KUBECONFIG=")
		if !found {
			c.stop()
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("allot did not get ready: %s", text)
		}
		c.kubeconfig = kubeconfig
	case <-time.After(patience):
		c.stop()
		return nil, fmt.Errorf("allot was not ready after %s", patience)
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return nil, err
	}
	// Tests must not be slowed down by the client's own rate limit.
	c.config.QPS, c.config.Burst = 1000, 2000
	c.client, err = kubernetes.NewForConfig(c.config)
	return c, err
}

// own starts a cluster for one test.
func own(t *testing.T, flags ...string) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ai")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return restart(t, dir, flags...)
}

// restart starts a cluster on the directory of an earlier one.
func restart(t *testing.T, dir string, flags ...string) *cluster {
	t.Helper()
	c, err := start(dir, flags...)
	must(t, err)
	t.Cleanup(c.stop)
	return c
}

// stop ends the cluster and waits for its end. It may be called again.
func (c *cluster) stop() {
	if c.process.ProcessState == nil {
		_ = c.process.Process.Signal(syscall.SIGTERM)
		_ = c.process.Wait()
	}
}

// kill ends the cluster without a warning.
func (c *cluster) kill() {
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
}

// node is the directory of the only node.
func (c *cluster) node() string {
	return filepath.Join(c.dir, "nodes", "node-0")
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within is a context that ends with the test, or when patience does.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// namespace makes a namespace of the test's own, deleted afterwards.
func namespace(t testing.TB, c *cluster) string {
	t.Helper()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "interop-"}}
	made, err := c.client.CoreV1().Namespaces().Create(within(t), wanted, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = c.client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	return made.Name
}

// await watches one object until the condition holds.
func await[T runtime.Object](
	t testing.TB, source rest.Interface, resource, namespace, name, what string, condition func(T) bool,
) T {
	t.Helper()
	last, err := watchUntil(source, resource, namespace, name, nil, func(event watch.EventType, object T) bool {
		return event != watch.Deleted && condition(object)
	})
	if err != nil {
		t.Fatalf("%s %s/%s: waiting for %s: %v; last seen: %+v", resource, namespace, name, what, err, last)
	}
	return last
}

// awaitEnd watches one object until it is gone.
func awaitEnd[T runtime.Object](t testing.TB, source rest.Interface, resource, namespace, name string) {
	t.Helper()
	gone := func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil }
	last, err := watchUntil(source, resource, namespace, name, gone, func(event watch.EventType, _ T) bool {
		return event == watch.Deleted
	})
	if err != nil {
		t.Fatalf("%s %s/%s: waiting for its end: %v; last seen: %+v", resource, namespace, name, err, last)
	}
}

func watchUntil[T runtime.Object](
	source rest.Interface, resource, namespace, name string, before watchtools.PreconditionFunc, condition func(watch.EventType, T) bool,
) (last T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list := cache.NewListWatchFromClient(source, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	sample := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	_, err = watchtools.UntilWithSync(ctx, list, sample, before, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(T)
		if !ok {
			return false, fmt.Errorf("event %s with %T", event.Type, event.Object)
		}
		last = object
		return condition(event.Type, object), nil
	})
	return last, err
}

// awaitEvent watches the events about a pod until one has the reason, and this part in its message.
func awaitEvent(t testing.TB, c *cluster, namespace, pod, reason, part string) {
	t.Helper()
	events := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "events", namespace,
		fields.AndSelectors(fields.OneTermEqualSelector("reason", reason), fields.OneTermEqualSelector("involvedObject.name", pod)))
	_, err := watchtools.UntilWithSync(within(t), events, &corev1.Event{}, nil, func(event watch.Event) (bool, error) {
		return strings.Contains(event.Object.(*corev1.Event).Message, part), nil
	})
	if err != nil {
		t.Fatalf("waiting for the event %s %q: %v", reason, part, err)
	}
}

// sleeper is a pod that runs a shell script, or waits until it is deleted.
func sleeper(name string, script ...string) *corev1.Pod {
	text := "trap 'exit 0' TERM; sleep 3600 & wait"
	if len(script) > 0 {
		text = strings.Join(script, "\n")
	}
	grace := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: "host", Command: []string{"sh", "-c", text},
			}},
		},
	}
}

// launch creates a pod and waits until it runs.
func launch(t testing.TB, c *cluster, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(within(t), pod, metav1.CreateOptions{})
	must(t, err)
	return awaitPod(t, c, namespace, pod.Name, "running", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning
	})
}

// awaitPod watches a pod until the condition holds.
func awaitPod(t testing.TB, c *cluster, namespace, name, what string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return await(t, c.client.CoreV1().RESTClient(), "pods", namespace, name, what, condition)
}
