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

// The drivers of modelled hardware pass the kit; the GPU driver does so in the tests of the kit.
func TestOwnDriversConformance(t *testing.T) {
	allot := os.Getenv("ALLOT_BIN")
	drivers := map[string]string{
		"cpu.example.com": "model --hardware example-cpu",
		"gpu.nvidia.com":  "model --hardware gpu-shared",
	}
	for driver, command := range drivers {
		t.Run(driver, func(t *testing.T) {
			command := "'" + allot + "' driver " + command +
				" --kubeconfig {kubeconfig} --node-name {node} --kubelet-dir {kubelet} --cdi-dir {cdi}"
			arguments := []string{allot, "conformance", "driver", "--command", command, "--jobs", "12", "--cycles", "20"}
			kit := exec.Command(arguments[0], arguments[1:]...)
			out, err := kit.CombinedOutput()
			if err != nil || !strings.Contains(string(out), driver+": ") {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", out[strings.LastIndex(string(out), driver+": "):])
		})
	}
}
