//! What commands answer to a likely mistake: what is wrong, and what to do about it. None of them needs a cluster.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::harness::{ALLOT, Directory, directory};

const POD: &str = "\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
";

/// A directory with files, in which commands run. Nothing of the machine says where a cluster is.
struct Files(Directory);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = directory();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).expect("written");
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn allot(&self, line: &str) -> Output {
        Command::new(ALLOT)
            .args(line.split(' '))
            .current_dir(self.0.path())
            .env("HOME", self.0.path())
            .env("XDG_DATA_HOME", self.0.path())
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .output()
            .expect("the binary starts")
    }

    /// The command fails with this code, and says this on standard output or error.
    fn refused(&self, line: &str, code: i32, expected: &str) {
        let output = self.allot(line);
        let told = [&*output.stdout, &*output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains(expected), "{line}: {told}");
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
    }

    /// What the command prints; it succeeds.
    fn answered(&self, line: &str) -> String {
        let output = self.allot(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// Objects of built-in groups were neither checked by `lint` and `simulate`, nor their kinds by `explain`.
#[test]
fn regression_mistakes_in_manifests_are_found_by_every_command() {
    let kind = "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: d}\n";
    let field = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containrs: []}\n";
    let files = Files::new(&[
        ("kind.yaml", kind),
        ("field.yaml", field),
        ("empty.yaml", ""),
    ]);
    let is_kind =
        "Deploymnt d: kind: there is no kind Deploymnt in apps/v1; did you mean Deployment?";
    files.refused(
        "lint kind.yaml",
        1,
        &format!("kind.yaml:2: refused: {is_kind}"),
    );
    files.refused(
        "simulate -f kind.yaml",
        1,
        &format!("kind.yaml:2: {is_kind}"),
    );
    let is_field = "unknown field \"spec.containrs\"; did you mean containers?";
    files.refused("lint -f field.yaml", 1, is_field);
    files.refused("simulate -f field.yaml", 1, is_field);
    for command in ["lint", "convert", "simulate -f"] {
        let expected = "error: no manifest in empty.yaml\n";
        files.refused(&format!("{command} empty.yaml"), 1, expected);
    }
    let snapshot = r#"{"kind": "List", "items": []}"#;
    std::fs::write(files.path("cluster.json"), snapshot).expect("written");
    let file = "error: kind.yaml is a file: `allot explain -f kind.yaml` explains the pods in it\n";
    files.refused("explain kind.yaml --from cluster.json", 2, file);
    files.refused("explain -f kind.yaml --from cluster.json", 2, is_kind);
}

/// A simulation without nodes printed zeros.
#[test]
fn a_simulation_has_nodes_and_takes_a_workload_that_there_is_already() {
    let files = Files::new(&[("pod.yaml", POD)]);
    let expected = "error: there is no node for the pods: give a cluster with --from, or nodes with --hardware";
    files.refused("simulate -f pod.yaml", 1, expected);
    let placed = files.answered("simulate -f pod.yaml --hardware h100=1");
    assert!(placed.contains("placed 1,"), "{placed}");
    assert!(
        placed.contains("default/p on h100-0 with gpu.nvidia.com/h100-0/gpu-0"),
        "{placed}"
    );
    // The template is in the cluster as well as in the file, as after `kubectl apply`.
    let (template, _) = POD.split_once("---\n").expect("two documents");
    std::fs::write(files.path("cluster.yaml"), template).expect("written");
    let again = files.answered("simulate --from cluster.yaml -f pod.yaml --hardware h100=1");
    assert!(again.contains("placed 1,"), "{again}");
}

#[test]
fn lists_have_the_same_forms_everywhere() {
    let files = Files::new(&[]);
    let list = files.answered("hardware list -o json");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let models = list.as_array().expect("a list");
    assert!(
        models.iter().any(|model| model["name"] == "h100-mig"),
        "{list}"
    );
    let yaml = files.answered("hardware list -o yaml");
    assert!(yaml.contains("name: h100-mig\n"), "{yaml}");
    assert_eq!(files.answered("image list --root-dir . -o yaml"), "[]\n");
    let status = files.allot("status -o yaml");
    let status = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(status.contains("running: false\n"), "{status}");
    let cel = files.answered("cel true -o yaml");
    assert!(
        cel.starts_with("---\n") && cel.contains("type: bool\n"),
        "{cel}"
    );
}

#[test]
fn the_store_is_that_of_the_default_cluster() {
    let files = Files::new(&[]);
    let expected = format!(
        "{}: there is no store here",
        files.path("allot/store.redb").display()
    );
    files.refused("store check", 1, &expected);
}

#[test]
fn a_name_of_a_driver_without_a_domain_is_answered_with_one() {
    let files = Files::new(&[]);
    let expected = "such as leds.example.com";
    files.refused("driver new led-driver --driver-name leds", 1, expected);
    assert!(!files.path("led-driver").exists());
}
