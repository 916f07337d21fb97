package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A driver on the official helper passes the conformance kit but for what plugin/conformance.txt names: the helper leaves
// that to the driver. A case that fails beside these, or passes all the same, is a fault of the kit or news of the helper.
func TestGoDriverConformance(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin")
	if out, err := exec.Command("go", "build", "-o", plugin, "./plugin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := "KUBECONFIG={kubeconfig} NODE_NAME={node} PLUGINS_DIR={plugins} REGISTRY_DIR={registry} CDI_DIR={cdi} " + plugin
	kit := exec.Command(os.Getenv("ALLOT_BIN"), "conformance", "driver", "--command", command,
		"--expected-failures", "plugin/conformance.txt", "--jobs", "12", "--cycles", "20")
	out, err := kit.CombinedOutput()
	if err != nil || !strings.Contains(string(out), imageDriver+": ") {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out[strings.LastIndex(string(out), imageDriver+": "):])
}

// Links of a network namespace for the network driver; their other ends are not its devices.
const links = `ip link set lo up || exit 77
for i in 0 1 2 3; do
  ip link add "net$i" type veth peer name "peer$i" && ip link set "net$i" up && ip link set "peer$i" up || exit 77
done
exec "$@"`

// The network driver and the drivers of modelled hardware pass the kit; the GPU driver does so in the tests of the kit.
func TestOwnDriversConformance(t *testing.T) {
	allot := os.Getenv("ALLOT_BIN")
	drivers := map[string]string{
		"net.allot.dev":   "net node --interface 'net*'",
		"cpu.example.com": "model --hardware example-cpu",
		"gpu.nvidia.com":  "model --hardware gpu-shared",
	}
	for driver, command := range drivers {
		t.Run(driver, func(t *testing.T) {
			command := "'" + allot + "' driver " + command +
				" --kubeconfig {kubeconfig} --node-name {node} --kubelet-dir {kubelet} --cdi-dir {cdi}"
			arguments := []string{allot, "conformance", "driver", "--command", command, "--jobs", "12", "--cycles", "20"}
			if driver == "net.allot.dev" {
				namespace := []string{"unshare", "--net", "sh", "-c", links, "sh"}
				if os.Geteuid() != 0 {
					namespace = []string{"unshare", "--net", "--map-root-user", "sh", "-c", links, "sh"}
				}
				arguments = append(namespace, arguments...)
			}
			kit := exec.Command(arguments[0], arguments[1:]...)
			out, err := kit.CombinedOutput()
			if kit.ProcessState != nil && kit.ProcessState.ExitCode() == 77 {
				t.Skipf("no network namespace with links: %s", out)
			}
			if err != nil || !strings.Contains(string(out), driver+": ") {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", out[strings.LastIndex(string(out), driver+": "):])
		})
	}
}
