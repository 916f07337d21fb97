package cri

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// difference is one that is expected between what a container sees under containerd (cri) and under the runtime of the
// agent itself (oci).
type difference struct {
	// The line that only one of them has, with `oci: ` or `cri: ` before it.
	line *regexp.Regexp
	why  string
}

// differences are all that are expected. One that no pod shows any longer fails the test as well.
var differences = []difference{
	{regexp.MustCompile(`^(cri: (host name|env HOSTNAME=)|oci: (host name |env HOSTNAME=)(POD|n2|named)$)`),
		"without CNI plugins pods share the network of the host under containerd, and have its name"},
	{regexp.MustCompile(`^(oci: process false|cri: process true|oci: namespace \w+ is that of process 1: false|cri: namespace .* true)$`),
		"process 1 is an init of the runtime, which reaps orphans"},
	{regexp.MustCompile(`^(oci|cri): mount /sys/fs/cgroup`), "containers do not see cgroups"},
	{regexp.MustCompile(`^(oci|cri): mount /dev/shm tmpfs |^cri: (mount|device) /dev/mqueue `),
		"with hostIPC containerd mounts the host's queues as well, and shared memory without nosuid and nodev"},
	{regexp.MustCompile(`^(oci|cri): device /dev/(net|cpu) `), "the modes of directories in a tmpfs of the container's own"},
}

// normal are the differences that all pods have, each with what stands for both sides.
var normal = []struct {
	line *regexp.Regexp
	both string
}{
	// Names of the claim and its node.
	{regexp.MustCompile(`^(env (GPU_DEVICE_\d+_RESOURCE_CLAIM|KUBERNETES_NODE_NAME)=).*$`), "$1"},
	// The test has containerd copy layers.
	{regexp.MustCompile(`^mount / (overlay|ext4|xfs|btrfs) `), "mount / FS "},
	// Under oci volumes have no device files.
	{regexp.MustCompile(`^(mount \S+ \S+ )nodev,(r[ow])$`), "$1$2"},
}

// ownDefaults are the capabilities that containerd gives by default and oci does not: MKNOD, for devices come from drivers, and
// NET_RAW, for the network can be the host's.
const ownDefaults = 1<<27 | 1<<13

// normalized is a line without what all pods see differently.
func normalized(line string, allCapabilities bool) string {
	if kind, value, found := strings.Cut(line, " "); found && !allCapabilities && slices.Contains([]string{"CapPrm", "CapEff", "CapBnd"}, kind) {
		bits, err := strconv.ParseUint(value, 16, 64)
		if err == nil {
			return fmt.Sprintf("%s %016x", kind, bits&^ownDefaults)
		}
	}
	for _, rule := range normal {
		line = rule.line.ReplaceAllString(line, rule.both)
	}
	return line
}

// variant is a pod that runs under both runtimes.
type variant struct {
	name   string
	change func(*corev1.Pod)
	// Paths whose files are shown.
	paths []string
}

func securityContext(pod *corev1.Pod) *corev1.SecurityContext {
	container := &pod.Spec.Containers[0]
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	return container.SecurityContext
}

func podContext(pod *corev1.Pod) *corev1.PodSecurityContext {
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	return pod.Spec.SecurityContext
}

func mounted(pod *corev1.Pod, source corev1.VolumeSource, mounts ...corev1.VolumeMount) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	for _, mount := range mounts {
		mount.Name = "v"
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
	}
}

func emptyDir(medium corev1.StorageMedium) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}
}

func fromMap(mode *int32, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "compared"}, DefaultMode: mode, Items: items,
	}}
}

func limited(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

var variants = []variant{
	{name: "plain", change: func(*corev1.Pod) {}},
	{name: "user", change: func(p *corev1.Pod) { securityContext(p).RunAsUser = ptr.To(int64(1000)) }},
	{name: "user-and-group", change: func(p *corev1.Pod) {
		securityContext(p).RunAsUser, securityContext(p).RunAsGroup = ptr.To(int64(1000)), ptr.To(int64(2000))
	}},
	{name: "user-unknown", change: func(p *corev1.Pod) { securityContext(p).RunAsUser = ptr.To(int64(4711)) }},
	{name: "user-of-pod", change: func(p *corev1.Pod) { podContext(p).RunAsUser = ptr.To(int64(1000)) }},
	{name: "groups", change: func(p *corev1.Pod) { podContext(p).SupplementalGroups = []int64{7, 8} }},
	{name: "groups-strict", change: func(p *corev1.Pod) {
		podContext(p).SupplementalGroups = []int64{7}
		podContext(p).SupplementalGroupsPolicy = ptr.To(corev1.SupplementalGroupsPolicyStrict)
	}},
	{name: "fs-group", change: func(p *corev1.Pod) {
		podContext(p).FSGroup = ptr.To(int64(3000))
		mounted(p, emptyDir(""), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "fs-group-user", change: func(p *corev1.Pod) {
		podContext(p).FSGroup, securityContext(p).RunAsUser = ptr.To(int64(3000)), ptr.To(int64(1000))
		mounted(p, fromMap(nil), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "drop-all", change: func(p *corev1.Pod) {
		securityContext(p).Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}},
	{name: "drop-all-add", change: func(p *corev1.Pod) {
		securityContext(p).Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}
	}},
	{name: "add", change: func(p *corev1.Pod) {
		securityContext(p).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "SYS_TIME"}}
	}},
	{name: "add-all", change: func(p *corev1.Pod) {
		securityContext(p).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}
	}},
	{name: "add-user", change: func(p *corev1.Pod) {
		securityContext(p).RunAsUser = ptr.To(int64(1000))
		securityContext(p).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
	}},
	{name: "no-escalation", change: func(p *corev1.Pod) { securityContext(p).AllowPrivilegeEscalation = ptr.To(false) }},
	{name: "read-only-root", change: func(p *corev1.Pod) { securityContext(p).ReadOnlyRootFilesystem = ptr.To(true) }},
	{name: "seccomp-default", change: func(p *corev1.Pod) {
		securityContext(p).SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}},
	{name: "seccomp-unconfined", change: func(p *corev1.Pod) {
		podContext(p).SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}},
	{name: "host-pid", change: func(p *corev1.Pod) { p.Spec.HostPID = true }},
	{name: "host-ipc", change: func(p *corev1.Pod) { p.Spec.HostIPC = true }},
	{name: "shared-processes", change: func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = ptr.To(true) }},
	{name: "host-network", change: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
	{name: "environment", change: func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "A", Value: "one"}, {Name: "B", Value: "$(A) two"}, {Name: "FROM", Value: "pod"},
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.serviceAccountName"}}},
		}
	}},
	{name: "environment-of-map", change: func(p *corev1.Pod) {
		source := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "compared"}}
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "M_", ConfigMapRef: source}}
	}},
	{name: "no-links", change: func(p *corev1.Pod) { p.Spec.EnableServiceLinks = ptr.To(false) }},
	{name: "directory", change: func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/data" }},
	{name: "directory-new", change: func(p *corev1.Pod) { p.Spec.Containers[0].WorkingDir = "/new/one" }},
	{name: "memory", change: limited(corev1.ResourceMemory, "64Mi")},
	{name: "cpu", change: limited(corev1.ResourceCPU, "500m")},
	{name: "requests", change: func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
		}
	}},
	{name: "guaranteed", change: func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
	}},
	{name: "empty-dir", change: func(p *corev1.Pod) {
		mounted(p, emptyDir(""), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "empty-dir-memory", change: func(p *corev1.Pod) {
		mounted(p, emptyDir(corev1.StorageMediumMemory), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "read-only-mount", change: func(p *corev1.Pod) {
		mounted(p, emptyDir(""), corev1.VolumeMount{MountPath: "/v", ReadOnly: true})
	}, paths: []string{"/v"}},
	{name: "map", change: func(p *corev1.Pod) {
		mounted(p, fromMap(nil), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "map-mode", change: func(p *corev1.Pod) {
		mounted(p, fromMap(ptr.To(int32(0o400)), corev1.KeyToPath{Key: "key", Path: "a/b", Mode: ptr.To(int32(0o640))}), corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "map-sub-path", change: func(p *corev1.Pod) {
		mounted(p, fromMap(nil), corev1.VolumeMount{MountPath: "/one", SubPath: "key"})
	}, paths: []string{"/one"}},
	{name: "downward", change: func(p *corev1.Pod) {
		p.Labels = map[string]string{"l": "x"}
		mounted(p, corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}}, corev1.VolumeMount{MountPath: "/v"})
	}, paths: []string{"/v"}},
	{name: "host-aliases", change: func(p *corev1.Pod) {
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"alias"}}}
	}, paths: []string{"/etc/hosts"}},
	{name: "dns", change: func(p *corev1.Pod) {
		p.Spec.DNSPolicy = corev1.DNSNone
		p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}}
	}, paths: []string{"/etc/resolv.conf"}},
	{name: "host-name", change: func(p *corev1.Pod) { p.Spec.Hostname = "named" }},
	{name: "privileged", change: func(p *corev1.Pod) { securityContext(p).Privileged = ptr.To(true) }},
	{name: "proc-mount", change: func(p *corev1.Pod) { securityContext(p).ProcMount = ptr.To(corev1.DefaultProcMount) }},
	{name: "message-path", change: func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/tmp/message" }},
	{name: "device", change: func(p *corev1.Pod) { claim(p, "compared") }},
}

// startOwn starts a second node, whose containers the agent runs itself, with the same image and driver.
func startOwn(t *testing.T) {
	t.Helper()
	imported := exec.Command(shared.bin, "image", "import", "--root-dir", shared.path("n2"), "--name", app, shared.path("app.tar"))
	if out, err := imported.CombinedOutput(); err != nil {
		t.Fatalf("import: %v: %s", err, out)
	}
	// The other tests have the first node alone. The slices go with their node.
	t.Cleanup(func() {
		_ = shared.client.CoreV1().Nodes().Delete(context.Background(), "n2", metav1.DeleteOptions{})
		must(t, shared.published(1))
	})
	agent, err := shared.spawn("agent2", shared.bin, "node", "--kubeconfig", shared.path("up", "kubeconfig"), "--node-name", "n2",
		"--root-dir", shared.path("n2"), "--runtime", "process", "--images", "require", "--eviction-hard", "")
	must(t, err)
	t.Cleanup(func() { kill(agent, syscall.SIGTERM) })
	driver, err := shared.startDriver("driver2", "n2", shared.path("n2"), shared.path("n2", "cdi"))
	must(t, err)
	t.Cleanup(func() { kill(driver, syscall.SIGTERM) })
	must(t, shared.published(2))
}

// seen is what a container of the variant sees on a node, without what has to differ.
func seen(t *testing.T, v variant, node string) []string {
	t.Helper()
	wanted := pod("c-"+v.name, append([]string{"look"}, v.paths...)...)
	wanted.Name += "-" + node
	// Placed by the scheduler, which allocates the device.
	wanted.Spec.NodeName = ""
	wanted.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	v.change(wanted)
	create(t, wanted)
	over := await(t, wanted.Name, "over", isOver)
	text := log(t, wanted.Name)
	if over.Status.Phase != corev1.PodSucceeded {
		t.Errorf("%s on %s: %+v\n%s", v.name, node, over.Status.ContainerStatuses, text)
	}
	text = strings.ReplaceAll(text, wanted.Name, "POD")
	text = strings.ReplaceAll(text, string(over.UID), "UID")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	all := slices.Contains([]string{"add-all", "privileged"}, v.name)
	for at, line := range lines {
		lines[at] = normalized(line, all)
	}
	return lines
}

// TestBothRuntimesShowContainersTheSame runs the same pods under containerd and under the agent's own runtime, and compares
// line by line what is visible inside. docs/node.md explains each expected difference.
func TestBothRuntimesShowContainersTheSame(t *testing.T) {
	startOwn(t)
	configMap(t, "compared")
	claimTemplate(t, "compared", gpu())
	used := map[int]bool{}
	for _, v := range variants {
		cri, oci := seen(t, v, "n1"), seen(t, v, "n2")
		for _, side := range []struct {
			prefix     string
			own, other []string
		}{{"cri: ", cri, oci}, {"oci: ", oci, cri}} {
			for _, line := range side.own {
				if slices.Contains(side.other, line) {
					continue
				}
				line = side.prefix + line
				at := slices.IndexFunc(differences, func(d difference) bool { return d.line.MatchString(line) })
				if at < 0 {
					t.Errorf("%s: only %s", v.name, line)
					continue
				}
				used[at] = true
			}
		}
	}
	for at, expected := range differences {
		if !used[at] {
			t.Errorf("no pod shows the expected difference %s any longer (%s)", expected.line, expected.why)
		}
	}
}
