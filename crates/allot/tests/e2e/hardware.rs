//! Modelled hardware: each entry of the catalogue is allocated by manifests like those of its vendor's documentation, on
//! simulated nodes, by the real scheduler.

use std::collections::BTreeSet;
use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use super::harness::{ALLOT, Up};

/// A cluster of simulated nodes.
pub(super) async fn up(hardware: &str) -> Up {
    Up::in_memory_with(&["--runtime", "simulated", "--hardware", hardware]).await
}

/// A request of a claim: name, class, count, and a selector if any.
pub(super) fn request(name: &str, class: &str, count: usize, selector: &str) -> Value {
    let mut request = json!({"name": name, "exactly": {"deviceClassName": class, "count": count}});
    if !selector.is_empty() {
        request["exactly"]["selectors"] = json!([{"cel": {"expression": selector}}]);
    }
    request
}

/// Creates a pod with a claim of the same name.
pub(super) async fn pod(up: &Up, name: &str, devices: Value) {
    pod_with(up, name, devices, json!({})).await;
}

/// The same, with more members of the pod's spec.
pub(super) async fn pod_with(up: &Up, name: &str, devices: Value, more: Value) {
    let claims: Api<ResourceClaim> = Api::default_namespaced(up.client.clone());
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": devices}});
    let claim = serde_json::from_value(claim).expect("a claim");
    claims
        .create(&PostParams::default(), &claim)
        .await
        .expect("created");
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "test"}},
        "spec": {
            "containers": [{"name": "ctr", "image": "x", "resources": {"claims": [{"name": "devices"}]}}],
            "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
        },
    });
    for (member, value) in more.as_object().into_iter().flatten() {
        pod["spec"][member] = value.clone();
    }
    let pod = serde_json::from_value(pod).expect("a pod");
    up.pods()
        .create(&PostParams::default(), &pod)
        .await
        .expect("created");
}

/// The devices of a claim: request, node or pool, and device.
pub(super) async fn allocated(up: &Up, claim: &str) -> Vec<(String, String, String)> {
    let claims: Api<ResourceClaim> = Api::default_namespaced(up.client.clone());
    let claim = claims.get(claim).await.expect("the claim");
    let allocation = claim.status.and_then(|status| status.allocation);
    let results = allocation.and_then(|allocation| allocation.devices?.results);
    let results = results.unwrap_or_default().into_iter();
    results
        .map(|result| (result.request, result.pool, result.device))
        .collect()
}

/// Waits until the scheduler has said that a pod fits nowhere.
pub(super) async fn unschedulable(up: &Up, pod: &str) {
    up.wait_until(pod, "become unschedulable", super::scarcity::unschedulable)
        .await;
}

const MIG: &str = "mig.nvidia.com";

fn profile(name: &str) -> String {
    format!("device.attributes['gpu.nvidia.com'].profile == '{name}'")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_entry_is_accepted_by_the_api_server() {
    let listed = Command::new(ALLOT)
        .args(["hardware", "list"])
        .output()
        .expect("it starts");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 14, "{names:?}");
    // Two of each: what depends on the index of a node is there as well.
    let hardware: Vec<String> = names.iter().map(|name| format!("{name}=2")).collect();
    let up = up(&hardware.join(",")).await;
    let slices: Api<ResourceSlice> = Api::all(up.client.clone());
    let slices = slices
        .list(&ListParams::default())
        .await
        .expect("slices")
        .items;
    for number in 0..names.len() * 2 {
        let node = format!("node-{number}");
        let name = names[number / 2];
        let shown = Command::new(ALLOT)
            .args(["hardware", "show", name, "-o", "json", "--node", &node])
            .args(["--index", &(number % 2).to_string()])
            .output()
            .expect("it starts");
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let devices = |spec: &Value| {
            let devices = spec["devices"].as_array().cloned().unwrap_or_default();
            devices
                .into_iter()
                .map(|device| device["name"].as_str().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        let expected: BTreeSet<String> = shown["items"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|item| item["kind"] == "ResourceSlice")
            .flat_map(|item| devices(&item["spec"]))
            .collect();
        let stored: BTreeSet<String> = slices
            .iter()
            .filter(|slice| slice.spec.node_name.as_deref() == Some(node.as_str()))
            .flat_map(|slice| devices(&serde_json::to_value(&slice.spec).expect("JSON")))
            .collect();
        assert!(!stored.is_empty(), "{name}");
        assert_eq!(stored, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h100_is_divided_as_the_hardware_permits() {
    let up = up("h100-mig").await;
    // A 3g and as many 1g as fit beside it on one GPU.
    let beside = |count: usize| {
        json!({
            "requests": [request("big", MIG, 1, &profile("3g.40gb")), request("small", MIG, count, &profile("1g.10gb"))],
            "constraints": [{"matchAttribute": "gpu.nvidia.com/parentUUID"}],
        })
    };
    pod(&up, "too-many", beside(7)).await;
    unschedulable(&up, "too-many").await;
    pod(&up, "beside", beside(4)).await;
    up.running("beside").await;
    let devices = allocated(&up, "beside").await;
    let mut places: Vec<&str> = devices
        .iter()
        .map(|(_, _, device)| device.as_str())
        .collect();
    places.sort_unstable();
    let gpu = &places[0][..5];
    let expected = [
        "1g10gb-19-0",
        "1g10gb-19-1",
        "1g10gb-19-2",
        "1g10gb-19-3",
        "3g40gb-9-4",
    ];
    assert_eq!(places, expected.map(|place| format!("{gpu}-mig-{place}")));

    // On one GPU there are seven 1g, and nothing else then.
    let seven = json!({
        "requests": [request("small", MIG, 7, &profile("1g.10gb"))],
        "constraints": [{"matchAttribute": "gpu.nvidia.com/parentUUID"}],
    });
    pod(&up, "seven", seven).await;
    up.running("seven").await;
    // Seven 1g and a 3g on different GPUs.
    let apart = json!({"requests": [request("big", MIG, 1, &profile("3g.40gb")), request("small", MIG, 7, &profile("1g.10gb"))]});
    pod(&up, "apart", apart).await;
    up.running("apart").await;
    // A whole GPU is one that is not divided.
    pod(
        &up,
        "whole",
        json!({"requests": [request("gpu", "gpu.nvidia.com", 1, "")]}),
    )
    .await;
    up.running("whole").await;
    let whole = allocated(&up, "whole").await[0].2.clone();
    for divided in ["beside", "seven", "apart"] {
        for (_, _, device) in allocated(&up, divided).await {
            assert!(
                !device.starts_with(&format!("{whole}-")),
                "{divided} has {device} of {whole}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a100_serves_four_partitions_of_one_gpu() {
    let up = up("a100-mig").await;
    let four = json!({
        "requests": [
            request("mig-1g-5gb-0", MIG, 1, &profile("1g.5gb")),
            request("mig-1g-5gb-1", MIG, 1, &profile("1g.5gb")),
            request("mig-2g-10gb", MIG, 1, &profile("2g.10gb")),
            request("mig-3g-20gb", MIG, 1, &profile("3g.20gb")),
        ],
        "constraints": [{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}],
    });
    pod(&up, "four", four).await;
    up.running("four").await;
    let devices = allocated(&up, "four").await;
    let gpus: BTreeSet<&str> = devices.iter().map(|(_, _, device)| &device[..5]).collect();
    assert_eq!((devices.len(), gpus.len()), (4, 1), "{devices:?}");
    // No GPU is published as a whole.
    pod(
        &up,
        "whole",
        json!({"requests": [request("gpu", "gpu.nvidia.com", 1, "")]}),
    )
    .await;
    unschedulable(&up, "whole").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eighteen_trays_are_one_nvlink_domain() {
    let up = up("gb200-nvl72=36").await;
    const CLIQUE: &str = "nvidia.com/gpu.clique";
    let nodes: Api<Node> = Api::all(up.client.clone());
    let nodes = nodes
        .list(&ListParams::default())
        .await
        .expect("nodes")
        .items;
    let clique = |node: &Node| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(CLIQUE))
            .cloned()
    };
    let cliques: BTreeSet<_> = nodes.iter().map(clique).collect();
    assert_eq!((nodes.len(), cliques.len()), (36, 2));

    // As a ComputeDomain's workload: all GPUs of a node and its IMEX channel, everything in one domain.
    let together = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": CLIQUE, "labelSelector": {"matchLabels": {"app": "test"}}},
    ]}}});
    let devices = json!({
        "requests": [
            request("gpu", "gpu.nvidia.com", 4, ""),
            request("channel", "compute-domain-default-channel.nvidia.com", 1, ""),
            request("nic", "dranet.net", 8, "device.attributes[\"dra.net\"].rdma == true && device.attributes[\"dra.net\"].virtual == false"),
        ],
        "config": [{"requests": ["channel"], "opaque": {"driver": "compute-domain.nvidia.com", "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainChannelConfig",
            "domainID": "5d9c8a2e-0000-4000-8000-000000000000",
        }}}],
    });
    for worker in 0..18 {
        pod_with(
            &up,
            &format!("worker-{worker}"),
            devices.clone(),
            together.clone(),
        )
        .await;
    }
    let mut used = BTreeSet::new();
    for worker in 0..18 {
        let name = format!("worker-{worker}");
        up.running(&name).await;
        let pod = up.pods().get(&name).await.expect("the pod");
        used.insert(pod.spec.and_then(|spec| spec.node_name));
    }
    let domains: BTreeSet<_> = nodes
        .iter()
        .filter(|node| used.contains(&node.metadata.name))
        .map(clique)
        .collect();
    assert_eq!((used.len(), domains.len()), (18, 1), "{used:?}");
    // The domain is full, and the other one is none of its.
    pod_with(&up, "worker-18", devices, together).await;
    unschedulable(&up, "worker-18").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_and_a_nic_are_on_one_pcie_root() {
    let up = up("h100+rdma-nic").await;
    let devices = json!({
        "requests": [
            request("gpu", "gpu.nvidia.com", 1, ""),
            request("nic", "dranet", 1, "device.attributes[\"dra.net\"].rdma == true"),
        ],
        "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
    });
    let names: Vec<String> = (0..8).map(|number| format!("aligned-{number}")).collect();
    for name in &names {
        pod(&up, name, devices.clone()).await;
    }
    let slices: Api<ResourceSlice> = Api::all(up.client.clone());
    let slices = slices
        .list(&ListParams::default())
        .await
        .expect("slices")
        .items;
    let root = |name: &str| {
        let devices = slices
            .iter()
            .flat_map(|slice| slice.spec.devices.iter().flatten());
        let device = devices
            .into_iter()
            .find(|device| device.name == name)
            .expect("a device");
        let root =
            &device.attributes.as_ref().expect("attributes")["resource.kubernetes.io/pcieRoot"];
        root.string.clone().expect("a text")
    };
    let mut roots = BTreeSet::new();
    for name in &names {
        up.running(name).await;
        let got = allocated(&up, name).await;
        let own: BTreeSet<String> = got.iter().map(|(_, _, device)| root(device)).collect();
        assert_eq!((got.len(), own.len()), (2, 1), "{got:?}");
        roots.extend(own);
    }
    assert_eq!(roots.len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_entries_are_allocated_as_their_documents_do() {
    let up = up(
        "mi300x=1,mi300x-cpx=1,gaudi3=1,tpu-v5e=1,sriov=1,nvme=1,cpu=1,gpu-shared=1,example-gpu=1",
    )
    .await;
    let amd = |kind: &str| format!("device.attributes[\"gpu.amd.com\"].type == \"{kind}\"");
    let cases = [
        (
            "amd",
            json!({"requests": [request("gpu", "gpu.amd.com", 1, &amd("amdgpu"))]}),
            1,
        ),
        (
            "amd-same-parent",
            json!({
                "requests": [
                    request("p0", "gpu.amd.com", 1, &amd("amdgpu-partition")),
                    request("p1", "gpu.amd.com", 1, &amd("amdgpu-partition")),
                ],
                "constraints": [{"matchAttribute": "gpu.amd.com/parentDeviceID", "requests": ["p0", "p1"]}],
            }),
            2,
        ),
        (
            "amd-other-parents",
            json!({
                "requests": [request("p", "gpu.amd.com", 8, &amd("amdgpu-partition"))],
                "constraints": [{"distinctAttribute": "gpu.amd.com/parentDeviceID"}],
            }),
            8,
        ),
        (
            "gaudi",
            json!({"requests": [request("gaudi", "gaudi.intel.com", 2, "device.attributes[\"gaudi.intel.com\"].model == 'Gaudi3'")]}),
            2,
        ),
        (
            "tpu",
            json!({"requests": [{"name": "tpu", "exactly": {
                "deviceClassName": "tpu.google.com", "allocationMode": "All",
                "selectors": [{"cel": {"expression": "device.attributes[\"tpu.google.com\"].accelerator == \"tpu-v5-lite-podslice\""}}],
            }}]}),
            4,
        ),
        (
            "vf",
            json!({"requests": [request("vf", "sriovnetwork.k8snetworkplumbingwg.io", 2,
                "device.attributes[\"sriovnetwork.k8snetworkplumbingwg.io\"].resourceName == \"vf-fast\"")]}),
            2,
        ),
        (
            "drive",
            json!({"requests": [request("drive", "dra.nvme", 1, "device.capacity[\"dra.nvme\"].size.compareTo(quantity(\"3Ti\")) > 0")]}),
            1,
        ),
        (
            "cpu-and-memory",
            json!({
                "requests": [
                    {"name": "cpu", "exactly": {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "16"}}}},
                    {"name": "memory", "exactly": {"deviceClassName": "dra.memory", "capacity": {"requests": {"size": "64Gi"}}}},
                    {"name": "pages", "exactly": {"deviceClassName": "dra.hugepages-1g", "capacity": {"requests": {"size": "4Gi"}}}},
                ],
                "constraints": [{"matchAttribute": "resource.kubernetes.io/numaNode"}],
            }),
            3,
        ),
        (
            "example",
            json!({"requests": [request("gpu", "gpu.example.com", 2, "")]}),
            2,
        ),
    ];
    for (name, devices, count) in cases {
        pod(&up, name, devices).await;
        up.running(name).await;
        assert_eq!(allocated(&up, name).await.len(), count, "{name}");
    }
    // Four shares of a GPU, by memory.
    let share = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": "20Gi"}}}}]});
    let mut devices = Vec::new();
    for number in 0..4 {
        let name = format!("share-{number}");
        pod(&up, &name, share.clone()).await;
        up.running(&name).await;
        devices.extend(
            allocated(&up, &name)
                .await
                .into_iter()
                .map(|(_, _, device)| device),
        );
    }
    // Three times 20Gi fit into 81559Mi, the fourth is on the next GPU.
    let used: BTreeSet<_> = devices.iter().collect();
    assert!(used.len() < devices.len(), "a GPU is shared: {devices:?}");
}
