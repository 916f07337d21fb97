//! What each demo of `examples/demos` shows, step by step.

use serde_json::Value;

/// A demo.
pub struct Demo {
    /// Its first manifest, which names the command that starts its cluster.
    pub file: &'static str,
    /// What happens then.
    pub steps: &'static [Step],
}

/// An action, or a check, which may wait. Containers are given by pod and name.
pub enum Step {
    /// Applies a further manifest.
    Apply(&'static str),
    /// Deletes the objects of a manifest.
    Delete(&'static str),
    /// Runs `allot` with these arguments on the cluster.
    Allot(&'static [&'static str]),
    /// Pods start to run.
    Run(&'static [&'static str]),
    /// A pod gets no devices.
    Waits(&'static str),
    /// A pod is evicted.
    Evicted(&'static str),
    /// A pod runs, and nothing deletes it.
    Stays(&'static str),
    /// A pod meets a condition, which is described by a verb.
    Pod(&'static str, &'static str, fn(&Value) -> bool),
    /// A container has this number of devices.
    Devices(&'static str, &'static str, usize),
    /// Containers have the same devices.
    Same(&'static [(&'static str, &'static str)]),
    /// No two containers have a device in common.
    Different(&'static [(&'static str, &'static str)]),
    /// The environment of a container has lines that end like these.
    Environment(&'static str, &'static str, &'static [&'static str]),
    /// A check of the claims of pods.
    Claims(&'static [&'static str], fn(&[Value])),
    /// Pods without a toleration no longer get a GPU: the scheduler observes a rule some time after it was applied.
    Tainted(&'static str),
}

use Step::*;

/// Every demo.
pub const DEMOS: &[Demo] = &[
    Demo {
        file: "demos/admin-access.yaml",
        steps: &[
            Run(&["admin-tenant", "monitor"]),
            Devices("admin-tenant", "ctr", 1),
            Environment("admin-tenant", "ctr", &["DRA_ADMIN_ACCESS=false"]),
            Devices("monitor", "ctr", 8),
            Environment("monitor", "ctr", &["DRA_ADMIN_ACCESS=true"]),
        ],
    },
    Demo {
        file: "demos/multiple-requests.yaml",
        steps: &[
            Run(&["multiple-requests"]),
            Devices("multiple-requests", "ctr", 2),
            Claims(&["multiple-requests"], |claims| {
                let requests = requests(claims);
                assert_eq!(requests, ["left", "right"]);
            }),
        ],
    },
    Demo {
        file: "demos/sharing-strategies.yaml",
        steps: &[
            Run(&["sharing-strategies"]),
            Same(&[
                ("sharing-strategies", "turns-0"),
                ("sharing-strategies", "turns-1"),
            ]),
            Same(&[
                ("sharing-strategies", "part-0"),
                ("sharing-strategies", "part-1"),
            ]),
            Different(&[
                ("sharing-strategies", "turns-0"),
                ("sharing-strategies", "part-0"),
            ]),
            Environment(
                "sharing-strategies",
                "turns-1",
                &["_SHARING_STRATEGY=TimeSlicing", "_TIMESLICE_INTERVAL=Short"],
            ),
            Environment(
                "sharing-strategies",
                "part-1",
                &["_SHARING_STRATEGY=SpacePartitioning", "_PARTITION_COUNT=4"],
            ),
        ],
    },
    Demo {
        file: "demos/initcontainer-shared-gpu.yaml",
        steps: &[
            Run(&["initcontainer-shared-gpu"]),
            Devices("initcontainer-shared-gpu", "serve", 1),
            Same(&[
                ("initcontainer-shared-gpu", "prepare"),
                ("initcontainer-shared-gpu", "serve"),
            ]),
        ],
    },
    Demo {
        file: "demos/extended-resource.yaml",
        steps: &[
            Run(&["extended-by-class", "extended-by-name"]),
            Devices("extended-by-class", "ctr", 1),
            Different(&[("extended-by-class", "ctr"), ("extended-by-name", "ctr")]),
            Claims(&["extended-by-class"], |claims| assert_eq!(claims.len(), 1)),
            Claims(&["extended-by-name"], |claims| assert_eq!(claims.len(), 1)),
        ],
    },
    Demo {
        file: "demos/prioritized-list.yaml",
        steps: &[
            Run(&["falls-back", "gets-the-best"]),
            Devices("falls-back", "ctr", 1),
            Different(&[("falls-back", "ctr"), ("gets-the-best", "ctr")]),
            Claims(&["falls-back"], |claims| {
                assert_eq!(requests(claims), ["gpu/any"]);
            }),
            Claims(&["gets-the-best"], |claims| {
                assert_eq!(requests(claims), ["gpu/large"]);
            }),
        ],
    },
    Demo {
        file: "demos/subrequest-config.yaml",
        steps: &[
            Run(&["subrequest-config"]),
            Claims(&["subrequest-config"], |claims| {
                assert_eq!(requests(claims), ["gpu/any"]);
            }),
            Environment(
                "subrequest-config",
                "ctr",
                &["_SHARING_STRATEGY=SpacePartitioning", "_PARTITION_COUNT=2"],
            ),
        ],
    },
    Demo {
        file: "demos/podgroup.yaml",
        steps: &[
            Run(&["red-0", "red-1", "blue-0", "blue-1"]),
            Same(&[("red-0", "ctr"), ("red-1", "ctr")]),
            Same(&[("blue-0", "ctr"), ("blue-1", "ctr")]),
            Different(&[("red-0", "ctr"), ("blue-0", "ctr")]),
            Claims(&["red-0"], |claims| {
                let users = claims[0]["status"]["reservedFor"].as_array();
                let users: Vec<_> = users.into_iter().flatten().collect();
                assert_eq!((claims.len(), users.len()), (1, 1), "{claims:#?}");
                assert_eq!(users[0]["resource"], "podgroups");
                assert_eq!(users[0]["name"], "red");
            }),
        ],
    },
    Demo {
        file: "demos/binding-conditions.yaml",
        steps: &[
            Run(&["binding-conditions"]),
            Devices("binding-conditions", "ctr", 1),
            Claims(&["binding-conditions"], |claims| {
                let results = results(claims);
                assert_eq!(results[0]["bindingConditions"][0], "BindingConditions");
                let device = &claims[0]["status"]["devices"][0];
                let condition = &device["conditions"][0];
                assert_eq!(condition["type"], "BindingConditions");
                assert_eq!(condition["status"], "True");
                assert_eq!(device["data"]["model"]["string"], "LATEST-GPU-MODEL");
                assert!(device["data"]["uuid"]["string"].is_string(), "{device}");
            }),
        ],
    },
    Demo {
        file: "demos/partitionable-devices.yaml",
        steps: &[
            Run(&["two-partitions", "whole-gpu"]),
            Devices("two-partitions", "ctr", 2),
            Devices("whole-gpu", "ctr", 1),
            Claims(&["two-partitions", "whole-gpu"], |claims| {
                let gpus = gpus(claims);
                assert_eq!(gpus[0], gpus[1]);
                assert_ne!(gpus[1], gpus[2]);
            }),
        ],
    },
    Demo {
        file: "demos/multiple-allocations/1-two-shares.yaml",
        steps: &[
            Run(&["share-of-16", "share-of-32"]),
            Same(&[("share-of-16", "ctr"), ("share-of-32", "ctr")]),
            Environment(
                "share-of-16",
                "ctr",
                &["GPU_DEVICE_0_MEMORY=16Gi", "GPU_DEVICE_0_COMPUTE=20"],
            ),
            Environment(
                "share-of-32",
                "ctr",
                &["GPU_DEVICE_0_MEMORY=32Gi", "GPU_DEVICE_0_COMPUTE=40"],
            ),
            Apply("demos/multiple-allocations/2-too-much.yaml"),
            Waits("share-of-64"),
        ],
    },
    Demo {
        file: "demos/multiple-allocations-of-partitions.yaml",
        steps: &[
            Run(&["tenant-0", "tenant-1"]),
            Devices("tenant-0", "ctr", 1),
            Same(&[("tenant-0", "ctr"), ("tenant-1", "ctr")]),
            Environment("tenant-0", "ctr", &["=gpu-0-partition-2", "_MEMORY=8Gi"]),
        ],
    },
    Demo {
        file: "demos/native-resources.yaml",
        steps: &[
            Run(&["native-resources"]),
            Environment(
                "native-resources",
                "ctr",
                &["CPU_DEVICE_0=numa-0", "CPU_DEVICE_0_CONSUMED_CPU=1"],
            ),
            Pod("native-resources", "have two CPUs by its claim", |pod| {
                let claims = &pod["status"]["nodeAllocatableResourceClaimStatuses"];
                claims[0]["resources"]["cpu"] == "2"
            }),
            Claims(&["native-resources"], |claims| {
                let results = results(claims);
                assert_eq!(results.len(), 2);
                assert!(results.iter().all(|it| it["device"] == "numa-0"));
                assert_ne!(results[0]["shareID"], results[1]["shareID"]);
            }),
        ],
    },
    Demo {
        file: "demos/consumable-bandwidth/1-two-pods.yaml",
        steps: &[
            Run(&["downloads", "uploads"]),
            Same(&[("downloads", "ctr"), ("uploads", "ctr")]),
            Environment(
                "downloads",
                "ctr",
                &[
                    "NET_DEVICE_0_INGRESS_RATE=10000000000",
                    "NET_DEVICE_0_EGRESS_RATE=5000000000",
                ],
            ),
            Environment(
                "uploads",
                "ctr",
                &[
                    "NET_DEVICE_0_INGRESS_RATE=5000000000",
                    "NET_DEVICE_0_EGRESS_RATE=50000000000",
                ],
            ),
            Apply("demos/consumable-bandwidth/2-too-much.yaml"),
            Waits("mirrors"),
        ],
    },
    Demo {
        file: "demos/health-reporting.yaml",
        steps: &[
            Pod("health-reporting", "be Healthy", |pod| {
                health(pod) == "Healthy"
            }),
            Allot(&[
                "hardware",
                "fail",
                "node-0",
                "gpu-0",
                "--unhealthy",
                "--message",
                "fan stopped",
            ]),
            Pod("health-reporting", "be Unhealthy", |pod| {
                health(pod) == "Unhealthy"
            }),
            Stays("health-reporting"),
            Allot(&["hardware", "restore", "node-0", "gpu-0"]),
            Pod("health-reporting", "be Healthy again", |pod| {
                health(pod) == "Healthy"
            }),
        ],
    },
    Demo {
        file: "demos/taint-noexecute/1-pod.yaml",
        steps: &[
            Run(&["on-the-broken-gpu"]),
            Environment("on-the-broken-gpu", "ctr", &["GPU_DEVICE_1=gpu-1"]),
            Apply("demos/taint-noexecute/2-rule.yaml"),
            Evicted("on-the-broken-gpu"),
            Tainted("gpu-1"),
            Apply("demos/taint-noexecute/3-later-pod.yaml"),
            Waits("after-the-failure"),
        ],
    },
    Demo {
        file: "demos/taint-toleration/1-rule.yaml",
        steps: &[
            Tainted("gpu-2"),
            Apply("demos/taint-toleration/2-pods.yaml"),
            Run(&["test-run", "careful"]),
            Environment("test-run", "ctr", &["GPU_DEVICE_2=gpu-2"]),
            Environment("careful", "ctr", &["GPU_DEVICE_3=gpu-3"]),
            Stays("test-run"),
        ],
    },
    Demo {
        file: "demos/taint-noschedule/1-pod.yaml",
        steps: &[
            Run(&["before-service"]),
            Apply("demos/taint-noschedule/2-rule.yaml"),
            Tainted("gpu-7"),
            Apply("demos/taint-noschedule/3-later-pod.yaml"),
            Waits("after-service"),
            Stays("before-service"),
            Delete("demos/taint-noschedule/2-rule.yaml"),
            Run(&["after-service"]),
            Stays("before-service"),
        ],
    },
    Demo {
        file: "demos/taint-toleration-seconds/1-pods.yaml",
        steps: &[
            Run(&["leaves-at-once", "leaves-soon", "stays"]),
            Apply("demos/taint-toleration-seconds/2-rule.yaml"),
            Evicted("leaves-at-once"),
            Evicted("leaves-soon"),
            Stays("stays"),
        ],
    },
];

/// The allocation results of a pod's claims.
fn results(claims: &[Value]) -> Vec<&Value> {
    let results = claims
        .iter()
        .map(|claim| &claim["status"]["allocation"]["devices"]["results"]);
    results.filter_map(Value::as_array).flatten().collect()
}

/// Which requests, or alternatives of them, got devices.
fn requests(claims: &[Value]) -> Vec<&str> {
    let results = results(claims).into_iter();
    results
        .map(|result| result["request"].as_str().unwrap_or_default())
        .collect()
}

/// The GPUs of which pods have a partition, or all of it: `gpu-0` of `gpu-0-partition-1` and `gpu-0-full`.
fn gpus(claims: &[Value]) -> Vec<String> {
    let devices = results(claims).into_iter();
    let devices = devices.map(|result| result["device"].as_str().unwrap_or_default());
    devices
        .map(|device| device.split('-').take(2).collect::<Vec<_>>().join("-"))
        .collect()
}

fn health(pod: &Value) -> &str {
    let resources = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
    let health = &resources["resources"][0]["health"];
    health.as_str().unwrap_or_default()
}
