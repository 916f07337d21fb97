// As much of a Kubernetes API server as the dashboard needs, over plain HTTP: lists with pages, watches, refusals.
// Alone: node fake-api.mjs NODES KUBECONFIG
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { fleet } from "./fleet.mjs";

const DEVICES = ["resourceslices", "resourceclaims", "deviceclasses", "devicetaintrules", "resourceclaimtemplates"];

/** In which version the API server has a kind of the group of devices: rules have no v1 yet. */
const served = (plural, version) => version === (plural === "devicetaintrules" ? "v1beta2" : "v1");

const EXPIRED = `${JSON.stringify({ type: "ERROR", object: { kind: "Status", code: 410, message: "too old resource version" } })}\n`;

export class FakeApi {
  /** What was asked: method, URL, authorization. */
  requests = [];
  /** Kinds whose lists are refused, outside of namespaces. */
  forbidden = new Set();
  #kinds = new Map();
  #version = 1000;
  #oldest = 0;
  #watchers = new Set();
  /** Events that a watch can still begin with. */
  #events = [];
  #server;

  constructor(objects) {
    for (const [plural, list] of Object.entries(objects)) {
      const byKey = new Map();
      for (const object of list) {
        object.metadata.resourceVersion = String(++this.#version);
        byKey.set(key(object), object);
      }
      this.#kinds.set(plural, byKey);
    }
  }

  async start(port = 0) {
    this.#server = createServer((request, response) => this.#answer(request, response));
    await new Promise((go) => this.#server.listen(port, "127.0.0.1", go));
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  get(plural, name) {
    return this.#kinds.get(plural)?.get(name);
  }

  list(plural) {
    return [...(this.#kinds.get(plural)?.values() ?? [])];
  }

  /** Creates or replaces an object, and tells watchers. */
  put(plural, object) {
    let kind = this.#kinds.get(plural);
    if (!kind) this.#kinds.set(plural, (kind = new Map()));
    const type = kind.has(key(object)) ? "MODIFIED" : "ADDED";
    object.metadata.resourceVersion = String(++this.#version);
    kind.set(key(object), object);
    this.#tell(plural, type, object);
  }

  remove(plural, name) {
    const object = this.#kinds.get(plural)?.get(name);
    if (!object) return;
    this.#kinds.get(plural).delete(name);
    object.metadata.resourceVersion = String(++this.#version);
    this.#tell(plural, "DELETED", object);
  }

  /** Forgets what has happened: watches end, and those from before cannot begin again. */
  expire() {
    this.#events = [];
    this.#oldest = ++this.#version;
    for (const { response } of this.#watchers) response.end(EXPIRED);
    this.#watchers.clear();
  }

  #tell(plural, type, object) {
    this.#events.push({ plural, type, version: this.#version, object: structuredClone(object) });
    if (this.#events.length > 10_000) this.#oldest = this.#events.shift().version;
    for (const watcher of this.#watchers) {
      if (watcher.plural === plural) watcher.response.write(`${JSON.stringify({ type, object })}\n`);
    }
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://x");
    this.requests.push({ method: request.method, url: request.url, authorization: request.headers.authorization });
    const json = (code, value) => {
      response.writeHead(code, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    const status = (code, message) => json(code, { kind: "Status", apiVersion: "v1", status: "Failure", code, message });
    if (request.method !== "GET") return status(405, "only GET is served");
    if (url.pathname === "/version") return json(200, { major: "1", minor: "36", gitVersion: "v1.36.2", gitCommit: "", gitTreeState: "", buildDate: "", goVersion: "", compiler: "", platform: "" });
    if (url.pathname === "/apis/resource.k8s.io") {
      return json(200, { kind: "APIGroup", name: "resource.k8s.io", versions: ["v1", "v1beta2"].map((version) => ({ groupVersion: `resource.k8s.io/${version}`, version })) });
    }
    const listed = /^\/apis\/resource\.k8s\.io\/([^/]+)$/.exec(url.pathname);
    if (listed) {
      const resources = DEVICES.filter((plural) => served(plural, listed[1])).map((name) => ({ name }));
      if (resources.length === 0) return status(404, "the server could not find the requested resource");
      return json(200, { kind: "APIResourceList", groupVersion: `resource.k8s.io/${listed[1]}`, resources });
    }
    const found = /^\/(?:api|apis\/([^/]+))\/([^/]+)(?:\/namespaces\/([^/]+))?\/([^/]+)(?:\/([^/]+))?$/.exec(url.pathname);
    if (!found) return status(404, "the server could not find the requested resource");
    const [, group, version, namespace, plural, name] = found;
    if (DEVICES.includes(plural) && !served(plural, version)) return status(404, "the server could not find the requested resource");
    if (name) {
      const object = this.get(plural, `${namespace}/${name}`);
      return object ? json(200, object) : status(404, `${plural} "${name}" not found`);
    }
    if (this.forbidden.has(plural) && !namespace) return status(403, `${plural} is forbidden: User "reader" cannot list resource "${plural}" at the cluster scope`);
    if (url.searchParams.get("watch") === "1") {
      response.writeHead(200, { "content-type": "application/json" });
      response.flushHeaders();
      const from = Number(url.searchParams.get("resourceVersion"));
      if (from < this.#oldest) return response.end(EXPIRED);
      for (const event of this.#events) {
        if (event.plural === plural && event.version > from) {
          response.write(`${JSON.stringify({ type: event.type, object: event.object })}\n`);
        }
      }
      const watcher = { plural, response };
      this.#watchers.add(watcher);
      response.on("close", () => this.#watchers.delete(watcher));
      return;
    }
    let all = this.list(plural);
    if (namespace) all = all.filter((object) => object.metadata.namespace === namespace);
    const from = Number(url.searchParams.get("continue") ?? 0);
    const limit = Number(url.searchParams.get("limit") ?? 0) || all.length;
    const items = all.slice(from, from + limit);
    const left = all.length - from - items.length;
    json(200, {
      kind: "List", apiVersion: group ? `${group}/${version}` : version,
      metadata: { resourceVersion: String(this.#version), ...(left > 0 ? { continue: String(from + limit), remainingItemCount: left } : {}) },
      items,
    });
  }
}

function key({ metadata }) {
  return metadata.namespace ? `${metadata.namespace}/${metadata.name}` : metadata.name;
}

/** A kubeconfig for it. */
export function kubeconfig(url, namespace = "default") {
  return JSON.stringify({
    apiVersion: "v1", kind: "Config", "current-context": "fake",
    clusters: [{ name: "fake", cluster: { server: url } }],
    users: [{ name: "reader", user: { token: "of-the-kubeconfig" } }],
    contexts: [{ name: "fake", context: { cluster: "fake", user: "reader", namespace } }],
  });
}

/** Changes claims now and then, as a cluster does. */
export function live(api, each = 400) {
  let turn = 0;
  return setInterval(() => {
    const held = api.list("resourceclaims").filter((claim) => claim.status?.allocation);
    const claim = held[(turn * 7919) % held.length];
    turn++;
    if (!claim) return;
    api.remove("resourceclaims", key(claim));
    setTimeout(() => api.put("resourceclaims", claim), each * 6);
  }, each);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , nodes = "5000", file = "kubeconfig"] = process.argv;
  const api = new FakeApi(fleet({ nodes: Number(nodes) }));
  const url = await api.start();
  writeFileSync(file, kubeconfig(url));
  live(api);
  console.log(`${nodes} nodes at ${url}, kubeconfig ${file}`);
}
