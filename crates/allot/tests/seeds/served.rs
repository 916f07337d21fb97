//! What each release serves, and how it refuses what it does not: items 1, 3, 26, 27, 34 to 37, 50, 51 and 67.

use super::harness::Cluster;

const NO_TYPE: &str = "error: the server doesn't have a resource type \"resourceclasses\"\n";

/// The kinds of `resource.k8s.io` and their version, as discovery lists them.
fn kinds(cluster: &Cluster) -> Vec<(String, String)> {
    let rows = cluster.rows("api-resources --api-group=resource.k8s.io --no-headers");
    let kind = |row: Vec<String>| {
        let [_, version, _, kind] = row.as_slice() else {
            panic!("{row:?}");
        };
        (kind.clone(), version.clone())
    };
    rows.into_iter().map(kind).collect()
}

/// With these flags exactly these kinds are served, in this version, and nothing is there yet.
fn serves(flags: &str, version: &str, expected: &[&str]) {
    let Some(cluster) = Cluster::up(flags) else {
        return;
    };
    let version = format!("resource.k8s.io/{version}");
    let expected: Vec<_> = expected
        .iter()
        .map(|kind| ((*kind).to_owned(), version.clone()))
        .collect();
    assert_eq!(kinds(&cluster), expected, "{flags}");
    let printed = cluster.run("get resourceclasses");
    assert_eq!(
        (printed.success, printed.err.as_str()),
        (true, "No resources found\n"),
        "{flags}"
    );
}

/// With these flags there are no classes to ask for.
fn serves_none(flags: &str) {
    let Some(cluster) = Cluster::up(flags) else {
        return;
    };
    assert_eq!(cluster.fails("get resourceclasses"), NO_TYPE, "{flags}");
    assert_eq!(kinds(&cluster), [], "{flags}");
}

#[test]
fn seed_003_item_01_feature_and_version_are_off_until_both_are_asked_for() {
    serves_none("--emulated-version 1.26");
    serves_none("--emulated-version 1.26 --feature-gates=DynamicResourceAllocation=true");
    // With the version alone there are classes, but pods cannot ask for any.
    let Some(cluster) =
        Cluster::up("--emulated-version 1.26 --runtime-config=resource.k8s.io/v1alpha1=true")
    else {
        return;
    };
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: none, resources: {claims: [{name: cat}]}}]
  resourceClaims: [{name: cat, source: {resourceClaimName: cat}}]
";
    let created = cluster.create(pod);
    assert_eq!(created.out, "pod/p created\n", "{created:?}");
    let claims = "get pod p -o jsonpath={.spec.resourceClaims}{.spec.containers[0].resources}";
    assert_eq!(cluster.ok(claims), "{}");
}

#[test]
fn seed_003_item_03_the_group_has_four_kinds() {
    serves(
        "--emulated-version 1.26 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1alpha1",
        "v1alpha1",
        &[
            "PodScheduling",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceClass",
        ],
    );
}

#[test]
fn seed_004_item_27_pod_scheduling_is_called_pod_scheduling_context() {
    serves(
        "--emulated-version 1.27 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1alpha2=true",
        "v1alpha2",
        &[
            "PodSchedulingContext",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceClass",
        ],
    );
}

#[test]
fn seed_004_item_34_no_resources_found_with_the_feature_on() {
    let kinds = [
        "PodSchedulingContext",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceClass",
    ];
    serves(
        "--emulated-version 1.27 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1alpha2=true",
        "v1alpha2",
        &kinds,
    );
}

#[test]
fn seed_004_item_35_no_such_type_with_the_feature_off() {
    serves_none("--emulated-version 1.27");
}

#[test]
fn seed_001_item_37_the_group_has_three_kinds_more() {
    serves(
        "--emulated-version 1.30 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1alpha2=true",
        "v1alpha2",
        &[
            "PodSchedulingContext",
            "ResourceClaimParameters",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceClass",
            "ResourceClassParameters",
            "ResourceSlice",
        ],
    );
}

#[test]
fn seed_001_item_51_the_check_of_1_30_answers_as_printed() {
    serves_none("--emulated-version 1.30");
}

#[test]
fn seed_002_item_67_1_32_needs_its_beta_switched_on() {
    let kinds_of = |flags: &str| Cluster::up(flags).map(|cluster| kinds(&cluster));
    let Some(off) = kinds_of("--emulated-version 1.32") else {
        return;
    };
    assert_eq!(off, []);
    let on = kinds_of("--emulated-version 1.32 --feature-gates=DynamicResourceAllocation=true --runtime-config=resource.k8s.io/v1beta1=true").expect("kubectl is there");
    let kinds: Vec<_> = on.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice"
        ]
    );
    assert!(
        on.iter()
            .all(|(_, version)| version == "resource.k8s.io/v1beta1"),
        "{on:?}"
    );
}

#[test]
fn regression_pod_templates_with_the_older_form_of_claims_are_patched() {
    let Some(cluster) = Cluster::up("--emulated-version 1.29 --dra --driver none --nodes 0") else {
        return;
    };
    let manifest = |template: &str| {
        let content = format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: demo}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: demo}}}}
  template:
    metadata: {{labels: {{app: demo}}}}
    spec:
      containers: [{{name: c, image: x, resources: {{claims: [{{name: cat}}]}}}}]
      resourceClaims: [{{name: cat, source: {{resourceClaimTemplateName: {template}}}}}]
"
        );
        cluster.file("demo.yaml", &content)
    };
    let names = || {
        cluster.ok("get deployment demo -o jsonpath={.spec.template.spec.resourceClaims[*].resourceClaimTemplateName}")
    };
    // The second time kubectl patches, strategically, with strict validation.
    for template in ["one", "one", "two"] {
        cluster.ok(&format!("apply -f {}", manifest(template)));
        assert_eq!(names(), template);
    }
    cluster.ok(&format!(
        "apply --server-side --force-conflicts -f {}",
        manifest("three")
    ));
    assert_eq!(names(), "three");
    for (kind, patch) in [
        (
            "merge",
            r#"{"spec":{"template":{"spec":{"resourceClaims":[{"name":"cat","source":{"resourceClaimTemplateName":"four"}}]}}}}"#,
        ),
        (
            "json",
            r#"[{"op":"replace","path":"/spec/template/spec/resourceClaims/0","value":{"name":"cat","source":{"resourceClaimTemplateName":"five"}}}]"#,
        ),
    ] {
        cluster.ok(&format!("patch deployment demo --type={kind} -p {patch}"));
    }
    assert_eq!(names(), "five");
}
