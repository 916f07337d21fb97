package interop

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nriPlugin is a plugin on upstream's stub, which drivers such as dranet and dra-driver-cpu are made with.
type nriPlugin struct {
	mutex  sync.Mutex
	events []string
	source string
}

func (p *nriPlugin) note(event string, pod *api.PodSandbox) {
	if pod.GetNamespace() == metav1.NamespaceDefault {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.events = append(p.events, event+" "+pod.GetName())
	}
}

func (p *nriPlugin) noted() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.events)
}

func (p *nriPlugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	for _, pod := range pods {
		p.note("Synchronize", pod)
	}
	return nil, nil
}

func (p *nriPlugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("RunPodSandbox", pod)
	return nil
}

func (p *nriPlugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("StopPodSandbox", pod)
	return nil
}

func (p *nriPlugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("RemovePodSandbox", pod)
	return nil
}

func (p *nriPlugin) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.note("CreateContainer", pod)
	adjust := &api.ContainerAdjustment{}
	adjust.AddEnv("FROM_PLUGIN", pod.GetLabels()["wanted"])
	adjust.AddMount(&api.Mount{Source: p.source, Destination: "/from-plugin", Type: "bind", Options: []string{"rbind", "ro"}})
	adjust.AddDevice(&api.LinuxDevice{Path: "/dev/from-plugin", Type: "c", Major: 1, Minor: 3})
	if pod.GetName() == "refused" {
		adjust.SetLinuxCgroupsPath("/elsewhere")
	}
	return adjust, nil, nil
}

func (p *nriPlugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	if container.GetPid() != 0 {
		p.note("PostStartContainer", pod)
	}
	return nil
}

func (p *nriPlugin) StopContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) ([]*api.ContainerUpdate, error) {
	p.note("StopContainer", pod)
	return nil, nil
}

func (p *nriPlugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) error {
	p.note("RemoveContainer", pod)
	return nil
}

// connect starts the plugin and waits until it was told what there is.
func (p *nriPlugin) connect(t *testing.T, socket string) stub.Stub {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		plugin, err := stub.New(p, stub.WithPluginName("interop"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket))
		must(t, err)
		err = plugin.Start(within(t))
		if err == nil {
			return plugin
		}
		// The socket is served once the node knows all its pods.
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A plugin on upstream's stub registers, adjusts containers, and follows them to their end. One that connects again is told of them.
func TestNRI(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("plugins adjust containers of an agent that runs as root")
	}
	socket := filepath.Join(t.TempDir(), "nri", "nri.sock")
	c := own(t, "--in-memory", "--driver", "none", "--images", "host", "--nri-socket", socket)
	plugin := &nriPlugin{source: t.TempDir()}
	must(t, os.WriteFile(filepath.Join(plugin.source, "file"), []byte("content\n"), 0o644))
	first := plugin.connect(t, socket)

	script := "echo $FROM_PLUGIN; cat /from-plugin/file; echo x > /dev/from-plugin && echo device; touch /from-plugin/x 2> /dev/null || echo read-only; exec sleep 1000"
	pod := sleeper("adjusted", script)
	pod.Labels["wanted"] = "variable"
	launch(t, c, metav1.NamespaceDefault, pod)
	expected := "variable\ncontent\ndevice\n"
	log := ""
	for deadline := time.Now().Add(patience); !strings.HasSuffix(log, "read-only\n") && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		raw, _ := c.client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs("adjusted", &corev1.PodLogOptions{}).DoRaw(within(t))
		log = string(raw)
	}
	if !strings.HasPrefix(log, expected) || !strings.HasSuffix(log, "read-only\n") {
		t.Fatalf("the container says %q", log)
	}

	_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(within(t), sleeper("refused"), metav1.CreateOptions{})
	must(t, err)
	awaitEvent(t, c, metav1.NamespaceDefault, "refused", "Failed", `NRI plugin "10-interop" requires CgroupsPath`)

	first.Stop()
	first.Wait()
	plugin.connect(t, socket)
	now := int64(1)
	must(t, c.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(within(t), "adjusted", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	want := []string{"RunPodSandbox", "CreateContainer", "PostStartContainer", "Synchronize", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"}
	var got []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = nil
		for _, event := range plugin.noted() {
			if name, ok := strings.CutSuffix(event, " adjusted"); ok {
				got = append(got, name)
			}
		}
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the plugin was told %q and not %q", got, want)
}
