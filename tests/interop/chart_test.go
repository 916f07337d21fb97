package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const chartDir = "../../charts/allot"

// everything switches on every part of the chart, so that each template is rendered.
var everything = []string{
	"--set", "gpuDriver.enabled=true,webhook.enabled=true,webhook.podAnnotations.note=a,controllers.mode=replace,networkPolicy.enabled=true",
	"--set", "metrics.podMonitor.enabled=true,metrics.rules.enabled=true,metrics.dashboard.enabled=true",
	"--set", "scheduler.featureGates.DRADeviceTaintRules=true,scheduler.config.clientConnection.qps=100",
	"--set", "commonLabels.team=a,imagePullSecrets[0].name=pull,scheduler.nodeSelector.pool=control",
	"--set", "scheduler.podAnnotations.note=a,controllers.podAnnotations.note=a,gpuDriver.podAnnotations.note=a",
	"--set", "gpuDriver.gpus.partitions=4,gpuDriver.gpus.allowMultipleAllocations=true,gpuDriver.bindingConditions=true",
	"--set", "netDriver.enabled=true,netDriver.interfaces[0]=eth*,netDriver.shares=2,netDriver.podAnnotations.note=a",
	"--set", "dashboard.enabled=true,dashboard.hosts[0]=dra.example.com:8443,dashboard.podAnnotations.note=a",
	"--set", "gpuDriver.gpus.count=2,gpuDriver.deviceStatus=true,gpuDriver.deviceClass.extendedResourceName=example.com/gpu",
	"--set-json", `scheduler.tolerations=[{"operator":"Exists"}]`,
	"--set-json", `controllers.affinity={"nodeAffinity":{}}`,
	"--set-json", `scheduler.extraArgs=["-v"]`,
}

// manifests are the files under deploy/ that are rendered from the chart.
var manifests = map[string][]string{
	"scheduler.yaml":             {"--set", "controllers.enabled=false"},
	"controllers.yaml":           {"--set", "scheduler.enabled=false,controllers.mode=replace"},
	"gpu-driver.yaml":            {"--set", "scheduler.enabled=false,controllers.enabled=false,gpuDriver.enabled=true"},
	"webhook.yaml":               {"--set", "scheduler.enabled=false,controllers.enabled=false,webhook.enabled=true"},
	"dashboard.yaml":             {"--set", "scheduler.enabled=false,controllers.enabled=false,dashboard.enabled=true"},
	"net-interfaces-driver.yaml": {"--set", "scheduler.enabled=false,controllers.enabled=false,netDriver.enabled=true"},
}

// newestHelm is the last of HELMS; one suffices where the server is not asked.
func newestHelm(t *testing.T) string {
	helms := filepath.SplitList(os.Getenv("HELMS"))
	if len(helms) == 0 {
		t.Skip("HELMS names no helm; see ./run")
	}
	return helms[len(helms)-1]
}

func runHelm(t *testing.T, c *cluster, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(within(t), newestHelm(t), arguments...)
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	if c != nil {
		command.Env = append(command.Env, "KUBECONFIG="+c.kubeconfig)
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

func mustHelm(t *testing.T, c *cluster, arguments ...string) string {
	t.Helper()
	out, err := runHelm(t, c, arguments...)
	if err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(arguments, " "), err, out)
	}
	return out
}

func TestChartIsValid(t *testing.T) {
	mustHelm(t, nil, "lint", "--strict", chartDir, "--kube-version", "1.36.2")
	mustHelm(t, nil, append([]string{"lint", "--strict", chartDir, "--kube-version", "1.36.2"}, everything...)...)
	for _, release := range []string{"1.34.0", "1.35.0", "1.36.2", "1.37.0"} {
		base := []string{"template", "allot", chartDir, "--namespace", "dra", "--kube-version", release}
		mustHelm(t, nil, base...)
		out := mustHelm(t, nil, append(base, everything...)...)
		for _, kind := range []string{"PodMonitor", "PrometheusRule", "NetworkPolicy", "ValidatingAdmissionPolicy", "DaemonSet",
			"ValidatingWebhookConfiguration", "Certificate", "Issuer"} {
			if !strings.Contains(out, "\nkind: "+kind+"\n") {
				t.Errorf("%s: no %s", release, kind)
			}
		}
	}
	if out, err := runHelm(t, nil, "template", "allot", chartDir, "--kube-version", "1.33.0"); err == nil {
		t.Errorf("a release without resource.k8s.io/v1 is accepted: %s", out)
	}
}

// Before 1.36 the right to the status of claims is one to the allocations of all tenants.
func TestRegressionADriverThatWritesClaimsIsRestricted(t *testing.T) {
	for values, name := range map[string]string{
		"gpuDriver.enabled=true,gpuDriver.bindingConditions=true": "gpuDriver",
		"gpuDriver.enabled=true,gpuDriver.deviceStatus=true":      "gpuDriver",
		"netDriver.enabled=true":                                  "netDriver",
	} {
		base := []string{"template", "allot", chartDir, "--set", values, "--kube-version"}
		component := map[string]string{"gpuDriver": "gpu-driver", "netDriver": "net-interfaces"}[name]
		if out := mustHelm(t, nil, append(base, "1.35.0")...); !strings.Contains(out, "name: allot-"+component+"-claims\n") {
			t.Errorf("%s: no policy", values)
		}
		open := name + ".admissionPolicy.enabled=false"
		if out, err := runHelm(t, nil, append(base, "1.35.0", "--set", open)...); err == nil {
			t.Errorf("%s is accepted without a policy: %.200s", values, out)
		}
		mustHelm(t, nil, append(base, "1.36.0", "--set", open)...)
	}
}

// Every field of what the chart renders is known to the API of each release that it is for, and valid there.
func TestChartIsValidInTheAPIOfEachRelease(t *testing.T) {
	for _, release := range []string{"1.34", "1.35", "1.36", "1.37"} {
		c := own(t, "--in-memory", "--runtime", "simulated", "--driver", "none", "--emulated-version", release)
		arguments := append([]string{"template", "allot", chartDir, "--namespace", "kube-system", "--kube-version", release + ".0"}, everything...)
		// What others define: the Prometheus operator and cert-manager.
		arguments = append(arguments, "--set", "metrics.podMonitor.enabled=false,metrics.rules.enabled=false",
			"--set", "dashboard.certificate.secretName=cert,webhook.certificate.secretName=cert",
			"--set", "webhook.certificate.caBundle="+base64.StdEncoding.EncodeToString(c.config.CAData))
		rendered := mustHelm(t, nil, arguments...)
		k := kubectl{t: t, program: kubectls(t)[0], dir: t.TempDir(), stdin: rendered, env: []string{"KUBECONFIG=" + c.kubeconfig}}
		out, code := k.try("apply", "--validate=strict", "--dry-run=server", "-f", "-")
		if code != 0 || strings.Count(out, "(server dry run)") != strings.Count(rendered, "\nkind: ") {
			t.Errorf("%s: exit code %d: %s", release, code, out)
		}
		c.stop()
	}
}

// A value that the chart does not know, or that cannot be meant, is refused before anything is installed.
func TestChartRefusesWrongValues(t *testing.T) {
	for _, wrong := range []string{
		"scheduler.replica=3", "controllers.mode=both", "metrics.schedulerPort=70000", "image.digest=sha256:1",
		"gpuDriver.kubeletDir=relative", "netDriver.cdiDir=relative", "netDriver.interfaces[0]=a/b", "netDriver.shares=0",
		"dashboard.port=80", "dashboard.hosts[0]=https://dra.example.com", "dashboard.certificate.caBundle=YQ==",
		"image.repository=REGISTRY/allot", "image.repository=a b", "scheduler.leaderElection.leaseDuration=soon", "surprise=true",
		"scheduler.featureGates.DRADeviceTaints=maybe", "scheduler.resources.limit.memory=1Gi", "scheduler.resources.limits.memory=lots",
		"scheduler.nodeSelector.pool=1", "scheduler.tolerations[0].oprator=Exists", "scheduler.config.profils=1",
		"networkPolicy.metricsFrom[0].pods=all", "image.tag=a b", "controllers.priorityClassName=Critical_",
		"scheduler.leaderElection.leaseDuration=5s", "scheduler.leaderElection.renewDeadline=2s",
		"scheduler.config.leaderElection.leaderElect=false",
		"webhook.drivers[0]=other.example.com", "webhook.failurePolicy=Warn", "webhook.timeoutSeconds=31",
		"gpuDriver.gpus.partitions=81", "gpuDriver.gpus.number=2", "gpuDriver.deviceClass.extendedResourceName=gpu",
		"webhook.enabled=true,webhook.certificate.secretName=cert", "webhook.certificate.issuer.name=a",
	} {
		if out, err := runHelm(t, nil, "template", "allot", chartDir, "--kube-version", "1.36.2", "--set", wrong); err == nil {
			t.Errorf("%s is accepted: %.200s", wrong, out)
		}
	}
}

// An empty list of peers in a NetworkPolicy admits everybody.
func TestRegressionAnEmptyListOfPeersAdmitsNobody(t *testing.T) {
	out := mustHelm(t, nil, "template", "allot", chartDir, "--kube-version", "1.36.2",
		"--set", "networkPolicy.enabled=true", "--set-json", "networkPolicy.metricsFrom=[]")
	if strings.Count(out, "ingress: []") != 2 || strings.Contains(out, "from:") {
		t.Errorf("%s", out)
	}
}

// The files under deploy/ are what the chart renders. ALLOT_UPDATE=1 writes them.
func TestManifestsAreRenderedFromTheChart(t *testing.T) {
	// A manifest that kubectl applies is not managed by Helm.
	helmOnly := regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n| +$`)
	for name, flags := range manifests {
		arguments := append([]string{"template", "allot", chartDir, "--namespace", "kube-system", "--kube-version", "1.36.2"}, flags...)
		rendered := helmOnly.ReplaceAllString(mustHelm(t, nil, arguments...), "")
		rendered = "# Rendered from charts/allot; tests/interop/chart_test.go says how. Change the chart, not this file.\n" + rendered
		path := filepath.Join("../../deploy", name)
		if os.Getenv("ALLOT_UPDATE") == "1" {
			must(t, os.WriteFile(path, []byte(rendered), 0o644))
			continue
		}
		present, err := os.ReadFile(path)
		must(t, err)
		if string(present) != rendered {
			t.Errorf("%s differs from the chart; ALLOT_UPDATE=1 writes it anew", path)
		}
	}
}

// The life of a release in a namespace that enforces the restricted Pod Security level.
func TestChart(t *testing.T) {
	c := own(t, "--in-memory", "--runtime", "simulated", "--driver", "none")
	for name, level := range map[string]string{"allot-system": "restricted", "allot-drivers": "privileged"} {
		labels := map[string]string{"pod-security.kubernetes.io/enforce": level}
		wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err := c.client.CoreV1().Namespaces().Create(within(t), wanted, metav1.CreateOptions{})
		must(t, err)
	}
	in := func(namespace string, arguments ...string) string {
		t.Helper()
		return mustHelm(t, c, append(arguments, "--namespace", namespace)...)
	}
	wait := []string{"--wait", "--timeout=110s"}

	out := in("allot-system", append([]string{"install", "allot", chartDir}, wait...)...)
	if !strings.Contains(out, "schedulerName: allot-scheduler") || strings.Contains(out, "would violate PodSecurity") {
		t.Fatalf("install: %s", out)
	}
	awaitAvailable(t, c, "allot-system", "allot-scheduler", 2)
	awaitAvailable(t, c, "allot-system", "allot-controllers", 2)

	// Drivers in a release of their own beside the first.
	flags := "scheduler.enabled=false,controllers.enabled=false,gpuDriver.enabled=true,netDriver.enabled=true"
	out = in("allot-drivers", append([]string{"install", "gpu", chartDir, "--set", flags}, wait...)...)
	if strings.Contains(out, "get leases") {
		t.Errorf("drivers elect no leader: %s", out)
	}
	_, err := c.client.ResourceV1().DeviceClasses().Get(within(t), "gpu.example.com", metav1.GetOptions{})
	must(t, err)
	_, err = c.client.ResourceV1().DeviceClasses().Get(within(t), "net.allot.dev", metav1.GetOptions{})
	must(t, err)

	cert := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cert"}, Data: map[string][]byte{"tls.crt": {}, "tls.key": {}}}
	_, err = c.client.CoreV1().Secrets("allot-system").Create(within(t), cert, metav1.CreateOptions{})
	must(t, err)
	more := "scheduler.replicas=3,controllers.mode=replace,dashboard.enabled=true,dashboard.certificate.secretName=cert," +
		"webhook.enabled=true,webhook.certificate.secretName=cert,webhook.certificate.caBundle=" +
		base64.StdEncoding.EncodeToString(c.config.CAData)
	out = in("allot-system", append([]string{"upgrade", "allot", chartDir, "--set", more}, wait...)...)
	if strings.Contains(out, "would violate PodSecurity") {
		t.Fatalf("upgrade: %s", out)
	}
	awaitAvailable(t, c, "allot-system", "allot-scheduler", 3)
	awaitAvailable(t, c, "allot-system", "allot-dashboard", 1)
	awaitAvailable(t, c, "allot-system", "allot-webhook", 2)
	in("allot-system", append([]string{"rollback", "allot", "1"}, wait...)...)
	awaitAvailable(t, c, "allot-system", "allot-scheduler", 2)

	in("allot-system", "uninstall", "allot", "--wait", "--timeout=110s")
	in("allot-drivers", "uninstall", "gpu", "--wait", "--timeout=110s")
	for _, path := range []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"/apis/rbac.authorization.k8s.io/v1/roles", "/api/v1/services", "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets",
		"/api/v1/configmaps", "/api/v1/serviceaccounts", "/apis/policy/v1/poddisruptionbudgets",
		"/apis/resource.k8s.io/v1/deviceclasses", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	} {
		raw, err := c.client.CoreV1().RESTClient().Get().AbsPath(path).
			Param("labelSelector", "app.kubernetes.io/name=allot").DoRaw(within(t))
		must(t, err)
		var list struct{ Items []json.RawMessage }
		must(t, json.Unmarshal(raw, &list))
		if len(list.Items) != 0 {
			t.Errorf("%s: %d objects are left: %s", path, len(list.Items), fmt.Sprint(string(raw[:min(len(raw), 300)])))
		}
	}
}

// The chart of each release, in charts/, is upgraded to this one, and back.
func TestChartUpgradesFromEarlierReleases(t *testing.T) {
	earlier, err := filepath.Glob("charts/allot-*.tgz")
	must(t, err)
	if len(earlier) == 0 {
		t.Fatal("charts/ has none")
	}
	c := own(t, "--in-memory", "--runtime", "simulated", "--driver", "none")
	flags := []string{"--set", "gpuDriver.enabled=true,controllers.mode=replace,networkPolicy.enabled=true", "--namespace", "kube-system",
		"--wait", "--timeout=110s"}
	for _, chart := range earlier {
		mustHelm(t, c, append([]string{"install", "allot", chart}, flags...)...)
		before := schedulerUID(t, c)
		mustHelm(t, c, append([]string{"upgrade", "allot", chartDir}, flags...)...)
		awaitAvailable(t, c, "kube-system", "allot-scheduler", 2)
		// The same object goes on: leaders change one after the other.
		if after := schedulerUID(t, c); after != before {
			t.Errorf("%s: the Deployment was replaced", chart)
		}
		mustHelm(t, c, "rollback", "allot", "1", "--namespace", "kube-system", "--wait", "--timeout=110s")
		awaitAvailable(t, c, "kube-system", "allot-scheduler", 2)
		mustHelm(t, c, "uninstall", "allot", "--namespace", "kube-system", "--wait", "--timeout=110s")
	}
}

func schedulerUID(t *testing.T, c *cluster) types.UID {
	t.Helper()
	found, err := c.client.AppsV1().Deployments("kube-system").Get(within(t), "allot-scheduler", metav1.GetOptions{})
	must(t, err)
	return found.UID
}

// The policy of the chart keeps a driver to the slices of its own node.
func TestChartKeepsADriverToItsNode(t *testing.T) {
	c := own(t, "--in-memory", "--runtime", "simulated", "--driver", "none")
	flags := "scheduler.enabled=false,controllers.enabled=false,gpuDriver.enabled=true"
	mustHelm(t, c, "install", "allot", chartDir, "--namespace", "kube-system", "--set", flags, "--wait", "--timeout=110s")
	slice := func(node string) []byte {
		return []byte(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"generateName": "s-"},
			"spec": {"driver": "gpu.example.com", "nodeName": "` + node + `",
			"pool": {"name": "` + node + `", "generation": 1, "resourceSliceCount": 1}}}`)
	}
	as := func(extra map[string][]string) *rest.Config {
		config := *c.config
		config.Impersonate.UserName = "system:serviceaccount:kube-system:allot-gpu-driver"
		config.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
		config.Impersonate.Extra = extra
		return &config
	}
	node := map[string][]string{"authentication.kubernetes.io/node-name": {"node-0"}}
	for _, test := range []struct {
		extra map[string][]string
		node  string
		part  string
	}{
		{node, "node-0", ""},
		{node, "node-1", "the driver on node 'node-0' may not change the slices of node 'node-1'"},
		{nil, "node-0", "the token names no node"},
	} {
		client, err := kubernetes.NewForConfig(as(test.extra))
		must(t, err)
		err = client.ResourceV1().RESTClient().Post().AbsPath("/apis/resource.k8s.io/v1/resourceslices").
			Body(slice(test.node)).SetHeader("Content-Type", "application/json").Do(within(t)).Error()
		switch {
		case test.part == "" && err != nil:
			t.Errorf("%+v: %v", test, err)
		case test.part != "" && (err == nil || !strings.Contains(err.Error(), test.part)):
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// Before 1.36 the right to the status of claims is one to the allocations of all tenants.
func TestRegressionADriverChangesNoAllocation(t *testing.T) {
	c := own(t, "--in-memory", "--runtime", "simulated", "--driver", "none", "--emulated-version", "1.35")
	flags := "scheduler.enabled=false,controllers.enabled=false,gpuDriver.enabled=true,gpuDriver.deviceStatus=true"
	mustHelm(t, c, "install", "allot", chartDir, "--namespace", "kube-system", "--set", flags, "--wait", "--timeout=110s")
	claims := "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	claim := `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {
		"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}]}}}`
	post := c.client.ResourceV1().RESTClient().Post().AbsPath(claims)
	must(t, post.Body([]byte(claim)).SetHeader("Content-Type", "application/json").Do(within(t)).Error())
	patch := func(config *rest.Config, status string) error {
		client, err := kubernetes.NewForConfig(config)
		must(t, err)
		patch := client.ResourceV1().RESTClient().Patch(types.MergePatchType).AbsPath(claims + "/c/status")
		return patch.Body([]byte(`{"status": ` + status + `}`)).Do(within(t)).Error()
	}
	result := `{"request": "a", "driver": "gpu.example.com", "device": "gpu-0", "pool": `
	must(t, patch(c.config, `{"allocation": {"devices": {"results": [`+result+`"node-0"}, `+result+`"node-1"}]}}}`))
	driver := *c.config
	driver.Impersonate.UserName = "system:serviceaccount:kube-system:allot-gpu-driver"
	driver.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	driver.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node-0"}}
	device := `{"devices": [{"driver": "gpu.example.com", "device": "gpu-0", "data": {"a": 1}, "pool": `
	for _, test := range []struct{ status, part string }{
		{device + `"node-0"}]}`, ""},
		{device + `"node-1"}]}`, "only report the status of its own devices"},
		{`{"allocation": null, "devices": null}`, "may not allocate, deallocate or reserve claims"},
		{`{"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}`, "may not allocate, deallocate or reserve claims"},
	} {
		err := patch(&driver, test.status)
		if (err == nil) != (test.part == "") || err != nil && !strings.Contains(err.Error(), test.part) {
			t.Errorf("%s: %v", test.status, err)
		}
	}
}
