// Fills a cluster of `allot up`: more drivers than the example's, pods with claims, and pending pods.
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { fileURLToPath } from "node:url";

const DRIVER = "mig.example.com";
const NIC = "nic.example.com";

/** Asks the API server of a kubeconfig that `allot up` wrote. */
function client(kubeconfig) {
  const text = readFileSync(kubeconfig, "utf8");
  const field = (name) => new RegExp(`${name}: (.*)`).exec(text)[1].trim();
  const [server, token] = [field("server"), field("token")];
  const ca = Buffer.from(field("certificate-authority-data"), "base64");
  return (method, path, body) =>
    new Promise((done, failed) => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const asked = request(server + path, { method, headers, ca }, (response) => {
        let text = "";
        response.on("data", (data) => (text += data));
        response.on("end", () => {
          const answer = JSON.parse(text);
          if (response.statusCode < 300) done(answer);
          else failed(new Error(`${method} ${path}: ${answer.message}`));
        });
      });
      asked.on("error", failed);
      asked.end(body && JSON.stringify(body));
    });
}

function partitions(at) {
  const take = (memory, slices) => [{ counterSet: `gpu-${at}`, counters: { memory: { value: `${memory}Gi` }, slices: { value: `${slices}` } } }];
  const part = (name, memory, slices) => ({ name, capacity: { memory: { value: `${memory}Gi` } }, attributes: { model: { string: "Aurora-40" } }, consumesCounters: take(memory, slices) });
  return [
    part(`gpu-${at}-whole`, 40, 7), part(`gpu-${at}-half-0`, 20, 3), part(`gpu-${at}-half-1`, 20, 3),
    ...Array.from({ length: 7 }, (_, i) => part(`gpu-${at}-seventh-${i}`, 5, 1)),
  ];
}

export async function populate(kubeconfig) {
  const started = Date.now();
  const ask = client(kubeconfig);
  const create = (path, body) => ask("POST", path, body);
  const dra = "/apis/resource.k8s.io/v1";
  const slice = (node, name, driver, spec, pool = {}) =>
    create(`${dra}/resourceslices`, {
      apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", metadata: { name: `node-${node}-${name}` },
      spec: { driver, nodeName: `node-${node}`, pool: { name: `node-${node}`, generation: 1, resourceSliceCount: 1, ...pool }, ...spec },
    });
  for (const [name, driver] of [["mig", DRIVER], ["nic", NIC]]) {
    await create(`${dra}/deviceclasses`, {
      apiVersion: "resource.k8s.io/v1", kind: "DeviceClass", metadata: { name: `${name}.example.com` },
      spec: { selectors: [{ cel: { expression: `device.driver == "${driver}"` } }] },
    });
  }
  for (const node of [3, 4, 5, 6]) {
    const sharedCounters = [0, 1].map((i) => ({ name: `gpu-${i}`, counters: { memory: { value: "40Gi" }, slices: { value: "7" } } }));
    // Counters are in a separate slice.
    await slice(node, "mig-counters", DRIVER, { sharedCounters }, { resourceSliceCount: 2 });
    await slice(node, "mig", DRIVER, { devices: [0, 1].flatMap(partitions) }, { resourceSliceCount: 2 });
  }
  for (const node of [0, 1, 2, 7, 8]) {
    const devices = [0, 1].map((i) => ({
      name: `nic-${i}`, allowMultipleAllocations: true, capacity: { bandwidth: { value: "400G", requestPolicy: { default: "50G", validRange: { min: "50G", step: "50G" } } } },
      attributes: { speed: { string: "400G" }, numaNode: { int: i } },
    }));
    await slice(node, "nic", NIC, { devices });
  }
  const taint = { key: "example.com/ecc", value: "pending", effect: "NoSchedule" };
  await slice(10, "old", "old.example.com", { devices: [0, 1, 2, 3].map((i) => ({ name: `card-${i}`, ...(i === 2 ? { taints: [taint] } : {}), ...(i === 3 ? { taints: [{ key: "example.com/unhealthy", effect: "NoExecute" }] } : {}) })) });
  await slice(12, "half", "old.example.com", { devices: [0, 1, 2, 3].map((i) => ({ name: `card-${i}` })) }, { resourceSliceCount: 2 });
  const pod = async (name, deviceClassName, more = {}, count = 1) => {
    await create(`${dra}/namespaces/default/resourceclaimtemplates`, {
      apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate", metadata: { name },
      spec: { spec: { devices: { requests: [{ name: "gpu", exactly: { deviceClassName, count, ...more } }] } } },
    });
    await create("/api/v1/namespaces/default/pods", {
      apiVersion: "v1", kind: "Pod", metadata: { name },
      spec: {
        containers: [{ name: "c", image: "registry.example.com/c", command: ["sleep", "infinity"], resources: { claims: [{ name: "gpu" }] } }],
        resourceClaims: [{ name: "gpu", resourceClaimTemplateName: name }],
      },
    });
  };
  for (let i = 0; i < 34; i++) await pod(`train-${i}`, "gpu.example.com", {}, [1, 4, 2, 1, 8][i % 5]);
  for (let i = 0; i < 9; i++) {
    await pod(`notebook-${i}`, "mig.example.com", { selectors: [{ cel: { expression: `device.capacity["${DRIVER}"].memory.compareTo(quantity("5Gi")) == 0` } }] });
  }
  for (let i = 0; i < 7; i++) await pod(`serve-${i}`, "nic.example.com", { capacity: { requests: { bandwidth: "150G" } } });
  await pod("too-large", "gpu.example.com", {}, 9);
  await pod("wrong-model", "gpu.example.com", { selectors: [{ cel: { expression: 'device.attributes["gpu.example.com"].model == "Aurora-96"' } }] }, 2);
  // Pods that fit are on nodes; those whose driver runs there are running.
  for (;;) {
    const { items } = await ask("GET", "/api/v1/namespaces/default/pods");
    const settled = ({ metadata, spec, status }) => {
      if (!spec.nodeName) return (status.conditions ?? []).some((c) => c.type === "PodScheduled" && c.status === "False");
      return status.phase === "Running" || !metadata.name.startsWith("train-");
    };
    const waiting = items.filter((pod) => !settled(pod)).map((pod) => pod.metadata.name);
    if (waiting.length === 0) return;
    if (Date.now() > started + 120_000) throw new Error(`nothing becomes of these pods: ${waiting.join(", ")}`);
    await new Promise((go) => setTimeout(go, 200));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await populate(process.argv[2]);
