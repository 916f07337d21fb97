// Objects of an artificial cluster: nodes with GPUs, partitioned GPUs, and shared network cards. The same each time.

/** Numbers that look random. */
function numbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const GPU = "gpu.example.com";
const NIC = "nic.example.com";
const MODELS = ["Aurora-80", "Aurora-40", "Borealis-24"];

function gpu(node, at, model) {
  return {
    name: `gpu-${at}`,
    attributes: {
      model: { string: MODELS[model] },
      uuid: { string: `gpu-${node}-${at}` },
      driverVersion: { version: "5.2.1" },
      index: { int: at },
      numaNode: { int: at < 4 ? 0 : 1 },
      "resource.kubernetes.io/pcieRoot": { string: `pci0000:${(16 * (1 + Math.floor(at / 2))).toString(16)}` },
      fabricDomain: { string: `fabric-${Math.floor(node / 16)}` },
    },
    capacity: { memory: { value: ["80Gi", "40Gi", "24Gi"][model] } },
  };
}

function partitions(node, at) {
  const counter = (memory, slices) => [
    { counterSet: `gpu-${at}`, counters: { memory: { value: `${memory}Gi` }, slices: { value: `${slices}` } } },
  ];
  const whole = gpu(node, at, 1);
  const parts = [[`gpu-${at}-whole`, 40, 7]];
  for (let i = 0; i < 2; i++) parts.push([`gpu-${at}-half-${i}`, 20, 3]);
  for (let i = 0; i < 7; i++) parts.push([`gpu-${at}-seventh-${i}`, 5, 1]);
  return parts.map(([name, memory, slices]) => ({
    ...whole,
    name,
    capacity: { memory: { value: `${memory}Gi` } },
    consumesCounters: counter(memory, slices),
  }));
}

function nic(node, at) {
  return {
    name: `nic-${at}`,
    allowMultipleAllocations: true,
    attributes: { speed: { string: "400G" }, numaNode: { int: at % 2 }, rdma: { bool: true } },
    capacity: { bandwidth: { value: "400G" } },
  };
}

function slice(node, driver, devices, more = {}) {
  const name = `node-${node}`;
  return {
    metadata: { name: `${name}-${driver}`, uid: `slice-${name}-${driver}` },
    spec: { driver, nodeName: name, pool: { name, generation: 1, resourceSliceCount: 1, ...more.pool }, devices, ...more.spec },
  };
}

/** All objects, by the plural name of their kind. */
export function fleet({ nodes = 18, age = 7200, now = Date.now(), seed = 7 } = {}) {
  const random = numbers(seed);
  const at = (secondsAgo) => new Date(now - secondsAgo * 1000).toISOString().replace(/\.\d+/, "");
  const slices = [];
  const claims = [];
  const busy = (node, i) => {
    // Parts of the cluster are busier than others.
    const wave = Math.sin(node / 37) + Math.sin(node / 11.3 + 1) * 0.6 + Math.sin(node / 211) * 0.8;
    return random() < 0.62 + wave * 0.22 - i * 0.012;
  };
  const claim = (node, driver, results, more = {}) => {
    const number = claims.length;
    const name = `${["train", "infer", "render", "notebook"][number % 4]}-${number}`;
    const created = Math.floor(random() * age) + 30;
    const allocated = Math.max(1, created - 2 - Math.floor(random() * Math.min(240, created / 3)));
    const field = (field, time) => ({
      manager: "kube-scheduler", operation: "Update", apiVersion: "resource.k8s.io/v1", time: at(time), subresource: "status",
      fieldsType: "FieldsV1", fieldsV1: { "f:status": { [field]: {} } },
    });
    claims.push({
      metadata: {
        name: `${name}-gpu`, namespace: ["research", "serving", "studio"][number % 3], uid: `claim-${number}`,
        creationTimestamp: at(created),
        ownerReferences: [{ apiVersion: "v1", kind: "Pod", name, uid: `pod-${number}` }],
        managedFields: [field("f:allocation", allocated), field("f:reservedFor", Math.max(1, allocated - 1))],
      },
      spec: { devices: { requests: [{ name: "gpu", exactly: { deviceClassName: driver, count: results.length } }] } },
      status: {
        allocation: { devices: { results: results.map((r) => ({ request: "gpu", driver, pool: `node-${node}`, ...r })) } },
        reservedFor: more.leak ? undefined : [{ resource: "pods", name, uid: `pod-${number}` }],
        ...more.status,
      },
    });
  };
  for (let node = 0; node < nodes; node++) {
    const kind = node % 20;
    if (kind === 7 || kind === 13) {
      const sharedCounters = [0, 1, 2, 3].map((i) => ({
        name: `gpu-${i}`, counters: { memory: { value: "40Gi" }, slices: { value: "7" } },
      }));
      slices.push(slice(node, GPU, [0, 1, 2, 3].flatMap((i) => partitions(node, i)), { spec: { sharedCounters } }));
      for (let i = 0; i < 4; i++) {
        if (!busy(node, 0)) continue;
        if (random() < 0.3) claim(node, GPU, [{ device: `gpu-${i}-whole` }]);
        else {
          const count = 1 + Math.floor(random() * 6);
          for (let part = 0; part < count; part++) claim(node, GPU, [{ device: `gpu-${i}-seventh-${part}` }]);
        }
      }
      slices.push(slice(node, NIC, [0, 1, 2, 3].map((i) => nic(node, i))));
      for (let i = 0; i < 4; i++) {
        let left = 400;
        while (left > 50 && busy(node, 2)) {
          const bandwidth = 50 * (1 + Math.floor(random() * 3));
          if (bandwidth > left) break;
          left -= bandwidth;
          claim(node, NIC, [{ device: `nic-${i}`, consumedCapacity: { bandwidth: `${bandwidth}G` } }]);
        }
      }
      continue;
    }
    const model = kind < 12 ? 0 : kind < 17 ? 1 : 2;
    const devices = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => gpu(node, i, model));
    const incomplete = node % 97 === 15 || node === 11;
    if (node % 41 === 9) devices[3].taints = [{ key: "gpu.example.com/ecc", value: "pending", effect: "NoSchedule", timeAdded: at(4000) }];
    if (node % 67 === 16) {
      devices[5].taints = [{ key: "gpu.example.com/unhealthy", value: "fell-off-the-bus", effect: "NoExecute", timeAdded: at(900) }];
    }
    const pool = incomplete ? { resourceSliceCount: 2 } : {};
    slices.push(slice(node, GPU, devices, { pool }));
    if (incomplete) continue;
    for (let i = 0; i < 8; ) {
      const size = random() < 0.12 && i === 0 ? 8 : random() < 0.25 && i % 4 === 0 ? 4 : random() < 0.4 && i % 2 === 0 ? 2 : 1;
      const free = devices.slice(i, i + size).every((device) => !device.taints);
      if (free && busy(node, i)) {
        const results = devices.slice(i, i + size).map((device) => ({ device: device.name }));
        claim(node, GPU, results, { leak: claims.length % 97 === 40 });
      }
      i += size;
    }
  }
  const waiting = Math.min(40, Math.max(3, Math.floor(nodes / 100)));
  const pods = [];
  for (let i = 0; i < waiting; i++) {
    const name = `waiting-${i}`;
    pods.push({
      metadata: { name, namespace: "research", uid: `waiting-${i}`, creationTimestamp: at(60 + i * 61) },
      spec: {
        schedulerName: "default-scheduler",
        containers: [{ name: "c", image: "x", env: [{ name: "PASSWORD", value: "hunter2" }], resources: { claims: [{ name: "gpu" }] } }],
        resourceClaims: [{ name: "gpu", resourceClaimName: `${name}-gpu` }],
      },
      status: {
        phase: "Pending",
        conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: `0/${nodes} nodes are available` }],
      },
    });
    const selectors = i % 3 === 1 ? [{ cel: { expression: `device.attributes["${GPU}"].model == "Aurora-96"` } }] : undefined;
    claims.push({
      metadata: { name: `${name}-gpu`, namespace: "research", uid: `waiting-claim-${i}`, creationTimestamp: at(60 + i * 61) },
      spec: { devices: { requests: [{ name: "gpu", exactly: { deviceClassName: GPU, allocationMode: "ExactCount", count: i % 3 === 0 ? 9 : 8, selectors } }] } },
    });
  }
  const deviceclass = (name, ...expressions) => ({
    metadata: { name, uid: name }, spec: { selectors: expressions.map((expression) => ({ cel: { expression } })) },
  });
  return {
    resourceslices: slices,
    resourceclaims: claims,
    deviceclasses: [
      deviceclass(GPU, `device.driver == "${GPU}"`),
      deviceclass("large.example.com", `device.driver == "${GPU}"`, `device.capacity["${GPU}"].memory.compareTo(quantity("80Gi")) >= 0`),
      deviceclass(NIC, `device.driver == "${NIC}"`),
    ],
    devicetaintrules: [
      {
        metadata: { name: "maintenance", uid: "maintenance" },
        spec: { deviceSelector: { driver: GPU, pool: "node-4" }, taint: { key: "maintenance", effect: "NoSchedule", timeAdded: at(600) } },
      },
    ],
    pods,
    nodes: Array.from({ length: nodes }, (_, i) => ({
      metadata: { name: `node-${i}`, uid: `node-${i}`, labels: { "kubernetes.io/hostname": `node-${i}` } },
      status: { allocatable: { cpu: "64", memory: "512Gi", pods: "110" }, capacity: { cpu: "64", memory: "512Gi", pods: "110" }, conditions: [{ type: "Ready", status: "True" }] },
    })),
  };
}
