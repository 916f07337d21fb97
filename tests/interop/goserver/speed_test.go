package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// A pod with a claim from a template costs its creation and six writes: the claim, its name in the pod's status, the
// finalizer, the allocation with the reservation, the binding, and the event, which may come later.
func TestWritesOfAPod(t *testing.T) {
	c := newCluster(t)
	c.run(1)
	bench := exec.Command(os.Getenv("ALLOT_BIN"), "bench", "scheduling", "--kubeconfig", c.dir+"/kubeconfig", "-o", "json",
		"--workload", "5000pods_500nodes", "--nodes", "50", "--init", "0", "--pods", "300")
	bench.Stderr = os.Stderr
	out, err := bench.Output()
	must(t, err)
	var report struct {
		PodsPerSecond   float64 `json:"podsPerSecond"`
		APIWritesPerPod float64 `json:"apiWritesPerPod"`
	}
	must(t, json.Unmarshal(out, &report))
	t.Logf("%.0f pods per second, %.2f writes for each", report.PodsPerSecond, report.APIWritesPerPod)
	if report.APIWritesPerPod > 7.1 {
		t.Errorf("%.2f writes for each pod", report.APIWritesPerPod)
	}
}
