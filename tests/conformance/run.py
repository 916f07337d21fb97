#!/usr/bin/env python3
"""Black-box scenario runner for Dynamic Resource Allocation control planes.

Drives any Kubernetes-compatible API server and checks outcomes only. Plays the
parts that a bare control plane lacks: nodes, drivers (ResourceSlices, device
status) and kubelets (pod status, end of pod deletion).
Python standard library only. The scenario format is described in scenarios.md.
"""
import argparse
import base64
import concurrent.futures
import copy
import fnmatch
import glob
import gzip
import http.client
import json
import os
import random
import re
import signal
import ssl
import string
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from decimal import Decimal

HERE = os.path.dirname(os.path.abspath(__file__))


# --------------------------------------------------------------------------
# kubeconfig: JSON, or the YAML subset that kubeconfig files use

def _flow(s, i=0):
    """Parse a flow-style YAML/JSON value of s starting at i."""
    while i < len(s) and s[i] in " \t":
        i += 1
    if i >= len(s):
        return None, i
    c = s[i]
    if c == "{" or c == "[":
        out, close = ({}, "}") if c == "{" else ([], "]")
        i += 1
        while True:
            while s[i] in " \t,":
                i += 1
            if s[i] == close:
                return out, i + 1
            if c == "{":
                m = re.match(r'("(?:[^"\\]|\\.)*"|\'[^\']*\'|[^:,}\]]+)\s*:', s[i:])
                key = m.group(1).strip().strip("\"'")
                v, i = _flow_item(s, i + m.end())
                out[key] = v
            else:
                v, i = _flow_item(s, i)
                out.append(v)
    return _flow_item(s, i)


def _flow_item(s, i):
    while i < len(s) and s[i] in " \t":
        i += 1
    if s[i] in "{[":
        return _flow(s, i)
    if s[i] == '"':
        m = re.match(r'"(?:[^"\\]|\\.)*"', s[i:])
        return json.loads(m.group(0)), i + m.end()
    if s[i] == "'":
        j = s.index("'", i + 1)
        return s[i + 1:j], j + 1
    m = re.match(r"[^,\]}]*", s[i:])
    return _scalar(m.group(0).strip()), i + m.end()


def _scalar(t):
    t = t.strip()
    if t == "" or t in ("null", "~"):
        return None
    if t[0] == '"':
        return json.loads(t)
    if t[0] == "'":
        return t[1:-1]
    if t[0] in "{[":
        return _flow(t)[0]
    if t in ("true", "false"):
        return t == "true"
    return t


def mini_yaml(text):
    rows = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        rows.append((len(line) - len(line.lstrip()), line.strip()))
    pos = [0]

    def block(indent):
        if rows[pos[0]][1].startswith("- ") or rows[pos[0]][1] == "-":
            out = []
            while pos[0] < len(rows) and rows[pos[0]][0] == indent and rows[pos[0]][1].startswith("-"):
                ind, t = rows[pos[0]]
                rest = t[1:].lstrip()
                if not rest:
                    pos[0] += 1
                    out.append(block(rows[pos[0]][0]))
                elif rest[0] not in "{[\"'" and re.match(r"[\w.-]+:( |$)", rest):
                    inner = ind + (len(t) - len(rest))
                    rows[pos[0]] = (inner, rest)
                    out.append(block(inner))
                else:
                    pos[0] += 1
                    out.append(_scalar(rest))
            return out
        out = {}
        while pos[0] < len(rows) and rows[pos[0]][0] == indent and not rows[pos[0]][1].startswith("- "):
            t = rows[pos[0]][1]
            key, _, rest = t.partition(":")
            key, rest = key.strip().strip("\"'"), rest.strip()
            pos[0] += 1
            if rest:
                out[key] = _scalar(rest)
            elif pos[0] < len(rows) and (rows[pos[0]][0] > indent or
                                         (rows[pos[0]][0] == indent and rows[pos[0]][1].startswith("-"))):
                out[key] = block(rows[pos[0]][0])
            else:
                out[key] = None
        return out

    return block(rows[0][0]) if rows else {}


class Config:
    def __init__(self, path):
        with open(path) as f:
            text = f.read()
        doc = json.loads(text) if text.lstrip().startswith("{") else mini_yaml(text)
        base = os.path.dirname(os.path.abspath(path))

        def named(lst, name, field):
            for e in doc.get(lst) or []:
                if name is None or e.get("name") == name:
                    return e.get(field) or {}
            return {}

        ctx = named("contexts", doc.get("current-context"), "context")
        cluster = named("clusters", ctx.get("cluster"), "cluster")
        user = named("users", ctx.get("user"), "user")
        url = urllib.parse.urlsplit(cluster["server"])
        self.https = url.scheme == "https"
        self.host = url.hostname
        self.port = url.port or (443 if self.https else 80)
        self.prefix = url.path.rstrip("/")
        self.headers = {}
        token = user.get("token")
        if not token and user.get("tokenFile"):
            with open(os.path.join(base, user["tokenFile"])) as f:
                token = f.read().strip()
        if token:
            self.headers["Authorization"] = "Bearer " + str(token)
        elif user.get("username"):
            cred = "%s:%s" % (user["username"], user.get("password", ""))
            self.headers["Authorization"] = "Basic " + base64.b64encode(cred.encode()).decode()
        self.ssl = None
        if self.https:
            self.ssl = ssl.create_default_context()
            if cluster.get("insecure-skip-tls-verify"):
                self.ssl.check_hostname = False
                self.ssl.verify_mode = ssl.CERT_NONE
            elif cluster.get("certificate-authority-data"):
                self.ssl.load_verify_locations(
                    cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
            elif cluster.get("certificate-authority"):
                self.ssl.load_verify_locations(os.path.join(base, cluster["certificate-authority"]))
            files = []
            for kind in ("client-certificate", "client-key"):
                if user.get(kind + "-data"):
                    tmp = tempfile.NamedTemporaryFile(delete=False)
                    tmp.write(base64.b64decode(user[kind + "-data"]))
                    tmp.close()
                    files.append(tmp.name)
                elif user.get(kind):
                    files.append(os.path.join(base, user[kind]))
            if len(files) == 2:
                self.ssl.load_cert_chain(*files)
            for f in files:
                if f.startswith(tempfile.gettempdir()):
                    os.unlink(f)

    def connect(self, timeout=20):
        if self.https:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.ssl)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


# --------------------------------------------------------------------------
# API client

class ApiError(Exception):
    def __init__(self, code, body, what):
        self.code = code
        try:
            self.message = json.loads(body).get("message", "")
        except (ValueError, AttributeError):
            self.message = str(body)[:300]
        super().__init__("%s: HTTP %s: %s" % (what, code, self.message))


# alias: (apiVersions in order of preference, kind, plural, namespaced)
KINDS = {
    "pod": (["v1"], "Pod", "pods", True),
    "node": (["v1"], "Node", "nodes", False),
    "namespace": (["v1"], "Namespace", "namespaces", False),
    "event": (["v1"], "Event", "events", True),
    "quota": (["v1"], "ResourceQuota", "resourcequotas", True),
    "configmap": (["v1"], "ConfigMap", "configmaps", True),
    "deployment": (["apps/v1"], "Deployment", "deployments", True),
    "replicaset": (["apps/v1"], "ReplicaSet", "replicasets", True),
    "statefulset": (["apps/v1"], "StatefulSet", "statefulsets", True),
    "daemonset": (["apps/v1"], "DaemonSet", "daemonsets", True),
    "job": (["batch/v1"], "Job", "jobs", True),
    "priorityclass": (["scheduling.k8s.io/v1"], "PriorityClass", "priorityclasses", False),
    "claim": (["resource.k8s.io/v1"], "ResourceClaim", "resourceclaims", True),
    "template": (["resource.k8s.io/v1"], "ResourceClaimTemplate", "resourceclaimtemplates", True),
    "class": (["resource.k8s.io/v1"], "DeviceClass", "deviceclasses", False),
    "slice": (["resource.k8s.io/v1"], "ResourceSlice", "resourceslices", False),
    "taintrule": (["resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3"],
                  "DeviceTaintRule", "devicetaintrules", False),
}
BY_KIND = {v[1]: k for k, v in KINDS.items()}
CONTENT = {"merge": "application/merge-patch+json", "json": "application/json-patch+json",
           "strategic": "application/strategic-merge-patch+json",
           "apply": "application/apply-patch+yaml"}


class Api:
    def __init__(self, cfg):
        self.cfg = cfg
        self.local = threading.local()
        self.served = {}
        self.lock = threading.Lock()

    def raw(self, method, path, body=None, ctype="application/json", timeout=20):
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self.cfg.headers, Accept="application/json")
        if data is not None:
            headers["Content-Type"] = ctype
        for attempt in range(4):
            conn = getattr(self.local, "conn", None)
            fresh = conn is None
            try:
                if conn is None:
                    conn = self.local.conn = self.cfg.connect(timeout)
                conn.request(method, self.cfg.prefix + path, data, headers)
                resp = conn.getresponse()
                text = resp.read()
                if resp.status == 429 and attempt < 3:
                    time.sleep(min(2.0, float(resp.headers.get("Retry-After") or 1)))
                    continue
                return resp.status, text
            except (OSError, http.client.HTTPException) as e:
                try:
                    conn.close()
                except (OSError, AttributeError):
                    pass
                self.local.conn = None
                # a kept-alive connection may have been closed by the server: retry
                if attempt >= 2 or (fresh and isinstance(e, TimeoutError)):
                    raise RuntimeError("%s %s: %s: %s" % (method, path, type(e).__name__, e))
                time.sleep(0.1)
        raise RuntimeError("%s %s: still throttled" % (method, path))

    def call(self, method, path, body=None, ctype="application/json"):
        code, text = self.raw(method, path, body, ctype)
        if code >= 300:
            raise ApiError(code, text, "%s %s" % (method, path.split("?")[0]))
        return json.loads(text) if text else {}

    def group_version(self, alias):
        """The served apiVersion for a kind."""
        versions, _, plural, _ = KINDS[alias]
        if len(versions) == 1:
            return versions[0]
        with self.lock:
            if alias not in self.served:
                for v in versions:
                    code, text = self.raw("GET", self.base(v))
                    if code == 200 and any(r["name"] == plural for r in json.loads(text).get("resources", [])):
                        self.served[alias] = v
                        break
                else:
                    self.served[alias] = versions[0]
            return self.served[alias]

    @staticmethod
    def base(api_version):
        return ("/apis/" if "/" in api_version else "/api/") + api_version

    def path(self, alias, ns=None, name=None, sub=None, api_version=None):
        _, _, plural, namespaced = KINDS[alias]
        p = self.base(api_version or self.group_version(alias))
        if namespaced and ns:
            p += "/namespaces/" + ns
        p += "/" + plural
        if name:
            p += "/" + urllib.parse.quote(name)
        if sub:
            p += "/" + sub
        return p

    def get(self, alias, ns, name):
        return self.call("GET", self.path(alias, ns, name))

    def find(self, alias, ns, name):
        try:
            return self.get(alias, ns, name)
        except ApiError as e:
            if e.code == 404:
                return None
            raise

    def list(self, alias, ns=None, query=""):
        out = self.call("GET", self.path(alias, ns) + query).get("items") or []
        return out

    def create(self, obj, ns):
        alias = BY_KIND[obj["kind"]]
        return self.call("POST", self.path(alias, ns, api_version=obj["apiVersion"]), obj)

    def patch(self, alias, ns, name, body, kind="merge", sub=None, query=""):
        return self.call("PATCH", self.path(alias, ns, name, sub) + query, body, CONTENT[kind])

    def delete(self, alias, ns, name, grace=None, uid=None):
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            return self.call("DELETE", self.path(alias, ns, name), body)
        except ApiError as e:
            if e.code in (404, 409) and uid:
                return None
            raise


# --------------------------------------------------------------------------
# quantities, paths, checks

SUFFIX = {"": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
          "k": 10 ** 3, "M": 10 ** 6, "G": 10 ** 9, "T": 10 ** 12, "P": 10 ** 15, "E": 10 ** 18,
          "Ki": 2 ** 10, "Mi": 2 ** 20, "Gi": 2 ** 30, "Ti": 2 ** 40, "Pi": 2 ** 50, "Ei": 2 ** 60}


def quantity(v):
    m = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]{0,2})", str(v))
    if not m:
        raise Failure("not a quantity: %r" % (v,))
    return Decimal(m.group(1)) * SUFFIX[m.group(2)]


class Failure(Exception):
    pass


PATH_RE = re.compile(r"""\[\*\]|\[(-?\d+)\]|\[([\w.]+)=([^\]]*)\]|\['([^']*)'\]|\.?([^.\[\]]+)""")


def walk(obj, path):
    """All values at a path: a.b[0], a[*].b, a[type=Ready].status, a['x.y/z']."""
    vals = [obj]
    pos = 0
    while pos < len(path):
        m = PATH_RE.match(path, pos)
        if not m:
            raise Failure("bad path %r" % path)
        pos = m.end()
        index, fkey, fval, quoted, key = m.groups()
        nxt = []
        for v in vals:
            if m.group(0) == "[*]":
                if isinstance(v, list):
                    nxt += v
                elif isinstance(v, dict):
                    nxt += list(v.values())
            elif index is not None:
                if isinstance(v, list) and -len(v) <= int(index) < len(v):
                    nxt.append(v[int(index)])
            elif fkey is not None:
                if isinstance(v, list):
                    nxt += [e for e in v if any(str(w) == fval for w in walk(e, fkey))]
            else:
                k = quoted if quoted is not None else key
                if isinstance(v, dict) and v.get(k) is not None:
                    nxt.append(v[k])
        vals = nxt
    return vals


def subset(want, have):
    if isinstance(want, dict):
        return isinstance(have, dict) and all(k in have and subset(v, have[k]) for k, v in want.items())
    if isinstance(want, list):
        return isinstance(have, list) and all(any(subset(w, h) for h in have) for w in want)
    return want == have


def canonical(v):
    return json.dumps(v, sort_keys=True)


def short(v):
    t = json.dumps(v)
    return t if len(t) < 300 else t[:297] + "..."


def check(obj, cond):
    """None if the condition [path, op, value...] holds, else the reason."""
    path, op = cond[0], cond[1]
    arg = cond[2] if len(cond) > 2 else None
    vals = walk(obj, path)
    empty = [v for v in vals if v not in ("", [], {}, None)]
    single = vals[0] if len(vals) == 1 else None
    items = single if isinstance(single, list) else vals
    ok = {
        "present": lambda: bool(empty),
        "absent": lambda: not empty,
        "eq": lambda: len(vals) == 1 and single == arg,
        "ne": lambda: all(v != arg for v in vals),
        "in": lambda: bool(vals) and all(v in arg for v in vals),
        "notin": lambda: all(v not in arg for v in items),
        "regex": lambda: any(re.search(arg, str(v)) for v in vals),
        "notregex": lambda: not any(re.search(arg, str(v)) for v in vals),
        "count": lambda: len(items) == arg,
        "atleast": lambda: len(items) >= arg,
        "atmost": lambda: len(items) <= arg,
        "has": lambda: any(subset(arg, v) for v in items) or any(subset(arg, v) for v in vals),
        "hasnot": lambda: not any(subset(arg, v) for v in items),
        # The order of an object's members means nothing.
        "set": lambda: sorted(map(canonical, items)) == sorted(map(canonical, arg)),
        "unique": lambda: len(set(map(canonical, items))) == len(items),
        "quantity": lambda: len(vals) == 1 and quantity(single) == quantity(arg),
        "gt": lambda: len(vals) == 1 and quantity(single) > quantity(arg),
        "lt": lambda: len(vals) == 1 and quantity(single) < quantity(arg),
    }.get(op)
    if ok is None:
        raise Failure("unknown check %r" % op)
    if ok():
        return None
    return "%s is %s, wanted %s %s" % (path, short(vals[0] if len(vals) == 1 else vals), op,
                                       "" if arg is None else short(arg))


# --------------------------------------------------------------------------
# fake kubelet and monitor: one watch on pods, one on claims, for all scenarios

class Watcher(threading.Thread):
    def __init__(self, api, alias, handler):
        super().__init__(daemon=True)
        self.api, self.alias, self.handler = api, alias, handler
        self.stop = False
        self.synced = threading.Event()

    def run(self):
        while not self.stop:
            try:
                path = self.api.path(self.alias)
                lst = self.api.call("GET", path)
                self.handler("SYNC", lst.get("items") or [])
                self.synced.set()
                rv = lst["metadata"].get("resourceVersion", "")
                conn = self.api.cfg.connect(timeout=40)
                conn.request("GET", "%s%s?watch=1&timeoutSeconds=30&resourceVersion=%s" % (
                    self.api.cfg.prefix, path, rv), headers=dict(self.api.cfg.headers, Accept="application/json"))
                resp = conn.getresponse()
                if resp.status != 200:
                    raise OSError("watch: HTTP %d" % resp.status)
                while not self.stop:
                    line = resp.readline()
                    if not line:
                        break
                    ev = json.loads(line)
                    if ev["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self.handler(ev["type"], [ev["object"]])
                    elif ev["type"] == "ERROR":
                        break
                conn.close()
            except Exception:
                time.sleep(0.3)


class World:
    """State shared by all scenarios of a run."""

    def __init__(self, api):
        self.api = api
        self.scenarios = {}          # namespace -> Scenario
        self.lock = threading.Lock()
        self.holders = {}            # device -> {claim uid: ns/name}
        self.held = {}               # claim uid -> set of devices
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.watchers = [Watcher(api, "pod", self.on_pods), Watcher(api, "claim", self.on_claims)]
        for w in self.watchers:
            w.start()
        for w in self.watchers:
            if not w.synced.wait(20):
                raise OSError("cannot list and watch %ss" % w.alias)

    def on_pods(self, kind, pods):
        if kind == "DELETED":
            return
        for pod in pods:
            md = pod["metadata"]
            sc = self.scenarios.get(md["namespace"])
            if sc is None or sc.kubelet_paused:
                continue
            if md.get("deletionTimestamp") and pod["spec"].get("nodeName"):
                self.pool.submit(self.finish_pod, md["namespace"], md["name"], md["uid"])

    def finish_pod(self, ns, name, uid):
        try:
            self.api.delete("pod", ns, name, grace=0, uid=uid)
        except (ApiError, RuntimeError):
            pass

    def on_claims(self, kind, claims):
        """No exclusive device may be held by two claims, not even for a moment."""
        with self.lock:
            for c in claims:
                md = c["metadata"]
                uid = md["uid"]
                now = set()
                if kind != "DELETED":
                    for r in walk(c, "status.allocation.devices.results[*]"):
                        if not r.get("adminAccess") and not r.get("shareID"):
                            now.add((r["driver"], r["pool"], r["device"]))
                for dev in self.held.get(uid, set()) - now:
                    self.holders.get(dev, {}).pop(uid, None)
                for dev in now - self.held.get(uid, set()):
                    who = self.holders.setdefault(dev, {})
                    who[uid] = md["name"]
                    if len(who) > 1:
                        sc = self.scenarios.get(md["namespace"])
                        if sc is not None:
                            sc.violations.append("device %s held by claims %s at the same time" % (
                                "/".join(dev), ", ".join(sorted(who.values()))))
                self.held[uid] = now


# --------------------------------------------------------------------------
# scenario

def listify(v):
    return v if isinstance(v, list) else [v]


class Scenario:
    def __init__(self, world, name, doc, args):
        self.world, self.api, self.args = world, world.api, args
        self.name, self.doc = name, doc
        self.why = self.doc.get("why", "")
        self.needs = self.doc.get("needs", [])
        self.exclusive = bool(self.doc.get("exclusive"))
        self.kubelet_paused = False
        self.violations = []
        self.cluster_objects = []
        self.nodes = {}
        self.started = 0

    # -- small helpers ------------------------------------------------------

    def setup(self):
        self.id = "".join(random.choice(string.ascii_lowercase) for _ in range(6))
        self.ns = "dra-" + self.id
        self.vars = {"id": self.id, "ns": self.ns, "driver": "drv-%s.example.com" % self.id}
        self.deadline = time.time() + self.args.patience * (float(self.doc.get("limit", 60)) + 2 * self.args.timeout)
        self.measured = {}

    def sub(self, v, extra=None):
        if isinstance(v, str):
            return re.sub(r"\{\{(\w+)\}\}", lambda m: str(
                (extra or {}).get(m.group(1), self.vars.get(m.group(1), m.group(0)))), v)
        if isinstance(v, list):
            return [self.sub(x, extra) for x in v]
        if isinstance(v, dict):
            return {self.sub(k, extra): self.sub(x, extra) for k, x in v.items()}
        return v

    def cname(self, name):
        """Name of a cluster-scoped object: made unique with the scenario's id."""
        return name if self.id in name else "%s-%s" % (name, self.id)

    def wait(self, what, func, within=None):
        """Repeat func until it returns None; its result is the reason to go on."""
        end = min(time.time() + self.args.patience * (within or self.args.timeout), self.deadline)
        pause = 0.03
        while True:
            try:
                reason = func()
            except (ApiError, RuntimeError) as e:
                reason = str(e)
            if reason is None:
                return
            self.broken()
            self.heartbeat()
            if time.time() > end:
                raise Failure("%s: %s" % (what, reason))
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def hold(self, what, func, secs):
        """func must return None all the time for secs seconds."""
        end = time.time() + secs
        while True:
            reason = func()
            if reason is not None:
                raise Failure("%s: %s" % (what, reason))
            self.broken()
            if time.time() > end:
                return
            time.sleep(0.15)

    def broken(self):
        if self.violations:
            raise Failure(self.violations[0])
        if time.time() > self.deadline:
            raise Failure("scenario took too long")

    # -- targets --------------------------------------------------------------

    def target(self, ref):
        """pod/p, claim/c, claimOf/<pod>/<pod claim>, extClaimOf/<pod>, list/<kind>, ..."""
        head, _, rest = ref.partition("/")
        if head == "claimOf":
            pod_name, _, claim = rest.partition("/")
            pod = self.api.find("pod", self.ns, pod_name)
            if pod is None:
                return None
            for pc in pod["spec"].get("resourceClaims") or []:
                if pc["name"] == claim and pc.get("resourceClaimName"):
                    return self.api.find("claim", self.ns, pc["resourceClaimName"])
            names = walk(pod, "status.resourceClaimStatuses[name=%s].resourceClaimName" % claim)
            return self.api.find("claim", self.ns, names[0]) if names else None
        if head == "extClaimOf":
            pod = self.api.find("pod", self.ns, rest)
            names = walk(pod or {}, "status.extendedResourceClaimStatus.resourceClaimName")
            return self.api.find("claim", self.ns, names[0]) if names else None
        if head == "list":
            kind, _, pattern = rest.partition("/")
            items = self.api.list(kind, self.ns if KINDS[kind][3] else None)
            if not KINDS[kind][3]:
                items = [o for o in items if self.id in o["metadata"]["name"]]
            if pattern:
                items = [o for o in items if fnmatch.fnmatch(o["metadata"]["name"], pattern)]
            return {"items": items}
        alias, name = head, rest
        return self.api.find(alias, self.ns, name if KINDS[alias][3] else self.cname(name))

    def ref(self, ref):
        """(alias, name) for writing."""
        head, _, rest = ref.partition("/")
        if head in ("claimOf", "extClaimOf"):
            found = []

            def look():
                obj = self.target(ref)
                if obj is None:
                    return "not there"
                found.append(obj["metadata"]["name"])
            self.wait(ref, look)
            return "claim", found[0]
        return head, rest if KINDS[head][3] else self.cname(rest)

    def pods(self, names):
        """Pods by name or pattern; exact names must exist."""
        out, every = [], None
        for n in listify(names):
            if any(c in n for c in "*?["):
                if every is None:
                    every = self.api.list("pod", self.ns)
                out += [p for p in every if fnmatch.fnmatch(p["metadata"]["name"], n)]
            else:
                p = self.api.find("pod", self.ns, n)
                if p is None:
                    raise Failure("pod %s does not exist" % n)
                out.append(p)
        return out

    # -- building objects -------------------------------------------------------

    def build_device(self, d):
        d = copy.deepcopy(d)
        attrs = {}
        for k, v in (d.pop("attributes", None) or {}).items():
            if isinstance(v, dict):
                attrs[k] = v
            elif isinstance(v, bool):
                attrs[k] = {"bool": v}
            elif isinstance(v, int):
                attrs[k] = {"int": v}
            else:
                attrs[k] = {"string": v}
        if attrs:
            d["attributes"] = attrs
        cap = {k: v if isinstance(v, dict) else {"value": str(v)} for k, v in (d.pop("capacity", None) or {}).items()}
        if cap:
            d["capacity"] = cap
        if "node" in d:
            d["nodeName"] = self.cname(d.pop("node"))
        if isinstance(d.get("nodeSelector"), dict) and "nodeSelectorTerms" not in d["nodeSelector"]:
            d["nodeSelector"] = self.label_selector(d["nodeSelector"])
        return d

    def label_selector(self, labels):
        return {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": k, "operator": "In", "values": listify(v)} for k, v in sorted(labels.items())]}]}

    def build_slice(self, s):
        spec = {"driver": s.get("driver", self.vars["driver"])}
        if "node" in s:
            spec["nodeName"] = self.cname(s["node"])
        for k in ("allNodes", "perDeviceNodeSelection"):
            if k in s:
                spec[k] = s[k]
        if "nodeSelector" in s:
            sel = s["nodeSelector"]
            spec["nodeSelector"] = sel if "nodeSelectorTerms" in sel else self.label_selector(sel)
        spec["pool"] = {"name": s.get("pool", spec.get("nodeName", self.cname(s["name"]))),
                        "generation": s.get("generation", 1), "resourceSliceCount": s.get("sliceCount", 1)}
        devices = s.get("devices")
        if isinstance(devices, dict):
            devices = [dict(self.sub(copy.deepcopy(devices.get("like", {})), {"n": i}), name="%s-%d" % (devices.get("prefix", "dev"), i))
                       for i in range(devices["count"])]
        if devices is not None:
            spec["devices"] = [self.build_device(d) for d in devices]
        if "counters" in s:
            spec["sharedCounters"] = [{"name": n, "counters": {k: {"value": str(v)} for k, v in c.items()}}
                                      for n, c in s["counters"].items()]
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "metadata": {"name": self.cname(s["name"])}, "spec": spec}

    def build_class(self, c):
        spec = {}
        driver = c.get("driver", self.vars["driver"])
        sel = ['device.driver == "%s"' % driver] if driver else []
        sel += c.get("selectors", [])
        if sel:
            spec["selectors"] = [{"cel": {"expression": e}} for e in sel]
        for k in ("config", "extendedResourceName"):
            if k in c:
                spec[k] = c[k]
        return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
                "metadata": {"name": self.cname(c["name"])}, "spec": spec}

    def build_request(self, r, inner=False):
        r = copy.deepcopy(r)
        name = r.pop("name")
        if "firstAvailable" in r:
            return {"name": name, "firstAvailable": [self.build_request(x, True) for x in r["firstAvailable"]]}
        out = {}
        if "class" in r:
            out["deviceClassName"] = self.cname(r.pop("class"))
        if r.pop("all", False):
            out["allocationMode"] = "All"
        elif "count" in r:
            out["allocationMode"] = "ExactCount"
            out["count"] = r.pop("count")
        if "selectors" in r:
            out["selectors"] = [{"cel": {"expression": e}} for e in r.pop("selectors")]
        if "capacity" in r:
            out["capacity"] = {"requests": r.pop("capacity")}
        out.update(r)
        return dict(out, name=name) if inner else {"name": name, "exactly": out}

    def build_claim_spec(self, c):
        devices = {"requests": [self.build_request(r) for r in c.get("requests", [])]}
        cons = []
        for k in c.get("constraints", []):
            k = dict(k)
            for word, field in (("match", "matchAttribute"), ("distinct", "distinctAttribute")):
                if word in k:
                    a = k.pop(word)
                    k[field] = a if "/" in a else "%s/%s" % (self.vars["driver"], a)
            cons.append(k)
        if cons:
            devices["constraints"] = cons
        if "config" in c:
            devices["config"] = c["config"]
        return {"devices": devices}

    def meta(self, o):
        m = {"name": o["name"]}
        for k in ("labels", "annotations", "finalizers"):
            if k in o:
                m[k] = o[k]
        return m

    def build_claim(self, c):
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": self.meta(c),
                "spec": self.build_claim_spec(c)}

    def build_template(self, c):
        spec = {"spec": self.build_claim_spec(c)}
        inner = {k: c[k] for k in ("labels", "annotations") if k in c}
        if inner:
            spec["metadata"] = inner
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": c["name"]}, "spec": spec}

    def build_pod_spec(self, p):
        claims = p.get("claims", {})
        spec = {"restartPolicy": p.get("restartPolicy", "Never"), "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 5,
                "nodeSelector": dict({"dra-scenario": self.id}, **p.get("nodeSelector", {}))}
        if p.get("anywhere"):
            del spec["nodeSelector"]
        if claims:
            spec["resourceClaims"] = []
            for n, src in claims.items():
                kind, _, ref = src.partition(":")
                key = {"template": "resourceClaimTemplateName", "claim": "resourceClaimName"}[kind]
                spec["resourceClaims"].append({"name": n, key: ref})

        def container(c, i):
            res = {}
            use = c.get("use", sorted(claims))
            if use:
                res["claims"] = []
                for u in use:
                    n, _, r = u.partition("/")
                    res["claims"].append(dict({"name": n}, **({"request": r} if r else {})))
            for k in ("requests", "limits"):
                if k in c:
                    res[k] = c[k]
            out = {"name": c.get("name", "c%d" % i), "image": "registry.invalid/scenario:1", "resources": res}
            if "restartPolicy" in c:
                out["restartPolicy"] = c["restartPolicy"]
            return out

        default = {k: p[k] for k in ("requests", "limits") if k in p}
        spec["containers"] = [container(c, i) for i, c in enumerate(p.get("containers", [default]))]
        if "initContainers" in p:
            spec["initContainers"] = [container(dict({"name": "i%d" % i}, **c), i)
                                      for i, c in enumerate(p["initContainers"])]
        for k in ("tolerations", "affinity", "topologySpreadConstraints"):
            if k in p:
                spec[k] = p[k]
        if "priorityClass" in p:
            spec["priorityClassName"] = self.cname(p["priorityClass"])
        if "gates" in p:
            spec["schedulingGates"] = [{"name": g} for g in p["gates"]]
        if "node" in p:
            spec["nodeName"] = self.cname(p["node"])
        return spec

    def build_pod(self, p):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self.meta(p), "spec": self.build_pod_spec(p)}

    def create(self, obj, replace=False):
        alias = BY_KIND[obj["kind"]]
        if "apiVersion" not in obj:
            obj["apiVersion"] = self.api.group_version(alias)
        name = obj["metadata"].get("name")
        namespaced = KINDS[alias][3]
        ns = obj["metadata"].get("namespace", self.ns) if namespaced else None
        if not namespaced:
            self.cluster_objects.append((alias, name))
        for attempt in range(40):
            try:
                return self.api.create(obj, ns)
            except ApiError as e:
                if e.code == 409 and replace:
                    old = self.api.get(alias, ns, name)
                    obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
                    try:
                        return self.api.call("PUT", self.api.path(alias, ns, name), obj)
                    except ApiError as e2:
                        if e2.code != 409:
                            raise
                        obj["metadata"].pop("resourceVersion")
                # right after creation of a namespace some objects are not there yet
                elif not (attempt < 39 and e.code in (403, 404, 500) and
                          re.search(r"serviceaccount|service account|namespace.*not found|status unknown for quota", e.message)):
                    raise
            time.sleep(0.1)
        raise Failure("cannot create %s/%s" % (alias, name))

    def many(self, build, spec):
        """Create one object, or `count` objects name-0, name-1, ..."""
        if "count" not in spec:
            return self.create(build(spec))
        objs = []
        for i in range(spec["count"]):
            one = self.sub({k: v for k, v in spec.items() if k != "count"}, {"i": i})
            one["name"] = "%s-%d" % (spec["name"], i)
            objs.append(build(one))
        for f in [self.world.pool.submit(self.create, o) for o in objs]:
            f.result(60)

    # -- steps ----------------------------------------------------------------

    def do_nodes(self, s, step):
        names = s.get("names") or ["%s%d" % (s.get("prefix", "n"), i) for i in range(s["count"])]
        futs = []
        for i, n in enumerate(names):
            futs.append(self.world.pool.submit(self.register_node, n, self.sub(s, {"i": i})))
        for f in futs:
            f.result(60)
        for n in names:
            self.nodes[n] = time.time()

    def register_node(self, n, s):
        full = self.cname(n)
        labels = {"dra-scenario": self.id, "kubernetes.io/hostname": full, "node": n}
        labels.update(s.get("labels", {}))
        taints = s.get("taints", [])
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": full, "labels": labels},
                     "spec": dict({"taints": taints} if taints else {}, unschedulable=bool(s.get("cordoned")))})
        res = {"cpu": str(s.get("cpu", 16)), "memory": s.get("memory", "64Gi"), "pods": str(s.get("pods", 110)),
               "ephemeral-storage": "100Gi"}
        res.update(s.get("resources", {}))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.api.patch("node", None, full, {"status": {
            "capacity": res, "allocatable": res,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake",
                            "lastHeartbeatTime": now, "lastTransitionTime": now}]}}, "merge", "status")
        # admission marks new nodes not-ready; that taint goes as soon as the node is Ready

        def untaint():
            node = self.api.get("node", None, full)
            have = node["spec"].get("taints") or []
            keep = [t for t in have if t["key"] != "node.kubernetes.io/not-ready"]
            if len(keep) == len(have):
                return None
            self.api.patch("node", None, full, {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                                                "spec": {"taints": keep}})
            return "still tainted"
        self.wait("node " + n, untaint)

    def do_slice(self, s, step):
        if "count" in s:           # one slice per node n0, n1, ...
            futs = []
            for i in range(s["count"]):
                one = self.sub({k: v for k, v in s.items() if k != "count"}, {"i": i})
                one["name"] = "%s-%d" % (s["name"], i)
                futs.append(self.world.pool.submit(self.create, self.build_slice(one), True))
            for f in futs:
                f.result(60)
        else:
            self.create(self.build_slice(s), replace=True)

    def do_class(self, s, step):
        self.create(self.build_class(s))

    def do_claim(self, s, step):
        self.many(self.build_claim, s)

    def do_template(self, s, step):
        self.create(self.build_template(s))

    def do_pod(self, s, step):
        self.many(self.build_pod, s)

    def do_deployment(self, s, step):
        labels = {"app": s["name"]}
        self.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": s["name"]}, "spec": {
            "replicas": s.get("replicas", 1), "selector": {"matchLabels": labels},
            "strategy": s.get("strategy", {"type": "Recreate"}),
            "template": {"metadata": {"labels": labels},
                         "spec": self.build_pod_spec(dict(s["pod"], restartPolicy="Always"))}}})

    def do_job(self, s, step):
        self.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": s["name"]}, "spec": dict(
            {"template": {"spec": self.build_pod_spec(s["pod"])}, "backoffLimit": 0},
            **{k: s[k] for k in ("parallelism", "completions", "completionMode") if k in s})})

    def do_priorityclass(self, s, step):
        self.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                     "metadata": {"name": self.cname(s["name"])}, "value": s["value"],
                     "preemptionPolicy": s.get("preemptionPolicy", "PreemptLowerPriority")})

    def do_taintrule(self, s, step):
        sel = dict({"driver": self.vars["driver"]}, **{k: s[k] for k in ("driver", "pool", "device") if k in s})
        if "node" in s:
            sel["pool"] = self.cname(s["node"])
        self.create({"apiVersion": self.api.group_version("taintrule"), "kind": "DeviceTaintRule",
                     "metadata": {"name": self.cname(s["name"])},
                     "spec": {"deviceSelector": sel, "taint": s["taint"]}})

    def do_create(self, s, step):
        for obj in listify(s):
            self.create(obj)

    def do_apply(self, s, step):
        for obj in listify(s):
            alias = BY_KIND[obj["kind"]]
            obj.setdefault("apiVersion", self.api.group_version(alias))
            if not KINDS[alias][3]:
                self.cluster_objects.append((alias, obj["metadata"]["name"]))
            self.api.patch(alias, self.ns, obj["metadata"]["name"], obj, "apply",
                           query="?fieldManager=dra-scenario&force=true")

    def do_patch(self, s, step):
        alias, name = self.ref(s["target"])
        body = s["body"]
        kind = s.get("type", "json" if isinstance(body, list) else "merge")
        sub = s.get("subresource")
        for _ in range(10):
            try:
                return self.api.patch(alias, self.ns, name, body, kind, sub)
            except ApiError as e:
                if e.code != 409 or "expectError" in step:
                    raise
            time.sleep(0.05)
        raise Failure("patch of %s: conflict again and again" % s["target"])

    def do_delete(self, s, step):
        for r in listify(s):
            if "*" in r:
                alias, _, pattern = r.partition("/")
                names = [o["metadata"]["name"] for o in self.target("list/%s/%s" % (alias, pattern))["items"]]
            else:
                alias, name = self.ref(r)
                names = [name]
            for n in names:
                self.api.delete(alias, self.ns, n, grace=step.get("grace"))

    def set_phase(self, names, phase, step):
        """Report a phase as a kubelet would; waits until the pods are bound."""
        def go():
            pods = self.pods(names)
            if not pods:
                return "no such pod"
            for p in pods:
                if not p["spec"].get("nodeName"):
                    return "pod %s is not bound" % p["metadata"]["name"]
        self.wait("pods %s" % names, go)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for p in self.pods(names):
            if p.get("status", {}).get("phase") in (phase, "Succeeded", "Failed"):
                continue
            ready = "True" if phase == "Running" else "False"
            old = [c for c in p.get("status", {}).get("conditions") or [] if c["type"] not in ("Ready", "ContainersReady", "Initialized")]
            conds = old + [{"type": t, "status": ready if t != "Initialized" else "True", "lastTransitionTime": now}
                           for t in ("Initialized", "Ready", "ContainersReady")]
            status = {"phase": phase, "conditions": conds, "startTime": now}
            if phase != "Running":
                status["containerStatuses"] = [
                    {"name": c["name"], "image": c["image"], "imageID": "", "ready": False, "restartCount": 0,
                     "state": {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "finishedAt": now,
                                              "startedAt": now, "reason": "Completed" if phase == "Succeeded" else "Error"}}}
                    for c in p["spec"]["containers"]]
            try:
                self.api.patch("pod", self.ns, p["metadata"]["name"], {"status": status}, "merge", "status")
            except ApiError as e:
                if e.code != 404:
                    raise

    def do_running(self, s, step):
        self.set_phase(s, "Running", step)

    def do_succeeded(self, s, step):
        self.set_phase(s, "Succeeded", step)

    def do_failed(self, s, step):
        self.set_phase(s, "Failed", step)

    def do_scheduled(self, s, step):
        names = s
        on = [self.cname(n) for n in listify(step["on"])] if "on" in step else None

        def go():
            pods = self.pods(names)
            if not pods or len(pods) < step.get("atleast", 1):
                return "%d pods" % len(pods)
            waiting = [p["metadata"]["name"] for p in pods if not p["spec"].get("nodeName")]
            if waiting:
                return "not bound: %s (of %d)%s" % (", ".join(waiting[:4]), len(pods), self.explain(
                    [p for p in pods if not p["spec"].get("nodeName")][0]))
            for p in pods:
                if on and p["spec"]["nodeName"] not in on:
                    raise Failure("pod %s is on %s, wanted %s" % (p["metadata"]["name"], p["spec"]["nodeName"], on))
        self.wait("scheduled %s" % names, go, step.get("within"))

    @staticmethod
    def explain(pod):
        m = walk(pod, "status.conditions[type=PodScheduled].message")
        return ": " + m[0] if m else ""

    def do_unschedulable(self, s, step):
        """The scheduler has looked at the pods and said no; and it stays that way."""
        def go():
            for p in self.pods(s):
                if p["spec"].get("nodeName"):
                    raise Failure("pod %s got bound to %s" % (p["metadata"]["name"], p["spec"]["nodeName"]))
                if not [c for c in walk(p, "status.conditions[type=PodScheduled]") if c["status"] == "False" and
                        re.search(step.get("message", ""), c.get("message", ""))]:
                    return "%s has no PodScheduled=False condition%s%s" % (
                        p["metadata"]["name"], " with message like " + step["message"] if "message" in step else "", self.explain(p))
        self.wait("unschedulable %s" % s, go, step.get("within"))
        self.do_pending(s, step)

    def do_pending(self, s, step):
        def go():
            for p in self.pods(s):
                if p["spec"].get("nodeName"):
                    return "pod %s got bound to %s" % (p["metadata"]["name"], p["spec"]["nodeName"])
        self.hold("pending %s" % s, go, step.get("for", 1.5))

    def do_split(self, s, step):
        """Exactly `bound` of the pods get bound, the others stay pending."""
        def count():
            pods = [p for p in self.pods(s["pods"]) if not p["metadata"].get("deletionTimestamp")]
            return len([p for p in pods if p["spec"].get("nodeName")]), len(pods)

        def go():
            n, total = count()
            if n > s["bound"]:
                raise Failure("%d of %d pods bound, wanted %d" % (n, total, s["bound"]))
            return None if n == s["bound"] else "%d of %d pods bound, wanted %d" % (n, total, s["bound"])
        self.wait("split", go, step.get("within"))

        def still():
            n, total = count()
            return None if n == s["bound"] else "%d of %d pods bound, wanted %d" % (n, total, s["bound"])
        self.hold("split", still, step.get("for", 1.5))

    def conditions(self, s):
        def go():
            obj = self.target(s["get"])
            if obj is None:
                return "%s does not exist" % s["get"]
            for c in s.get("check", []):
                reason = check(obj, c)
                if reason:
                    return "%s: %s" % (s["get"], reason)
        return go

    def do_expect(self, s, step):
        self.wait("expect", self.conditions(s), step.get("within"))

    def do_stays(self, s, step):
        self.hold("stays", self.conditions(s), step.get("for", 1.5))

    def do_never(self, s, step):
        cond = self.conditions(s)
        self.hold("never", lambda: None if cond() is not None else "%s: %s came true" % (s["get"], short(s["check"])),
                  step.get("for", 1.5))

    def do_gone(self, s, step):
        for r in listify(s):
            self.wait("gone", lambda: None if self.target(r) is None else "%s still exists" % r, step.get("within"))

    def do_exists(self, s, step):
        for r in listify(s):
            self.wait("exists", lambda: None if self.target(r) is not None else "%s does not exist" % r, step.get("within"))

    def do_event(self, s, step):
        def go():
            seen = []
            for e in self.api.list("event", self.ns):
                inv = e.get("involvedObject") or e.get("regarding") or {}
                msg = e.get("message") or e.get("note") or ""
                if "on" in s:
                    kind, _, name = s["on"].partition("/")
                    if inv.get("kind") != KINDS[kind][1] or not fnmatch.fnmatch(inv.get("name", ""), name):
                        continue
                seen.append("%s: %s" % (e.get("reason"), msg))
                if re.search(s.get("reason", ""), e.get("reason") or "") and re.search(s.get("message", ""), msg):
                    return None
            return "no event like %s, only %s" % (short(s), short(seen))
        self.wait("event", go, step.get("within"))

    def do_save(self, s, step):
        def go():
            obj = self.target(s["from"])
            vals = walk(obj, s["path"]) if obj else []
            if not vals:
                return "nothing at %s of %s" % (s["path"], s["from"])
            self.vars[s["as"]] = vals[0]
        self.wait("save", go)

    def do_sleep(self, s, step):
        time.sleep(s)

    def do_kubelet(self, s, step):
        self.kubelet_paused = s == "pause"
        if s == "resume":
            self.world.on_pods("SYNC", self.api.list("pod", self.ns))

    def do_device_status(self, s, step):
        """The driver's (or an external controller's) report about allocated devices of a claim."""
        alias, name = self.ref(s["claim"])

        def go():
            claim = self.api.get(alias, self.ns, name)
            results = walk(claim, "status.allocation.devices.results[*]")
            if not results:
                return "claim %s is not allocated" % name
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            entries = []
            for r in results:
                e = {"driver": r["driver"], "pool": r["pool"], "device": r["device"]}
                if r.get("shareID"):
                    e["shareID"] = r["shareID"]
                if "conditions" in s:
                    e["conditions"] = [dict({"lastTransitionTime": now, "reason": "Reported", "message": ""}, **c)
                                       for c in s["conditions"]]
                for k in ("data", "networkData"):
                    if k in s:
                        e[k] = s[k]
                if "device" in s:
                    e["device"] = s["device"]
                entries.append(e)
            claim["status"]["devices"] = entries
            try:
                self.api.call("PUT", self.api.path(alias, self.ns, name, "status"), claim)
            except ApiError as e:
                if e.code == 409:
                    return "conflict"
                if "expectError" in step:
                    raise Rejected(e)
                raise
        self.wait("device_status", go)

    def do_parallel(self, s, step):
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(s)) as ex:
            futs = [ex.submit(self.run_step, one) for one in s]
            for f in futs:
                f.result(self.args.timeout * 2)

    def do_repeat(self, s, step):
        for i in range(s["times"]):
            for one in s["steps"]:
                self.run_step(one, {"i": i})
                self.heartbeat()

    def do_throughput(self, s, step):
        """Create pods and wait until all of them are bound, at most `seconds` after the first was created."""
        t0 = time.time()
        self.do_pod(s["pod"], step)
        allowed = s["seconds"] * self.args.patience
        left = max(1.0, s["seconds"] - (time.time() - t0) / self.args.patience)
        self.do_split({"pods": s["pod"]["name"] + "-*", "bound": s["pod"]["count"]}, {"within": left, "for": 0.0})
        took = time.time() - t0
        self.measured["%d pods bound in seconds" % s["pod"]["count"]] = round(took, 1)
        if took > allowed:
            raise Failure("%d pods took %.1f s, more than %s s" % (s["pod"]["count"], took, allowed))

    def do_finish(self, s, step):
        """Play the kubelet for short jobs: every pod that gets bound succeeds at once, until `total` pods have."""
        done = set()

        def go():
            todo = []
            for p in self.pods(s["pods"]):
                name = p["metadata"]["name"]
                if p.get("status", {}).get("phase") == "Succeeded":
                    done.add(p["metadata"]["uid"])
                elif p["spec"].get("nodeName"):
                    todo.append(name)
            for f in [self.world.pool.submit(self.set_phase, [n], "Succeeded", step) for n in todo]:
                f.result(60)
            return None if len(done) >= s["total"] else "%d of %d pods are done" % (len(done), s["total"])
        self.wait("finish", go, s.get("seconds"))

    def do_spread(self, s, step):
        """How many of the pods are on nodes with which value of a label."""
        def go():
            nodes = {n["metadata"]["name"]: n["metadata"]["labels"].get(s["label"]) for n in self.api.list("node")}
            have = {}
            for p in self.pods(s["pods"]):
                v = nodes.get(p["spec"].get("nodeName"))
                have[v] = have.get(v, 0) + 1
            return None if have == s["counts"] else "%s, wanted %s" % (short(have), short(s["counts"]))
        self.wait("spread", go, step.get("within"))

    # -- allocated devices -----------------------------------------------------

    def device_index(self):
        index = {}
        for s in self.api.list("slice"):
            spec = s["spec"]
            if self.id not in spec["driver"]:
                continue
            gen = spec["pool"]["generation"]
            for d in spec.get("devices") or []:
                key = (spec["driver"], spec["pool"]["name"], d["name"])
                if key not in index or index[key][0] <= gen:
                    index[key] = (gen, d, spec)
        return index

    def do_allocated(self, s, step):
        def go():
            try:
                return self.allocated(s)
            except Failure as e:
                return str(e)
        self.wait("allocated", go, step.get("within"))

    def allocated(self, s):
        claims = []
        for r in listify(s["claims"]):
            if r == "*" or r.startswith("list/"):
                found = self.target("list/claim" if r == "*" else r)["items"]
                claims += [c for c in found if walk(c, "status.allocation")] if s.get("skipPending") else found
            elif r.startswith("claimOf/") and "*" in r:
                _, pat, pc = r.split("/")
                for p in self.pods(pat):
                    c = self.target("claimOf/%s/%s" % (p["metadata"]["name"], pc))
                    if c is None:
                        return "pod %s has no claim yet" % p["metadata"]["name"]
                    claims.append(c)
            else:
                c = self.target(r)
                if c is None:
                    return "%s does not exist" % r
                claims.append(c)
        if "claimCount" in s and len(claims) != s["claimCount"]:
            return "%d claims, wanted %d" % (len(claims), s["claimCount"])
        index = self.device_index()
        devs = []
        for c in claims:
            if not walk(c, "status.allocation"):
                return "claim %s is not allocated" % c["metadata"]["name"]
            res = walk(c, "status.allocation.devices.results[*]")
            if "request" in s:
                res = [r for r in res if fnmatch.fnmatch(r["request"], s["request"])]
            if "each" in s and len(res) != s["each"]:
                return "claim %s has %d devices, wanted %d" % (c["metadata"]["name"], len(res), s["each"])
            devs += res
        keys = [(r["driver"], r["pool"], r["device"]) for r in devs]
        names = [r["device"] for r in devs]
        if "total" in s and len(devs) != s["total"]:
            return "%d devices, wanted %d: %s" % (len(devs), s["total"], names)
        if s.get("unique") and len(set(keys)) != len(keys):
            return "devices repeat: %s" % sorted(keys)
        if "distinctDevices" in s and len(set(keys)) != s["distinctDevices"]:
            return "%d different devices, wanted %d: %s" % (len(set(keys)), s["distinctDevices"], sorted(set(keys)))
        if "names" in s and sorted(names) != sorted(s["names"]):
            return "devices %s, wanted %s" % (sorted(names), sorted(s["names"]))
        if "oneOf" in s and sorted(names) not in [sorted(o) for o in s["oneOf"]]:
            return "devices %s, wanted one of %s" % (sorted(names), s["oneOf"])
        if "among" in s and not set(names) <= set(s["among"]):
            return "devices %s, wanted only %s" % (sorted(names), sorted(s["among"]))
        if "notAmong" in s and set(names) & set(s["notAmong"]):
            return "devices %s, wanted none of %s" % (sorted(names), s["notAmong"])
        if "requests" in s:
            have = sorted(r["request"] for r in devs)
            if have != sorted(s["requests"]):
                return "request names %s, wanted %s" % (have, s["requests"])
        if "pools" in s:
            have = set(r["pool"] for r in devs)
            want = set(self.cname(p) for p in s["pools"])
            if have != want:
                return "pools %s, wanted %s" % (sorted(have), sorted(want))
        if "poolCount" in s and len(set(r["pool"] for r in devs)) != s["poolCount"]:
            return "devices from pools %s" % sorted(set(r["pool"] for r in devs))

        def attr(key, name):
            if key not in index:
                return None
            a = index[key][1].get("attributes") or {}
            short_name = name.split("/")[-1]
            v = a.get(name, a.get(short_name, a.get("%s/%s" % (key[0], short_name))))
            return None if v is None else list(v.values())[0]
        for name, want in s.get("where", {}).items():
            for k in keys:
                if attr(k, name) != want:
                    return "device %s has %s=%s, wanted %s" % ("/".join(k), name, attr(k, name), want)
        for name in listify(s.get("same", [])):
            vals = set(str(attr(k, name)) for k in keys)
            if len(vals) > 1 or "None" in vals:
                return "attribute %s differs: %s" % (name, sorted(vals))
        for name in listify(s.get("distinct", [])):
            vals = [str(attr(k, name)) for k in keys]
            if len(set(vals)) != len(vals) or "None" in vals:
                return "attribute %s repeats: %s" % (name, sorted(vals))
        if s.get("local"):       # node-local devices belong to the node of the consuming pod
            by_uid = {p["metadata"]["uid"]: p for p in self.api.list("pod", self.ns)}
            for c in claims:
                for ref in c["status"].get("reservedFor") or []:
                    pod = by_uid.get(ref["uid"])
                    node = pod and pod["spec"].get("nodeName")
                    if not node:
                        continue
                    for r in c["status"]["allocation"]["devices"]["results"]:
                        spec = index.get((r["driver"], r["pool"], r["device"]), (0, {}, {}))[2]
                        if spec.get("nodeName", node) != node:
                            return "pod on %s got device of %s" % (node, spec["nodeName"])

    # -- invariants that hold in every scenario ---------------------------------

    def audit(self):
        claims = self.api.list("claim", self.ns)
        pods = self.api.list("pod", self.ns)
        nodes = {n["metadata"]["name"]: n for n in self.api.list("node", None, "?labelSelector=dra-scenario%3D" + self.id)}
        holders, shares = {}, {}
        by_name = {c["metadata"]["name"]: c for c in claims}
        for c in claims:
            name = c["metadata"]["name"]
            res = walk(c, "status.allocation.devices.results[*]")
            if len(res) > 32:
                return "claim %s has %d devices" % (name, len(res))
            if walk(c, "status.allocation") and not c["metadata"].get("finalizers"):
                return "claim %s is allocated but has no finalizer" % name
            if walk(c, "status.reservedFor[*]") and not walk(c, "status.allocation"):
                return "claim %s is reserved but not allocated" % name
            uids = walk(c, "status.reservedFor[*].uid")
            if len(set(uids)) != len(uids):
                return "claim %s has duplicates in reservedFor" % name
            for r in res:
                key = (r["driver"], r["pool"], r["device"])
                if r.get("adminAccess"):
                    continue
                if r.get("shareID"):
                    shares.setdefault(key, []).append(r.get("consumedCapacity") or {})
                else:
                    holders.setdefault(key, []).append(name)
        for key, who in holders.items():
            if len(who) > 1:
                return "device %s allocated %d times: %s" % ("/".join(key), len(who), who)
            if key in shares:
                return "device %s allocated exclusively and shared" % "/".join(key)
        index = self.device_index()
        for key, used in shares.items():
            if key not in index:
                continue
            for cap, v in (index[key][1].get("capacity") or {}).items():
                total = sum((quantity(u[cap]) for u in used if cap in u), Decimal(0))
                if total > quantity(v["value"]):
                    return "device %s: %s of %s %s used" % ("/".join(key), total, v["value"], cap)
        counters, used = {}, {}
        gens = {}
        slices = [s["spec"] for s in self.api.list("slice") if self.id in s["spec"]["driver"]]
        for s in slices:
            p = (s["driver"], s["pool"]["name"])
            gens[p] = max(gens.get(p, 0), s["pool"]["generation"])
        for s in slices:
            p = (s["driver"], s["pool"]["name"])
            if s["pool"]["generation"] != gens[p]:
                continue
            for cs in s.get("sharedCounters") or []:
                for k, v in cs["counters"].items():
                    counters[p + (cs["name"], k)] = quantity(v["value"])
            for d in s.get("devices") or []:
                key = p + (d["name"],)
                if key in holders or key in shares:
                    for cc in d.get("consumesCounters") or []:
                        for k, v in cc["counters"].items():
                            ck = p + (cc["counterSet"], k)
                            used[ck] = used.get(ck, 0) + quantity(v["value"])
        for ck, v in used.items():
            if v > counters.get(ck, 0):
                return "counter %s: %s used of %s" % ("/".join(ck), v, counters.get(ck))
        for p in pods:
            node, phase = p["spec"].get("nodeName"), p.get("status", {}).get("phase")
            if not node or phase in ("Succeeded", "Failed") or p["metadata"].get("deletionTimestamp"):
                continue
            names = {}
            for pc in p["spec"].get("resourceClaims") or []:
                names[pc["name"]] = pc.get("resourceClaimName") or (walk(
                    p, "status.resourceClaimStatuses[name=%s].resourceClaimName" % pc["name"]) or [None])[0]
            for ext in walk(p, "status.extendedResourceClaimStatus.resourceClaimName"):
                names["<extended>"] = ext
            for pc, cn in names.items():
                c = by_name.get(cn)
                who = "pod %s, claim %s" % (p["metadata"]["name"], pc)
                if c is None:
                    return who + ": bound, but claim does not exist"
                if not walk(c, "status.allocation"):
                    return who + ": bound, but claim is not allocated"
                if p["metadata"]["uid"] not in walk(c, "status.reservedFor[*].uid"):
                    return who + ": bound, but claim is not reserved for it"
                sel = walk(c, "status.allocation.nodeSelector")
                if sel and node in nodes and not node_matches(sel[0], nodes[node]):
                    return who + ": bound to %s, which the allocation does not allow" % node
        return None

    # -- run ----------------------------------------------------------------------

    def run_step(self, step, extra=None):
        step = self.sub(step, extra)
        for key in step:
            func = getattr(self, "do_" + key, None)
            if func:
                break
        else:
            raise Failure("unknown step %s" % short(step))
        want = step.get("expectError")
        try:
            func(step[key], step)
        except (ApiError, Rejected) as e:
            e = e.args[0] if isinstance(e, Rejected) else e
            if want is None:
                raise Failure(str(e))
            if "code" in want and e.code not in listify(want["code"]):
                raise Failure("wanted HTTP %s, got %s" % (want["code"], e))
            if not re.search(want.get("message", ""), e.message):
                raise Failure("wanted error like %r, got %s" % (want["message"], e))
            return
        if want is not None:
            raise Failure("was accepted, wanted an error: %s" % short(step[key]))

    def run(self):
        self.setup()
        t0 = time.time()
        reason = None
        where = ""
        try:
            md = {"name": self.ns, "labels": dict({"dra-scenario": "true"}, **self.doc.get("namespaceLabels", {}))}
            self.world.scenarios[self.ns] = self
            self.api.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": md})
            for i, step in enumerate(self.doc["steps"]):
                where = "step %d (%s): " % (i + 1, ", ".join(k for k in step if hasattr(self, "do_" + k)) or "?")
                self.run_step(step)
                self.broken()
                self.heartbeat()
            where = "invariants: "
            if self.doc.get("audit", True):
                self.wait("audit", self.audit, 5)
            self.broken()
        except Failure as e:
            reason = where + str(e)
        except (ApiError, RuntimeError, KeyError, ValueError, concurrent.futures.TimeoutError) as e:
            reason = "%s%s: %s" % (where, type(e).__name__, e)
            if self.args.verbose:
                traceback.print_exc()
        took = time.time() - t0
        if not self.args.keep:
            try:
                self.cleanup()
            except Exception as e:
                if self.args.verbose:
                    print("cleanup of %s: %s" % (self.name, e), file=sys.stderr)
        self.world.scenarios.pop(self.ns, None)
        return {"name": self.name, "ok": reason is None, "seconds": round(took, 1), "reason": reason or "", "why": self.why,
                "namespace": self.ns, "measured": self.measured}

    def heartbeat(self):
        """Keep fake nodes Ready where a node lifecycle controller runs."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for n, t in list(self.nodes.items()):
            if now - t > 20:
                self.nodes[n] = now
                try:
                    self.api.patch("node", None, self.cname(n), {"status": {"conditions": [
                        {"type": "Ready", "status": "True", "lastHeartbeatTime": stamp}]}}, "strategic", "status")
                except (ApiError, RuntimeError):
                    pass

    def cleanup(self):
        self.kubelet_paused = False
        self.deadline = time.time() + 20
        opts = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        for alias in ("deployment", "job", "replicaset", "statefulset", "quota", "pod", "template", "claim"):
            if alias in ("deployment", "job", "replicaset", "statefulset", "quota") and not self.used(alias):
                continue
            try:
                self.api.call("DELETE", self.api.path(alias, self.ns), opts)
            except (ApiError, RuntimeError):
                pass
        for kinds in (("taintrule", "slice"), ("class", "priorityclass"), ("node",)):
            futs = [self.world.pool.submit(self.quiet_delete, a, n) for a, n in set(self.cluster_objects) if a in kinds]
            for f in futs:
                f.result(30)
        end = time.time() + 3
        while True:
            left = self.api.list("claim", self.ns)
            pods = self.api.list("pod", self.ns)
            if not left and not pods:
                break
            if time.time() > end:
                for p in pods:
                    self.quiet_delete("pod", p["metadata"]["name"], p["metadata"].get("finalizers"))
                for c in left:
                    self.quiet_delete("claim", c["metadata"]["name"], c["metadata"].get("finalizers"))
                break
            time.sleep(0.1)
        self.quiet_delete("namespace", self.ns)

    def used(self, alias):
        text = json.dumps(self.doc["steps"])
        if alias == "replicaset":
            alias = "deployment"
        return '"%s"' % alias in text or '"%s"' % KINDS[alias][1] in text

    def quiet_delete(self, alias, name, finalizers=None):
        try:
            if finalizers:
                self.api.patch(alias, self.ns, name, {"metadata": {"finalizers": None}})
            self.api.delete(alias, self.ns, name, grace=0)
        except (ApiError, RuntimeError):
            pass


class Rejected(Exception):
    pass


def node_matches(selector, node):
    labels = node["metadata"].get("labels") or {}

    def one(e, value):
        op, vals = e["operator"], e.get("values") or []
        return {"In": lambda: value in vals, "NotIn": lambda: value not in vals, "Exists": lambda: value is not None,
                "DoesNotExist": lambda: value is None}.get(op, lambda: True)()
    for term in selector.get("nodeSelectorTerms") or []:
        if all(one(e, labels.get(e["key"])) for e in term.get("matchExpressions") or []) and \
                all(one(e, node["metadata"]["name"]) for e in term.get("matchFields") or []):
            return True
    return False


# --------------------------------------------------------------------------

def documents(place):
    """Scenarios of a folder or of a compressed file, as (name, document)."""
    if os.path.isdir(place):
        for path in sorted(glob.glob(os.path.join(place, "*.json"))):
            with open(path, encoding="utf-8") as f:
                yield os.path.splitext(os.path.basename(path))[0], json.load(f)
        return
    with gzip.open(place, "rt", encoding="utf-8") as f:
        for line in f:
            recording = json.loads(line)
            yield os.path.splitext(recording["file"])[0], recording["document"]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""), help="admin access to the control plane")
    ap.add_argument("--dir", action="append", help="folder or .jsonl.gz with scenarios (default: all of the repository); may be repeated")
    ap.add_argument("--only", action="append", help="run scenarios whose name matches this pattern, e.g. 'taint-*'; may be repeated")
    ap.add_argument("--timeout", type=float, default=25, help="seconds until a wait fails (default 25)")
    ap.add_argument("--patience", type=float, default=1, help="factor for all limits of time, for busy machines (default 1)")
    ap.add_argument("--jobs", type=int, default=4, help="scenarios at the same time (default 4)")
    ap.add_argument("--have", action="append", default=[], help="optional ability of the cluster, see README; may be repeated")
    ap.add_argument("--json", action="store_true", help="one JSON object per scenario")
    ap.add_argument("--verbose", action="store_true", help="one line per passing scenario, too")
    ap.add_argument("--keep", action="store_true", help="do not clean up")
    ap.add_argument("--list", action="store_true", help="only list the scenarios")
    args = ap.parse_args()

    docs = []
    for d in args.dir or [os.path.join(HERE, "scenarios.jsonl.gz"), os.path.join(HERE, "..", "scenarios")]:
        docs += documents(d)
    if args.only:
        pats = [p if any(c in p for c in "*?[") else "*%s*" % p for o in args.only for p in o.split(",")]
        docs = [(n, d) for n, d in docs if any(fnmatch.fnmatch(n, x) for x in pats)]
    if args.list:
        for n, d in docs:
            print("%-45s %s" % (n, d.get("why", "")))
        return 0
    if not docs:
        print("no scenarios found")
        print("0 passed, 0 failed")
        return 1
    if not args.kubeconfig:
        ap.error("--kubeconfig is required")

    try:
        world = World(Api(Config(args.kubeconfig)))
    except (OSError, KeyError, ValueError, SystemExit) as e:
        print("FAIL: no access to the control plane: %s" % e)
        print("0 passed, %d failed" % len(docs))
        return 1
    todo, skipped = [], []
    for n, d in docs:
        sc = Scenario(world, n, d, args)
        missing = [n for n in sc.needs if n not in args.have]
        if missing:
            skipped.append((sc.name, missing))
        else:
            todo.append(sc)
    results, lock = [], threading.Lock()
    slots = {sc.name: sc for sc in todo}

    def one(sc):
        try:
            r = sc.run()
        except Exception as e:
            r = {"name": sc.name, "ok": False, "seconds": 0, "reason": "%s: %s" % (type(e).__name__, e), "why": sc.why, "measured": {}}
        with lock:
            results.append(r)
            if args.json:
                print(json.dumps(r), flush=True)
            elif not r["ok"]:
                print("FAIL %s (%.1fs): %s" % (r["name"], r["seconds"], r["reason"]), flush=True)
            elif args.verbose:
                print("ok   %s (%.1fs)%s" % (r["name"], r["seconds"], " " + json.dumps(r["measured"]) if r["measured"] else ""), flush=True)

    # never hang: whatever happens, the run ends
    budget = 60 + args.patience * sum(float(sc.doc.get("limit", 60)) + 3 * args.timeout for sc in todo)

    def expired(*_):
        for name in slots:
            if name not in [r["name"] for r in results]:
                print("FAIL %s: run took too long" % name)
        ok = len([r for r in results if r["ok"]])
        print("%d passed, %d failed" % (ok, len(slots) - ok), flush=True)
        os._exit(1)
    signal.signal(signal.SIGALRM, expired)
    signal.alarm(int(budget))

    try:
        with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as ex:
            list(ex.map(one, [s for s in todo if not s.exclusive]))
        for sc in todo:
            if sc.exclusive:
                one(sc)
    except KeyboardInterrupt:
        print("interrupted")
    for name, missing in skipped:
        if not args.json:
            print("skip %s: needs --have %s" % (name, ",".join(missing)))
    failed = len([r for r in results if not r["ok"]]) + len(todo) - len(results)
    print("%d passed, %d failed" % (len(results) - len([r for r in results if not r["ok"]]), failed), flush=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
