// Fills a cluster of `allot up` with hardware of several models: pods with claims, pending pods, a pool that is incomplete.
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import { run, start } from "./harness.mjs";

/** The hardware of the 18 nodes, in their order: a part of an NVL72 rack, GPUs with MIG and NICs, others. */
const HARDWARE = "gb200-nvl72=6,h100-mig+rdma-nic=4,gpu-shared=2,mi300x=1,gaudi3=1,tpu-v5e=2,sriov=1,nvme=1";

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

async function populate(kubeconfig) {
  const started = Date.now();
  const ask = client(kubeconfig);
  const create = (path, body) => ask("POST", path, body);
  const dra = "/apis/resource.k8s.io/v1";
  // A driver that has stopped before it published all slices of its pool.
  await create(`${dra}/resourceslices`, {
    apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", metadata: { name: "node-13-half" },
    spec: {
      driver: "old.example.com", nodeName: "node-13", pool: { name: "node-13", generation: 1, resourceSliceCount: 2 },
      devices: [0, 1, 2, 3].map((i) => ({ name: `card-${i}` })),
    },
  });
  const pod = async (name, deviceClassName, more = {}, count = 1) => {
    await create(`${dra}/namespaces/default/resourceclaimtemplates`, {
      apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate", metadata: { name },
      spec: { spec: { devices: { requests: [{ name: "devices", exactly: { deviceClassName, count, ...more } }] } } },
    });
    await create("/api/v1/namespaces/default/pods", {
      apiVersion: "v1", kind: "Pod", metadata: { name },
      spec: {
        containers: [{ name: "c", image: "registry.example.com/c", command: ["sleep", "infinity"], resources: { claims: [{ name: "devices" }] } }],
        resourceClaims: [{ name: "devices", resourceClaimTemplateName: name }],
      },
    });
  };
  const is = (driver, attribute, value) => ({ selectors: [{ cel: { expression: `device.attributes["${driver}"].${attribute} == "${value}"` } }] });
  const product = (name) => is("gpu.nvidia.com", "productName", name);
  const amount = (requests) => ({ capacity: { requests } });
  for (let i = 0; i < 9; i++) await pod(`train-${i}`, "gpu.nvidia.com", product("NVIDIA GB200"), [1, 4, 2][i % 3]);
  for (let i = 0; i < 5; i++) await pod(`tune-${i}`, "gpu.nvidia.com", product("NVIDIA H100 80GB HBM3"), [2, 1, 4][i % 3]);
  for (let i = 0; i < 9; i++) await pod(`notebook-${i}`, "mig.nvidia.com", is("gpu.nvidia.com", "profile", ["1g.10gb", "2g.20gb", "3g.40gb"][i % 3]));
  for (let i = 0; i < 7; i++) await pod(`serve-${i}`, "gpu.nvidia.com", { ...amount({ memory: "20Gi" }), selectors: [{ cel: { expression: "device.allowMultipleAllocations" } }] });
  for (let i = 0; i < 4; i++) await pod(`storage-${i}`, "dranet", { selectors: [{ cel: { expression: 'device.attributes["dra.net"].rdma' } }] }, 2);
  await pod("chips-0", "tpu.google.com", {}, 4);
  await pod("rocm-0", "gpu.amd.com", {}, 3);
  await pod("too-large", "gpu.amd.com", {}, 9);
  await pod("wrong-model", "gpu.nvidia.com", product("NVIDIA B300"), 2);
  // Pods that fit run, and the others have been refused.
  for (;;) {
    const { items } = await ask("GET", "/api/v1/namespaces/default/pods");
    const settled = ({ spec, status }) => {
      if (!spec.nodeName) return (status.conditions ?? []).some((c) => c.type === "PodScheduled" && c.status === "False");
      return status.phase === "Running";
    };
    const waiting = items.filter((pod) => !settled(pod)).map((pod) => pod.metadata.name);
    if (waiting.length === 0) return;
    if (Date.now() > started + 120_000) throw new Error(`nothing becomes of these pods: ${waiting.join(", ")}`);
    await new Promise((go) => setTimeout(go, 200));
  }
}

/** A cluster of `allot up` with its kubeconfig in a folder, filled, and a dashboard of it. */
export async function cluster(folder) {
  const kubeconfig = join(folder, "kubeconfig");
  const flags = ["--nodes", "18", "--hardware", HARDWARE, "--runtime", "simulated"];
  await start(["up", "--dashboard", "--in-memory", "--listen", "127.0.0.1:0", ...flags, "--kubeconfig-out", kubeconfig], "ready: ");
  await populate(kubeconfig);
  await run(["hardware", "fail", "node-12", "gpu-40-168", "--kubeconfig", kubeconfig]);
  const { line } = await start(["dashboard", "--kubeconfig", kubeconfig], "dashboard: ");
  return { link: line.replace("dashboard: ", "").trim() };
}
