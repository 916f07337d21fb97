package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// kubectls are the programs to test with: KUBECTLS lists them, separated by colons.
func kubectls(t *testing.T) []string {
	list := filepath.SplitList(os.Getenv("KUBECTLS"))
	if len(list) == 0 {
		t.Skip("KUBECTLS names no kubectl; see ./run")
	}
	return list
}

// kubectl runs one program in one namespace.
type kubectl struct {
	t       *testing.T
	program string
	ns      string
	dir     string
	stdin   string
	env     []string
}

func (k kubectl) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, k.program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(k.dir, "kubeconfig"), "HOME="+k.dir, "KUBECTL_EXTERNAL_DIFF=")
	command.Env = append(command.Env, k.env...)
	command.Dir = k.dir
	command.Stdin = strings.NewReader(k.stdin)
	return command
}

// try returns output and errors together, and the exit code.
func (k kubectl) try(arguments ...string) (string, int) {
	k.t.Helper()
	command := k.command(within(k.t), arguments...)
	out, _ := command.CombinedOutput()
	return string(out), command.ProcessState.ExitCode()
}

// run must succeed and returns what was printed.
func (k kubectl) run(arguments ...string) string {
	k.t.Helper()
	out, code := k.try(arguments...)
	if code != 0 {
		k.t.Fatalf("kubectl %s: exit code %d: %s", strings.Join(arguments, " "), code, out)
	}
	return out
}

// prints checks what a command prints, as a regular expression over all of it.
func (k kubectl) prints(pattern string, arguments ...string) {
	k.t.Helper()
	out := k.run(arguments...)
	if !regexp.MustCompile(`(?s)\A` + pattern + `\n?\z`).MatchString(out) {
		k.t.Fatalf("kubectl %s printed %q, not %q", strings.Join(arguments, " "), out, pattern)
	}
}

// write makes a file for the command and returns its name.
func (k kubectl) write(name, text string) string {
	k.t.Helper()
	must(k.t, os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o755))
	return name
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]
        env: [{name: STEP, value: "%s"}]
`

func TestKubectl(t *testing.T) {
	for _, program := range kubectls(t) {
		out, err := exec.Command(program, "version", "--client").Output()
		must(t, err)
		version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "Client Version: "), "\n")
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config, err := os.ReadFile(shared.kubeconfig)
			must(t, err)
			ns := namespace(t, shared)
			must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), config, 0o600))
			k := kubectl{t: t, program: program, ns: ns, dir: dir}
			k.run("config", "set-context", "--current", "--namespace", ns)
			for name, step := range map[string]func(kubectl){
				"apply": kubectlApply, "change": kubectlChange, "rollout": kubectlRollout, "look": kubectlLook,
				"access": kubectlAccess, "containers": kubectlContainers, "containers over SPDY": kubectlOverSPDY, "watch": kubectlWatch,
			} {
				t.Run(name, func(t *testing.T) {
					k := k
					k.t = t
					step(k)
				})
			}
		})
	}
}

func kubectlApply(k kubectl) {
	one := k.write("one.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: \"1\", b: \"1\"}\n")
	k.prints("configmap/one created", "apply", "-f", one)
	k.prints("configmap/one unchanged", "apply", "-f", one)
	two := k.write("two.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: \"2\"}\n")
	if out, code := k.try("diff", "-f", two); code != 1 || !strings.Contains(out, "-  a: \"1\"") || !strings.Contains(out, "+  a: \"2\"") {
		k.t.Fatalf("diff: %d, %s", code, out)
	}
	k.prints("configmap/one configured", "apply", "-f", two)
	k.prints(`{"a":"2"}`, "get", "configmap", "one", "-o", "jsonpath={.data}")
	if out, code := k.try("diff", "-f", two); code != 0 {
		k.t.Fatalf("diff without a difference: %d, %s", code, out)
	}
	k.prints("configmap/one configured \\(server dry run\\)", "apply", "-f", one, "--dry-run=server")

	three := k.write("three.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: three}\ndata: {a: \"1\"}\n")
	k.prints("configmap/three serverside-applied", "apply", "--server-side", "-f", three)
	four := k.write("four.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: three}\ndata: {a: \"2\"}\n")
	out, code := k.try("apply", "--server-side", "--field-manager=other", "-f", four)
	if code != 1 || !strings.Contains(out, `Apply failed with 1 conflict: conflict with "kubectl": .data.a`) {
		k.t.Fatalf("conflict: %d, %s", code, out)
	}
	k.prints("configmap/three serverside-applied", "apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", four)

	bad := k.write("bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\nspec: {}\n")
	if out, code := k.try("apply", "-f", bad); code == 0 || !strings.Contains(out, `unknown field "spec"`) {
		k.t.Fatalf("unknown field: %d, %s", code, out)
	}
	// What is no longer in the directory goes.
	must(k.t, os.MkdirAll(filepath.Join(k.dir, "set"), 0o755))
	k.write("set/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: set-a, labels: {set: x}}\n")
	k.write("set/b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: set-b, labels: {set: x}}\n")
	k.run("apply", "-f", "set", "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap")
	must(k.t, os.Remove(filepath.Join(k.dir, "set/b.yaml")))
	if out := k.run("apply", "-f", "set", "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap"); !strings.Contains(out, "configmap/set-b pruned") {
		k.t.Fatalf("prune: %s", out)
	}
}

func kubectlChange(k kubectl) {
	k.prints("configmap/m created", "create", "configmap", "m", "--from-literal=a=1")
	k.prints("configmap/m patched", "patch", "configmap", "m", "-p", `{"data":{"b":"2"}}`)
	k.prints("configmap/m patched", "patch", "configmap", "m", "--type=json", "-p", `[{"op":"remove","path":"/data/a"}]`)
	k.prints("configmap/m patched", "patch", "configmap", "m", "--type=merge", "-p", `{"data":{"c":"3"}}`)
	k.prints("configmap/m labeled", "label", "configmap", "m", "l=1")
	k.prints("configmap/m annotated", "annotate", "configmap", "m", "n=1")
	k.prints("configmap/m unlabeled", "label", "configmap", "m", "l-")
	k.prints(`{"b":"2","c":"3"}`, "get", "configmap", "m", "-o", "jsonpath={.data}")
	editor := k
	editor.env = []string{"EDITOR=" + filepath.Join(k.dir, k.write("editor", "#!/bin/sh\nsed -i 's/c: \"3\"/c: \"4\"/' \"$1\"\n"))}
	editor.prints("configmap/m edited", "edit", "configmap", "m")
	k.prints(`{"b":"2","c":"4"}`, "get", "configmap", "m", "-o", "jsonpath={.data}")
	k.prints("configmap/m replaced", "replace", "-f", k.write("m.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {d: \"5\"}\n"))
	if out := k.run("delete", "configmap", "m"); !strings.HasPrefix(out, `configmap "m" deleted`) {
		k.t.Fatal(out)
	}
	out, code := k.try("get", "configmap", "m")
	if code != 1 || out != "Error from server (NotFound): configmaps \"m\" not found\n" {
		k.t.Fatalf("%d, %q", code, out)
	}
	k.prints("", "delete", "configmap", "m", "--ignore-not-found")
}

func kubectlRollout(k kubectl) {
	k.run("apply", "-f", k.write("web.yaml", fmt.Sprintf(deployment, "1")))
	k.prints(".*successfully rolled out", "rollout", "status", "deployment/web", "--timeout=110s")
	k.prints("deployment.apps/web configured", "apply", "-f", k.write("web.yaml", fmt.Sprintf(deployment, "2")))
	k.prints(".*successfully rolled out", "rollout", "status", "deployment/web", "--timeout=110s")
	if out := k.run("rollout", "history", "deployment/web"); !regexp.MustCompile(`(?m)^1 .*\n2 `).MatchString(out) {
		k.t.Fatalf("history: %s", out)
	}
	k.prints("(Warning: .*)?deployment.apps/web rolled back", "rollout", "undo", "deployment/web")
	k.prints(".*successfully rolled out", "rollout", "status", "deployment/web", "--timeout=110s")
	k.prints("1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[0].value}")
	k.prints("deployment.apps/web restarted", "rollout", "restart", "deployment/web")
	k.prints(".*successfully rolled out", "rollout", "status", "deployment/web", "--timeout=110s")
	k.prints("deployment.apps/web scaled", "scale", "deployment/web", "--replicas=1")
	k.run("wait", "--for=jsonpath={.status.replicas}=1", "deployment/web", "--timeout=110s")
	k.prints("deployment.apps/web image updated", "set", "image", "deployment/web", "main=other")
	k.prints("deployment.apps/web condition met", "wait", "--for=condition=Available", "deployment/web", "--timeout=110s")
	// The ReplicaSets stay, ownerless.
	k.run("delete", "deployment", "web", "--cascade=orphan")
	if out := k.run("get", "replicasets", "-o", "name"); !strings.Contains(out, "replicaset.apps/web-") {
		k.t.Fatalf("replica sets: %s", out)
	}
	k.run("delete", "replicasets", "--all", "--cascade=foreground", "--timeout=110s")
	// The ReplicaSet controller may have made a pod while they were deleted: it goes later than they do.
	k.run("wait", "--for=delete", "pods", "-l", "app=web", "--field-selector=status.phase!=Failed", "--timeout=110s")
}

func kubectlLook(k kubectl) {
	resources := k.run("api-resources", "-o", "wide")
	for _, line := range []string{`resourceclaims +resource.k8s.io/v1 +true +ResourceClaim +create,delete,deletecollection,get,list,patch,update,watch`, `deployments +deploy +apps/v1 +true +Deployment`} {
		if !regexp.MustCompile(line).MatchString(resources) {
			k.t.Errorf("no %q in %s", line, resources)
		}
	}
	if out := k.run("api-versions"); !strings.Contains(out, "resource.k8s.io/v1\n") {
		k.t.Errorf("api-versions: %s", out)
	}
	if out := k.run("explain", "resourceclaim.spec.devices.requests.exactly.count"); !strings.Contains(out, "FIELD: count <integer>") {
		k.t.Errorf("explain: %s", out)
	}
	if out := k.run("explain", "pod", "--recursive"); !strings.Contains(out, "ephemeralContainers") {
		k.t.Errorf("explain --recursive: %s", out)
	}
	for _, kind := range []string{"nodes", "resourceslices", "deviceclasses", "namespaces", "all"} {
		for _, format := range []string{"", "-o=wide", "-o=yaml", "-o=json", "-o=name"} {
			k.run(strings.Fields("get " + kind + " " + format)...)
		}
	}
	if out := k.run("describe", "node", "node-0"); !strings.Contains(out, "Allocatable:") {
		k.t.Errorf("describe node: %s", out)
	}
	k.run("describe", "deviceclass", "gpu.example.com")
	k.prints("node-0", "get", "nodes", "-o", "custom-columns=NAME:.metadata.name", "--no-headers")
	k.run("cluster-info")
	k.run("version")
	k.run("get", "--raw", "/readyz")
	k.run("get", "events", "-A", "--sort-by=.metadata.creationTimestamp")
}

func kubectlAccess(k kubectl) {
	k.prints("yes", "auth", "can-i", "create", "pods")
	k.run("create", "serviceaccount", "robot")
	subject := "--as=system:serviceaccount:" + k.ns + ":robot"
	if out, code := k.try("auth", "can-i", "get", "pods", subject); code != 1 || !strings.HasPrefix(out, "no") {
		k.t.Fatalf("can-i: %d, %s", code, out)
	}
	k.run("create", "role", "reader", "--verb=get,list", "--resource=pods")
	k.run("create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+k.ns+":robot")
	k.prints("yes", "auth", "can-i", "list", "pods", subject)
	if out := k.run("auth", "can-i", "--list", subject); !strings.Contains(out, "pods") {
		k.t.Fatalf("can-i --list: %s", out)
	}
	if out := k.run("auth", "whoami", subject); !strings.Contains(out, "system:serviceaccounts:"+k.ns) {
		k.t.Fatalf("whoami: %s", out)
	}
	token := strings.TrimSpace(k.run("create", "token", "robot", "--duration=10m"))
	config := k.write("robot.yaml", k.run("config", "view", "--raw", "--minify", "--flatten"))
	k.run("config", "--kubeconfig="+config, "set-credentials", "robot", "--token="+token)
	k.run("config", "--kubeconfig="+config, "set-context", "--current", "--user=robot")
	k.run("--kubeconfig="+config, "get", "pods")
	out, code := k.try("--kubeconfig="+config, "get", "secrets")
	wanted := fmt.Sprintf(`secrets is forbidden: User "system:serviceaccount:%s:robot" cannot list resource "secrets" in API group "" in the namespace "%s"`, k.ns, k.ns)
	if code != 1 || !strings.Contains(out, wanted) {
		k.t.Fatalf("forbidden: %d, %s", code, out)
	}
	must(k.t, os.Remove(filepath.Join(k.dir, config)))
}

func kubectlContainers(k kubectl) {
	port := echoServer(k.t, k.ns)
	k.prints("over exec", "exec", "echo", "--", "echo", "over", "exec")
	if out, code := k.try("exec", "echo", "--", "sh", "-c", "exit 9"); code != 9 {
		k.t.Fatalf("exit code %d: %s", code, out)
	}
	typed := k
	typed.stdin = "typed\n"
	typed.prints("typed", "exec", "-i", "echo", "--", "cat")
	if out := k.run("logs", "echo"); out != fmt.Sprintln(port) {
		k.t.Fatalf("logs: %q", out)
	}
	if out := k.run("logs", "echo", "--timestamps", "--tail=1"); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT[^ ]+Z \d+\n$`).MatchString(out) {
		k.t.Fatalf("logs --timestamps: %q", out)
	}

	// A tree with an empty file, a big one and a link, there and back.
	must(k.t, os.MkdirAll(filepath.Join(k.dir, "tree/deep"), 0o755))
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	must(k.t, os.WriteFile(filepath.Join(k.dir, "tree/deep/big"), big, 0o644))
	k.write("tree/empty", "")
	k.run("cp", "tree", "echo:/tmp/tree")
	k.run("cp", "echo:/tmp/tree", "back")
	back, err := os.ReadFile(filepath.Join(k.dir, "back/deep/big"))
	if err != nil || !bytes.Equal(back, big) {
		k.t.Fatalf("%d bytes came back, %v", len(back), err)
	}

	ctx, cancel := context.WithCancel(within(k.t))
	defer cancel()
	forward := k.command(ctx, "port-forward", "pod/echo", fmt.Sprintf(":%d", port))
	stdout, err := forward.StdoutPipe()
	must(k.t, err)
	must(k.t, forward.Start())
	defer func() {
		cancel()
		_ = forward.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(k.t, err)
	local := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> `).FindStringSubmatch(line)
	if local == nil {
		k.t.Fatalf("port-forward: %q", line)
	}
	for range 3 {
		conn, err := net.DialTimeout("tcp", local[1], patience)
		must(k.t, err)
		must(k.t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, "hello\n")
		must(k.t, err)
		must(k.t, conn.(*net.TCPConn).CloseWrite())
		text, err := io.ReadAll(conn)
		if err != nil || string(text) != "echo hello\nbye\n" {
			k.t.Fatalf("forwarded: %q, %v", text, err)
		}
		conn.Close()
	}
	awaitEvent(k.t, shared, k.ns, "echo", "Started", "")
	if out := k.run("describe", "pod", "echo"); !strings.Contains(out, "python3") || !strings.Contains(out, "Started") {
		k.t.Fatalf("describe: %s", out)
	}

	// The command of `kubectl run` reads what its user types, to the end.
	typed.stdin = "one\ntwo\n"
	if out := typed.run("run", "typist", "--image=host", "--restart=Never", "--pod-running-timeout=110s", "-i", "--rm", "--quiet", "--command", "--", "sh", "-c", "while read l; do echo got $l; done"); out != "got one\ngot two\n" {
		k.t.Fatalf("run -i: %q", out)
	}
	k.run("delete", "pod", "echo", "--grace-period=1", "--timeout=110s")
}

// As kubectl before 1.31 does it.
func kubectlOverSPDY(k kubectl) {
	k.env = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}
	kubectlContainers(k)
}

func kubectlWatch(k kubectl) {
	ctx, cancel := context.WithCancel(within(k.t))
	defer cancel()
	get := k.command(ctx, "get", "configmaps", "-w", "-o", "name", "-l", "watched")
	stdout, err := get.StdoutPipe()
	must(k.t, err)
	must(k.t, get.Start())
	defer func() {
		cancel()
		_ = get.Wait()
	}()
	// One is there before or comes after the watch began, the other surely comes after.
	for _, name := range []string{"first", "second"} {
		k.run("apply", "-f", k.write("w.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", labels: {watched: \"1\"}}\n"))
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil || line != "configmap/"+name+"\n" {
			k.t.Fatalf("get -w: %q, %v", line, err)
		}
	}
}
