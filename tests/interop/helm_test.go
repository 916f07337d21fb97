package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// chart has what charts of operators have: a CRD, an object of it, hooks, a workload, and a note.
var chart = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: demo\nversion: 0.1.0\nappVersion: \"1\"\n",
	"values.yaml": "word: hello\nreplicas: 1\n",
	"crds/widgets.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.helm.example.com}
spec:
  group: helm.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {word: {type: string}}}
`,
	"templates/widget.yaml": `apiVersion: helm.example.com/v1
kind: Widget
metadata: {name: {{ .Release.Name }}}
spec: {word: {{ .Values.word | quote }}}
`,
	"templates/config.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  labels: {kube: {{ .Capabilities.KubeVersion.Minor | quote }}}
data:
  word: {{ .Values.word | quote }}
  {{- if .Capabilities.APIVersions.Has "resource.k8s.io/v1/ResourceClaim" }}
  dra: "yes"
  {{- end }}
`,
	"templates/before.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-before
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: ["true"]}
`,
	"templates/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]
`,
	"templates/test.yaml": `apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-test
  annotations: {helm.sh/hook: test}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: host, command: [sh, -c, "echo tested"]}
`,
	"templates/NOTES.txt": "the word is {{ .Values.word }}\n",
}

// The life of a release, with every helm that HELMS lists.
func TestHelm(t *testing.T) {
	helms := filepath.SplitList(os.Getenv("HELMS"))
	if len(helms) == 0 {
		t.Skip("HELMS names no helm; see ./run")
	}
	for _, program := range helms {
		version, err := exec.Command(program, "version", "--short").Output()
		must(t, err)
		t.Run(strings.TrimSpace(string(version)), func(t *testing.T) { helm(t, program) })
	}
}

func helm(t *testing.T, program string) {
	dir, ns := t.TempDir(), namespace(t, shared)
	for name, text := range chart {
		path := filepath.Join(dir, "chart", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	run := func(arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(within(t), program, append(arguments, "--namespace", ns)...)
		command.Env = append(os.Environ(), "KUBECONFIG="+shared.kubeconfig, "HOME="+dir)
		command.Dir = dir
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v: %s", strings.Join(arguments, " "), err, out)
		}
		return string(out)
	}
	data := func() map[string]string {
		t.Helper()
		object, err := shared.client.CoreV1().ConfigMaps(ns).Get(within(t), "r", metav1.GetOptions{})
		must(t, err)
		return object.Data
	}
	if out := run("install", "r", "chart", "--wait", "--timeout=110s"); !strings.Contains(out, "the word is hello") {
		t.Fatalf("install: %s", out)
	}
	if got := fmt.Sprint(data()); got != "map[dra:yes word:hello]" {
		t.Fatalf("after install: %s", got)
	}
	awaitAvailable(t, shared, ns, "r", 1)
	if out := run("test", "r", "--logs"); !strings.Contains(out, "tested") {
		t.Fatalf("test: %s", out)
	}
	run("upgrade", "r", "chart", "--set", "word=bye,replicas=2", "--wait", "--timeout=110s")
	if got := data()["word"]; got != "bye" {
		t.Fatalf("after upgrade: %s", got)
	}
	run("rollback", "r", "1", "--wait", "--timeout=110s")
	if got := data()["word"]; got != "hello" {
		t.Fatalf("after rollback: %s", got)
	}
	if out := run("history", "r"); strings.Count(out, "\n") != 4 {
		t.Fatalf("history: %s", out)
	}
	if out := run("get", "manifest", "r"); !strings.Contains(out, "kind: Widget") {
		t.Fatalf("manifest: %s", out)
	}
	run("uninstall", "r", "--wait", "--timeout=110s")
	_, err := shared.client.AppsV1().Deployments(ns).Get(within(t), "r", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("after uninstall: %v", err)
	}
	secrets, err := shared.client.CoreV1().Secrets(ns).List(within(t), metav1.ListOptions{LabelSelector: "owner=helm"})
	must(t, err)
	if len(secrets.Items) != 0 {
		t.Fatalf("releases are left: %v", names(secrets.Items))
	}
}

// awaitAvailable watches a Deployment until it has as many replicas: helm waits for its ReplicaSet only, whose numbers
// the Deployment has later.
func awaitAvailable(t *testing.T, c *cluster, namespace, name string, replicas int32) {
	t.Helper()
	await(t, c.client.AppsV1().RESTClient(), "deployments", namespace, name, fmt.Sprint(replicas, " available replicas"),
		func(deployment *appsv1.Deployment) bool {
			status := deployment.Status
			return status.AvailableReplicas == replicas && status.Replicas == replicas && status.UpdatedReplicas == replicas
		})
}

func names(secrets []corev1.Secret) (all []string) {
	for _, secret := range secrets {
		all = append(all, secret.Name)
	}
	return all
}
