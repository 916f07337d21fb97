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
