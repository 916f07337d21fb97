package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

const imageDriver = "image.example.com"

// driverChart is what charts of drivers have: a DaemonSet that mounts the kubelet's directories, its rights, and a class.
var driverChart = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: demo\nversion: 0.1.0\nappVersion: \"1\"\n",
	"values.yaml": "image: \"\"\npullSecret: \"\"\n",
	"templates/account.yaml": `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Name }}}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [""], resources: [nodes], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .Release.Name }}}
subjects:
- {kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .Release.Name }}}
`,
	"templates/class.yaml": `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: image.example.com}
spec:
  selectors:
  - cel: {expression: "device.driver == 'image.example.com'"}
`,
	"templates/plugin.yaml": `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}-kubeletplugin, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      serviceAccountName: {{ .Release.Name }}
      terminationGracePeriodSeconds: 10
      containers:
      - name: plugin
        image: {{ .Values.image }}
        imagePullPolicy: IfNotPresent
        securityContext: {privileged: true}
        env:
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        volumeMounts:
        - {name: plugins-registry, mountPath: /var/lib/kubelet/plugins_registry}
        - {name: plugins, mountPath: /var/lib/kubelet/plugins}
        - {name: cdi, mountPath: /var/run/cdi}
      volumes:
      - {name: plugins-registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}
      - {name: plugins, hostPath: {path: /var/lib/kubelet/plugins}}
      - {name: cdi, hostPath: {path: /var/run/cdi}}
`,
}

// awaitSlices watches the slices of the driver until there are as many nodes with some.
func awaitSlices(t *testing.T, c *cluster, nodes int) {
	t.Helper()
	// A node that lost its driver keeps the slices for 30 s.
	ctx := within(t)
	client := c.client.ResourceV1().RESTClient()
	list := cache.NewListWatchFromClient(client, "resourceslices", "", fields.OneTermEqualSelector("spec.driver", imageDriver))
	known := map[string]string{}
	enough := func() bool {
		found := map[string]bool{}
		for _, node := range known {
			found[node] = true
		}
		return len(found) == nodes
	}
	before := func(store cache.Store) (bool, error) {
		for _, item := range store.List() {
			slice := item.(*resourcev1.ResourceSlice)
			known[slice.Name] = ptr.Deref(slice.Spec.NodeName, "")
		}
		return enough(), nil
	}
	_, err := watchtools.UntilWithSync(ctx, list, &resourcev1.ResourceSlice{}, before, func(event watch.Event) (bool, error) {
		slice := event.Object.(*resourcev1.ResourceSlice)
		if event.Type == watch.Deleted {
			delete(known, slice.Name)
		} else {
			known[slice.Name] = ptr.Deref(slice.Spec.NodeName, "")
		}
		return enough(), nil
	})
	if err != nil {
		t.Fatalf("waiting for slices of %d nodes: %v; known: %v", nodes, err, known)
	}
}

// A driver as an image in a registry, installed by helm on three nodes, as in the documents of drivers.
func TestDriverFromAnImage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a privileged pod needs root")
	}
	address := registry(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "plugin")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	content, err := os.ReadFile(program)
	must(t, err)
	pushImage(t, address, "demo/driver", "v1", "plugin", string(content))
	for name, text := range driverChart {
		path := filepath.Join(dir, "chart", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}

	c := own(t, "--in-memory", "--nodes", "3", "--driver", "none")
	const ns = "demo-driver"
	// The program has 50 MB, and three nodes that were not optimised unpack it.
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	install := exec.CommandContext(ctx, newestHelm(t), "upgrade", "-i", "--create-namespace", "--namespace", ns, "demo",
		filepath.Join(dir, "chart"), "--set", "image="+address+"/demo/driver:v1", "--wait", "--timeout=280s")
	install.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+c.kubeconfig)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("helm: %v: %s", err, out)
	}
	// helm waits for all but as many as may be unavailable, here for two.
	await(t, c.client.AppsV1().RESTClient(), "daemonsets", ns, "demo-kubeletplugin", "three ready pods",
		func(set *appsv1.DaemonSet) bool { return set.Status.NumberReady == 3 })
	pods, err := c.client.CoreV1().Pods(ns).List(within(t), metav1.ListOptions{})
	must(t, err)
	for _, pod := range pods.Items {
		if id := pod.Status.ContainerStatuses[0].ImageID; !strings.HasPrefix(id, address+"/demo/driver@sha256:") {
			t.Errorf("%s: imageID %q", pod.Name, id)
		}
	}
	awaitSlices(t, c, 3)

	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: imageDriver},
		}}}},
	}
	_, err = c.client.ResourceV1().ResourceClaims("default").Create(within(t), claim, metav1.CreateOptions{})
	must(t, err)
	pod := sleeper("user", "case $IMAGE_DEVICE in node-?/one|node-?/two) exit 0;; esac; exit 1")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("one")}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	_, err = c.client.CoreV1().Pods("default").Create(within(t), pod, metav1.CreateOptions{})
	must(t, err)
	awaitPod(t, c, "default", "user", "the end of a pod with a device", func(pod *corev1.Pod) bool {
		if pod.Status.Phase == corev1.PodFailed {
			t.Fatalf("the device is not there: %+v", pod.Status.ContainerStatuses)
		}
		return pod.Status.Phase == corev1.PodSucceeded
	})
	must(t, c.client.CoreV1().Pods("default").Delete(within(t), "user", metav1.DeleteOptions{}))
	awaitEnd[*corev1.Pod](t, c.client.CoreV1().RESTClient(), "pods", "default", "user")
	for node := range 3 {
		left, err := filepath.Glob(filepath.Join(c.dir, "nodes", "node-"+string(rune('0'+node)), "cdi", "*"))
		must(t, err)
		if len(left) != 0 {
			t.Errorf("the claim is still prepared: %v", left)
		}
	}

	mustHelm(t, c, "uninstall", "demo", "--namespace", ns, "--wait", "--timeout=110s")
	for _, pod := range pods.Items {
		awaitEnd[*corev1.Pod](t, c.client.CoreV1().RESTClient(), "pods", ns, pod.Name)
	}
	_, err = c.client.ResourceV1().DeviceClasses().Get(within(t), imageDriver, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the class is left: %v", err)
	}
	awaitEnd[*appsv1.DaemonSet](t, c.client.AppsV1().RESTClient(), "daemonsets", ns, "demo-kubeletplugin")
	awaitSlices(t, c, 0)
	for _, path := range []string{"/var/lib/kubelet/plugins/" + imageDriver, "/var/run/cdi/" + imageDriver} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was made on the machine", path)
		}
	}
}
