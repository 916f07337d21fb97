#!/usr/bin/env python3
"""Replays recorded HTTP conversations against a Kubernetes-compatible API
server and compares the answers.  Python 3.11+, standard library only.
See api.md for the scenario format and the comparison rules."""

import argparse
import base64
import concurrent.futures
import datetime
import fnmatch
import gzip
import http.client
import json
import os
import random
import re
import socket
import ssl
import string
import sys
import threading
import time
import urllib.parse

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "api")
REQUEST_TIMEOUT = 20.0
SCENARIO_LIMIT = 150.0
BODY_LIMIT = 64 << 20
MAX_TRANSPORT_ERRORS = 3      # in a row; then the rest of a scenario is given up
SLOW = float(os.environ.get("REPLAY_SLOW", "1e9"))
USER_AGENT = "conformance/1.0"
AGE_COLUMNS = {"Age", "Last Seen", "First Seen", "TimeAdded", "Created At", "Created"}


# ----------------------------------------------------------------- connection

class Target:
    def __init__(self, server, token=None, ca=None, insecure=False, cert=None, key=None):
        u = urllib.parse.urlsplit(server)
        self.https = u.scheme == "https"
        self.host = u.hostname
        self.port = u.port or (443 if self.https else 80)
        self.prefix = u.path.rstrip("/")
        self.token = token
        self.ctx = None
        if self.https:
            self.ctx = ssl.create_default_context(cafile=ca)
            if insecure:
                self.ctx.check_hostname = False
                self.ctx.verify_mode = ssl.CERT_NONE
            if cert:
                self.ctx.load_cert_chain(cert, key)

    def connect(self, timeout):
        if self.https:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.ctx)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


class Client:
    """One keep-alive connection; not shared between threads."""

    def __init__(self, target):
        self.t = target
        self.conn = None

    def close(self):
        if self.conn is not None:
            try:
                self.conn.close()
            finally:
                self.conn = None

    def _send(self, conn, method, path, headers, body):
        conn.putrequest(method, self.t.prefix + path, skip_accept_encoding=True)
        names = {k.lower() for k in headers}
        if "user-agent" not in names:
            conn.putheader("User-Agent", USER_AGENT)
        if "authorization" not in names and self.t.token:
            conn.putheader("Authorization", "Bearer " + self.t.token)
        for k, v in headers.items():
            if v is None:
                continue
            for one in (v if isinstance(v, list) else [v]):
                conn.putheader(k, one)
        if body is not None:
            conn.putheader("Content-Length", str(len(body)))
        conn.endheaders(body)

    def request(self, method, path, headers=None, body=None, timeout=REQUEST_TIMEOUT):
        headers = headers or {}
        for attempt in (0, 1):
            fresh = self.conn is None
            if fresh:
                self.conn = self.t.connect(timeout)
            try:
                if not fresh and self.conn.sock is not None:
                    self.conn.sock.settimeout(timeout)
                self._send(self.conn, method, path, headers, body)
                resp = self.conn.getresponse()
                data, end = b"", time.monotonic() + timeout
                while True:
                    part = resp.read1(1 << 16)
                    if not part:
                        break
                    data += part
                    if time.monotonic() > end or len(data) > BODY_LIMIT:
                        raise TimeoutError("the answer does not end")
                resp.read()                 # nothing is left; marks the answer as complete
                if resp.will_close:
                    self.close()
                return resp.status, resp.headers, data
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest,
                    http.client.BadStatusLine, ssl.SSLEOFError):
                self.close()
                if fresh or attempt:
                    raise
            except Exception:
                self.close()
                raise
        raise RuntimeError("unreachable")


# ------------------------------------------------------------------ selection

def parse_path(p):
    """a.b[0].c[k=v|w]["quoted key"].keys()  ->  list of operations"""
    ops, i, n = [], 0, len(p)
    while i < n:
        c = p[i]
        if c == ".":
            i += 1
        elif c == "[":
            if p[i + 1] == '"':
                j = p.index('"]', i)
                ops.append(("key", p[i + 2:j]))
                i = j + 2
            else:
                j, depth = i + 1, 1
                while depth:
                    depth += {"[": 1, "]": -1}.get(p[j], 0)
                    j += 1
                j -= 1
                inner = p[i + 1:j]
                i = j + 1
                if inner == "*":
                    ops.append(("all", None))
                elif "=" in inner:
                    k, v = inner.split("=", 1)
                    ops.append(("where", (k, v.split("|"))))
                else:
                    ops.append(("idx", int(inner)))
        else:
            j = i
            while j < n and p[j] not in ".[":
                j += 1
            word = p[i:j]
            ops.append(("keys", None) if word == "keys()" else ("key", word))
            i = j
    return ops


def walk_path(v, ops):
    """values found at the path"""
    cur = [v]
    for op, arg in ops:
        nxt = []
        for x in cur:
            if op == "key":
                if isinstance(x, dict) and arg in x:
                    nxt.append(x[arg])
            elif op == "idx":
                if isinstance(x, list) and -len(x) <= arg < len(x):
                    nxt.append(x[arg])
            elif op == "all":
                if isinstance(x, list):
                    nxt.extend(x)
                elif isinstance(x, dict):
                    nxt.extend(x[k] for k in sorted(x))
            elif op == "where":
                if isinstance(x, list):
                    sub = parse_path(arg[0])
                    for e in x:
                        got = walk_path(e, sub)
                        if got and str(got[0]) in arg[1]:
                            nxt.append(e)
            elif op == "keys":
                if isinstance(x, dict):
                    nxt.append(sorted(x))
        cur = nxt
    return cur


def get_path(v, p):
    got = walk_path(v, parse_path(p))
    return got[0] if got else None


def mask_path(v, ops):
    """replaces whatever is at the path with "<masked>" (in place)"""
    if not ops:
        return
    for parent in walk_path(v, ops[:-1]):
        op, arg = ops[-1]
        if op == "key" and isinstance(parent, dict) and arg in parent:
            parent[arg] = "<masked>"
        elif op == "all" and isinstance(parent, list):
            parent[:] = ["<masked>"] * len(parent)
        elif op == "all" and isinstance(parent, dict):
            for k in parent:
                parent[k] = "<masked>"
        elif op == "idx" and isinstance(parent, list) and -len(parent) <= arg < len(parent):
            parent[arg] = "<masked>"


# -------------------------------------------------------------- normalisation

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


OBJECT_DUMP = re.compile(r'Invalid value: "\{\\"apiVersion\\":.*\}": ', re.S)


def near_now(m):
    s = m.group(0)
    try:
        t = datetime.datetime.strptime(s[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return s
    return "<now>" if abs(t.timestamp() - time.time()) < 1800 else s


class Normaliser:
    def __init__(self, run):
        self.run = run
        self.uids = set()
        self.names = {}           # generated name -> placeholder

    def learn(self, v):
        if isinstance(v, list):
            for x in v:
                self.learn(x)
        elif isinstance(v, dict):
            m = v.get("metadata")
            if isinstance(m, dict):
                if isinstance(m.get("uid"), str) and len(m["uid"]) > 8:
                    self.uids.add(m["uid"])
                g, n = m.get("generateName"), m.get("name")
                if isinstance(g, str) and isinstance(n, str) and g and n != g and n.startswith(g):
                    self.names[n] = g + "<generated>"
            for x in v.values():
                if isinstance(x, (dict, list)):
                    self.learn(x)

    def text(self, s):
        for n in self.names:
            if n in s:
                s = s.replace(n, self.names[n])
        for u in self.uids:
            if u in s:
                s = s.replace(u, "<uid>")
        if self.run in s:
            s = s.replace(self.run, "${run}")
        if "T" in s and len(s) >= 20:
            s = TS.sub(near_now, s)
        return s

    def meta(self, m, keep_managed):
        out = {}
        for k, x in m.items():
            if k in ("uid",) and isinstance(x, str) and x:
                out[k] = "<uid>"
            elif k == "resourceVersion" and isinstance(x, str) and x:
                out[k] = "<rv>"
            elif k in ("creationTimestamp", "deletionTimestamp") and isinstance(x, str):
                out[k] = "<now>"
            elif k == "continue" and isinstance(x, str) and x:
                out[k] = "<continue>"
            elif k == "managedFields":
                if keep_managed and isinstance(x, list):
                    e = [self.any(y, keep_managed) for y in x]
                    out[k] = sorted(e, key=lambda y: [str(y.get(f, "")) for f in
                                                      ("operation", "manager", "subresource", "apiVersion")]
                                    if isinstance(y, dict) else [])
            else:
                out[k] = self.any(x, keep_managed)
        return out

    def table(self, t, keep_managed):
        cols = t.get("columnDefinitions")
        out = {k: self.any(x, keep_managed) for k, x in t.items()
               if k not in ("columnDefinitions", "rows", "metadata")}
        if "metadata" in t:
            out["metadata"] = self.meta(t["metadata"], keep_managed) if isinstance(t["metadata"], dict) else t["metadata"]
        names = getattr(self, "last_columns", [])
        if isinstance(cols, list) and cols:
            names = [c.get("name") for c in cols]
            self.last_columns = names
            out["columnDefinitions"] = [{f: c.get(f) for f in ("name", "type", "priority")} for c in cols]
        else:
            out["columnDefinitions"] = cols
        rows = t.get("rows")
        if isinstance(rows, list):
            out["rows"] = []
            for r in rows:
                nr = {k: self.any(x, keep_managed) for k, x in r.items() if k != "cells"}
                cells = []
                for i, c in enumerate(r.get("cells") or []):
                    if i < len(names) and names[i] in AGE_COLUMNS and c != "<unknown>" and c != "":
                        cells.append("<age>")
                    else:
                        cells.append(self.any(c, keep_managed))
                nr["cells"] = cells
                out["rows"].append(nr)
        else:
            out["rows"] = rows
        return out

    def any(self, v, keep_managed=False):
        if isinstance(v, str):
            return self.text(v)
        if isinstance(v, list):
            return [self.any(x, keep_managed) for x in v]
        if isinstance(v, dict):
            if v.get("kind") == "Table" and "columnDefinitions" in v:
                return self.table(v, keep_managed)
            out = {}
            for k, x in v.items():
                if k == "metadata" and isinstance(x, dict):
                    out[k] = self.meta(x, keep_managed)
                else:
                    out[self.text(k)] = self.any(x, keep_managed)
            return out
        return v


def normalise_status(s):
    """a metav1.Status: what is compared of it"""
    d = s.get("details") or {}
    det = {k: d[k] for k in ("name", "group", "kind", "retryAfterSeconds") if k in d}
    if "uid" in d:
        det["uid"] = "<uid>"
    if d.get("causes"):
        det["causes"] = sorted(d["causes"], key=lambda c: json.dumps(c, sort_keys=True))
    out = {"kind": "Status", "apiVersion": s.get("apiVersion")}
    for k in ("status", "reason", "code", "message"):
        if k in s:
            out[k] = s[k]
    for x in [out] + (det.get("causes") or []):
        if isinstance(x.get("message"), str):     # a whole object quoted in an error
            x["message"] = OBJECT_DUMP.sub('Invalid value: "<object>": ', x["message"])
    if det:
        out["details"] = det
    return out


def is_status(b):
    return isinstance(b, dict) and b.get("kind") == "Status" and b.get("apiVersion") == "v1"


def media(ct):
    """media type and the parameters that choose a representation"""
    if not ct:
        return ""
    parts = [p.strip() for p in ct.split(";")]
    keep = sorted(p for p in parts[1:] if p.split("=")[0] in ("as", "g", "v", "stream"))
    return ";".join([parts[0]] + keep)


def warnings_of(headers):
    out = []
    for h in headers.get_all("Warning") or []:
        m = re.match(r'\s*\d+\s+\S+\s+"((?:[^"\\]|\\.)*)"', h)
        out.append(re.sub(r"\\(.)", r"\1", m.group(1)) if m else h)
    return out


# ---------------------------------------------------------- protobuf (generic)

def pb_fields(b):
    i, n, out = 0, len(b), []

    def varint():
        nonlocal i
        r = s = 0
        while True:
            if i >= n or s > 63:
                raise ValueError
            c = b[i]
            i += 1
            r |= (c & 127) << s
            if c < 128:
                return r
            s += 7
    while i < n:
        tag = varint()
        num, wt = tag >> 3, tag & 7
        if num == 0 or num > 2000:
            raise ValueError
        if wt == 0:
            out.append((num, varint()))
        elif wt == 2:
            ln = varint()
            if i + ln > n:
                raise ValueError
            out.append((num, b[i:i + ln]))
            i += ln
        elif wt == 5 and i + 4 <= n:
            out.append((num, "f32:" + b[i:i + 4].hex()))
            i += 4
        elif wt == 1 and i + 8 <= n:
            out.append((num, "f64:" + b[i:i + 8].hex()))
            i += 8
        else:
            raise ValueError
    return out


def pb_value(x, norm, path):
    if not isinstance(x, bytes):
        return x
    if not x:
        return ""
    try:
        s = x.decode("utf-8")
        if all(ch.isprintable() or ch in "\n\t" for ch in s):
            return norm.text(s)
    except UnicodeDecodeError:
        pass
    try:
        return pb_message(x, norm, path)
    except ValueError:
        return "hex:" + x.hex()


def pb_message(b, norm, path):
    out = {}
    for num, x in pb_fields(b):
        if path == (1,):                      # ObjectMeta
            if num == 17:
                continue
            v = {5: "<uid>", 6: "<rv>", 8: "<now>", 9: "<now>"}.get(num)
            if v is None:
                v = pb_value(x, norm, path + (num,))
        else:
            v = pb_value(x, norm, path + (num,))
        out.setdefault(str(num), []).append(v)
    return out


def pb_answer(data, norm):
    if data[:4] != b"k8s\x00":
        return {"protobuf": "bad magic " + data[:4].hex()}
    try:
        unk = dict(pb_fields(data[4:]))
        tm = dict(pb_fields(unk.get(1, b"")))
        raw = unk.get(2, b"")
        kind = tm.get(2, b"").decode()
        res = {"protobuf": {"apiVersion": tm.get(1, b"").decode(), "kind": kind}}
        if kind not in ("Status",) and not kind.endswith("List"):
            meta = dict(pb_fields(raw)).get(1, b"")
            f = dict(pb_fields(meta))
            if 5 in f:
                norm.uids.add(f[5].decode())
            res["protobuf"]["message"] = pb_message(raw, norm, ())
        return res
    except (ValueError, UnicodeDecodeError, AttributeError):
        return {"protobuf": "undecodable"}


# ------------------------------------------------------------------- scenario

class StepError(Exception):
    pass


def subst(v, vars_):
    if isinstance(v, str):
        def one(m):
            if m.group(1) not in vars_:
                raise StepError("variable %s is not set (an earlier step did not answer as expected)" % m.group(1))
            return str(vars_[m.group(1)])
        v = re.sub(r"\$\{repeat:(.):(\d+)\}", lambda m: m.group(1) * int(m.group(2)), v)
        return re.sub(r"\$\{([A-Za-z0-9_]+)\}", one, v)
    if isinstance(v, list):
        return [subst(x, vars_) for x in v]
    if isinstance(v, dict):
        return {subst(k, vars_): subst(x, vars_) for k, x in v.items()}
    return v


class Watch(threading.Thread):
    """One watch request, read line by line within its limits."""

    def __init__(self, target, method, path, headers, spec):
        super().__init__(daemon=True)
        self.target, self.method, self.path, self.headers = target, method, path, headers
        self.want = spec.get("events", 0)
        self.seconds = float(spec.get("seconds", 5))
        self.quiet = float(spec.get("quiet", 0.3))
        self.bookmarks = spec.get("bookmarks", "ignore")
        self.open = threading.Event()
        self.status = None
        self.hdrs = None
        self.events = []
        self.body = None
        self.error = None
        self.closed_by_server = False
        self.until_close = spec.get("untilClose", False)

    def kept(self, e):
        """whether the event takes part in the comparison"""
        if e.get("type") != "BOOKMARK" or self.bookmarks in ("keep", "collapse"):
            return True
        ann = get_path(e.get("object"), "metadata.annotations") or get_path(e.get("object"), "rows[0].object.metadata.annotations") or {}
        return self.bookmarks == "initial" and "k8s.io/initial-events-end" in ann

    def counted(self):
        return sum(1 for e in self.events if self.kept(e))

    def run(self):
        c = Client(self.target)
        conn = self.target.connect(REQUEST_TIMEOUT)
        try:
            c._send(conn, self.method, self.path, self.headers, None)
            sock = conn.sock
            resp = conn.getresponse()
            self.status, self.hdrs = resp.status, resp.headers
            self.open.set()
            if resp.status != 200:
                self.body = resp.read()
                return
            end = time.monotonic() + self.seconds
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    break
                if not self.until_close and self.counted() >= self.want:
                    left = min(left, self.quiet)
                sock.settimeout(left)
                try:
                    line = resp.readline()
                except (socket.timeout, TimeoutError, ssl.SSLWantReadError):
                    break
                except OSError as e:
                    if "timed out" in str(e):
                        break
                    raise
                if not line:
                    self.closed_by_server = True
                    break
                if not line.strip():
                    continue
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.events.append({"type": "UNPARSABLE", "object": line[:200].decode("utf-8", "replace")})
                    break
        except Exception as e:  # noqa: BLE001 - reported as this step's failure
            self.error = "%s: %s" % (type(e).__name__, e)
        finally:
            self.open.set()
            try:
                conn.close()
            except OSError:
                pass


def collection_of(path):
    """object collection path if the path is one, else None"""
    p = path.split("?")[0].strip("/").split("/")
    if p[0] == "api":
        rest, base = p[2:], 2
    elif p[0] == "apis":
        rest, base = p[3:], 3
    else:
        return None
    if len(p) <= base:
        return None
    if rest[0] == "namespaces" and len(rest) == 3:
        return "/" + "/".join(p)
    if len(rest) == 1:
        return "/" + "/".join(p)
    return None


class Scenario:
    def __init__(self, target, doc):
        self.target, self.doc = target, doc
        self.name = doc["scenario"]
        self.run = "q7" + "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
        self.vars = {"run": self.run}
        self.norm = Normaliser(self.run)
        self.client = Client(target)
        self.created = []
        self.namespaces = []
        self.watches = {}
        self.unreachable = 0      # requests in a row that got no answer

    # -- set-up and clean-up
    def setup(self):
        for var, spec in (self.doc.get("namespaces") or {}).items():
            name = "%s-%s" % (spec.get("prefix", var), self.run)
            self.vars[var] = name
            obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": spec.get("labels") or {}}}
            st, _, data = self.client.request("POST", "/api/v1/namespaces", {"Content-Type": "application/json"},
                                              json.dumps(obj).encode())
            if st not in (200, 201):
                raise StepError("namespace %s was not created: %d %s" % (name, st, data[:200]))
            self.namespaces.append(name)
            try:
                self.norm.uids.add(json.loads(data)["metadata"]["uid"])
            except (ValueError, KeyError):
                pass

    def cleanup(self):
        ns_paths = [p for p in self.created if p.startswith("/api/v1/namespaces/") and p.count("/") == 4]
        plain = [p for p in self.created if p not in ns_paths]
        for p in reversed(plain):
            self.remove(p)
        for p in ns_paths:
            self.namespaces.append(p.rsplit("/", 1)[1])
        for n in dict.fromkeys(self.namespaces):
            self.remove_namespace(n)
        self.client.close()

    def quietly(self, method, path, body=None, ctype="application/json"):
        if self.unreachable >= MAX_TRANSPORT_ERRORS:
            return 0, {}
        try:
            st, _, data = self.client.request(method, path, {"Content-Type": ctype},
                                              None if body is None else json.dumps(body).encode(), timeout=10)
            try:
                return st, json.loads(data)
            except ValueError:
                return st, {}
        except Exception:  # noqa: BLE001 - cleaning up is best effort
            self.unreachable += 1
            return 0, {}

    def remove(self, p):
        st, b = self.quietly("DELETE", p + "?gracePeriodSeconds=0&propagationPolicy=Background")
        if st in (200, 202) and isinstance(b, dict) and (b.get("metadata") or {}).get("finalizers") \
                and "customresourcedefinitions" not in p:
            self.quietly("PATCH", p, {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    def remove_namespace(self, n):
        self.quietly("DELETE", "/api/v1/namespaces/" + n)
        st, b = self.quietly("GET", "/api/v1/namespaces/" + n)
        if st == 200 and isinstance(b, dict):
            if (b.get("metadata") or {}).get("finalizers"):
                self.quietly("PATCH", "/api/v1/namespaces/" + n, {"metadata": {"finalizers": None}},
                             "application/merge-patch+json")
            b["spec"] = {"finalizers": []}
            (b.get("metadata") or {}).pop("resourceVersion", None)
            self.quietly("PUT", "/api/v1/namespaces/%s/finalize" % n, b)

    # -- one step
    def prepared(self, step):
        path = subst(step["path"], self.vars)
        headers = {}
        body = None
        if "body" in step:
            body = json.dumps(subst(step["body"], self.vars), separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        elif "bodyText" in step:
            body = subst(step["bodyText"], self.vars).encode()
            headers["Content-Type"] = "application/json"
        elif "bodyBase64" in step:
            body = base64.b64decode(step["bodyBase64"])
            headers["Content-Type"] = "application/vnd.kubernetes.protobuf"
        elif "bodyFrom" in step:
            if step["bodyFrom"] not in self.vars:
                raise StepError("variable %s is not set" % step["bodyFrom"])
            body = self.vars[step["bodyFrom"]]
            if not isinstance(body, bytes):
                body = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        headers.update(subst(step.get("headers") or {}, self.vars))
        return path, headers, body

    def answer(self, status, headers, data, step):
        ans = {"status": status, "contentType": media(headers.get("Content-Type"))}
        w = [self.norm.text(x) for x in warnings_of(headers)]
        if w:
            ans["warnings"] = w
        for h in step.get("compareHeaders") or []:
            ans.setdefault("headers", {})[h] = headers.get(h)
        for var, h in (step.get("saveHeaders") or {}).items():
            if headers.get(h) is not None:
                self.vars[var] = headers.get(h)
        if step.get("saveBody"):
            self.vars[step["saveBody"]] = data
        if step.get("bodyMode") == "ignore":
            return ans, None
        if ans["contentType"].startswith("application/vnd.kubernetes.protobuf"):
            ans["body"] = pb_answer(data, self.norm)
            return ans, None
        raw = None
        if data and ("json" in ans["contentType"] or (step.get("select") and data[:1] == b"{")):
            try:
                raw = json.loads(data)
            except ValueError:
                ans["body"] = {"unparsable": data[:200].decode("utf-8", "replace")}
                return ans, None
        else:
            ans["text"] = self.scrub(self.norm.text(data.decode("utf-8", "replace")), step)
            return ans, None
        self.norm.learn(raw)
        ans["body"] = self.body(raw, step)
        return ans, raw

    def scrub(self, s, step):
        for rx, to in step.get("maskText") or []:
            s = re.sub(rx, to, s)
        return s

    def scrub_all(self, v, step):
        if not step.get("maskText"):
            return v
        if isinstance(v, str):
            return self.scrub(v, step)
        if isinstance(v, list):
            return [self.scrub_all(x, step) for x in v]
        if isinstance(v, dict):
            return {k: self.scrub_all(x, step) for k, x in v.items()}
        return v

    def body(self, raw, step):
        out = self.norm.any(raw, bool(step.get("compareManagedFields")))
        if step.get("select") and not is_status(raw):
            out = {p: walk_path(out, parse_path(p)) for p in step["select"]}
        if is_status(out):
            out = normalise_status(out)
            if step.get("messageOrder") == "any" and " is invalid: " in out.get("message", ""):
                out["message"] = out["message"].split(" is invalid: ")[0] + " is invalid: <as in causes>"
        for p in step.get("mask") or []:
            if step.get("select"):
                for q in step["select"]:
                    if isinstance(out, dict) and q in out:
                        for x in out[q]:
                            mask_path(x, parse_path(p))
            else:
                mask_path(out, parse_path(p))
        return self.scrub_all(out, step)

    def track(self, step, path, status, raw, ans):
        """remembers what was created, for the clean-up"""
        if raw is None and isinstance(ans.get("body"), dict) and "protobuf" in ans["body"]:
            name = get_path(ans["body"], "protobuf.message.1[0].1[0]")
            raw = {"metadata": {"name": name.replace("${run}", self.run) if isinstance(name, str) else None}}
        if status not in (200, 201) or not isinstance(raw, dict) or "dryRun=All" in path:
            return
        name = (raw.get("metadata") or {}).get("name") if isinstance(raw.get("metadata"), dict) else None
        if not name or raw.get("kind", "").endswith(("Review", "List")):
            return
        col = collection_of(path)
        if step["method"] == "POST" and col:
            self.created.append(col + "/" + name)
        elif step["method"] in ("PATCH", "PUT") and status == 201 and not col:
            self.created.append(path.split("?")[0])

    def watch_answer(self, w, step):
        if w.error:
            raise StepError("watch failed: " + w.error)
        if w.status is None:
            raise StepError("watch was not answered in time")
        if w.status != 200:
            ans, _ = self.answer(w.status, w.hdrs, w.body or b"", step)
            return ans
        ans = {"status": 200, "contentType": media(w.hdrs.get("Content-Type"))}
        wn = warnings_of(w.hdrs)
        if wn:
            ans["warnings"] = wn
        evs = []
        events = [e for e in w.events if w.kept(e)]
        for e in events:
            self.norm.learn(e.get("object"))
        for e in events:
            n = {"type": e.get("type"), "object": self.body(e.get("object"), step)}
            if n["type"] == "BOOKMARK" and w.bookmarks == "collapse" and evs and evs[-1] == n:
                continue
            evs.append(n)
        ans["events"] = evs
        if w.until_close:
            ans["closedByServer"] = w.closed_by_server
        last = [e for e in w.events if isinstance(e.get("object"), dict)]
        if last:
            for var, p in (step.get("saveAs") or {}).items():
                got = get_path(last[-1]["object"], p)
                if got is not None:
                    self.vars[var] = got
        return ans

    def step(self, step):
        if step.get("wait"):
            time.sleep(float(step["wait"]))
        if "collect" in step:
            w = self.watches.get(step["collect"])
            if w is None:
                raise StepError("no such watch: " + step["collect"])
            w.join(w.seconds + REQUEST_TIMEOUT)
            if w.is_alive():
                raise StepError("watch did not end in time")
            return self.watch_answer(w, step)
        path, headers, body = self.prepared(step)
        if "watch" in step:
            w = Watch(self.target, step["method"], path, headers, step["watch"])
            w.start()
            if step["watch"].get("background"):
                self.watches[step["id"]] = w
                w.open.wait(3)
                return None
            w.join(w.seconds + REQUEST_TIMEOUT + 1)
            if w.is_alive():
                raise StepError("watch did not end in time")
            return self.watch_answer(w, step)
        until = step.get("until")
        deadline = time.monotonic() + float((until or {}).get("timeout", 15))
        while True:
            status, hdrs, data = self.client.request(step["method"], path, headers, body,
                                                     timeout=float(step.get("timeout", REQUEST_TIMEOUT)))
            ans, raw = self.answer(status, hdrs, data, step)
            self.track(step, path, status, raw, ans)
            if until:
                ok = True
                if "status" in until:
                    ok = status == until["status"]
                if ok and "path" in until:
                    ok = get_path(raw, subst(until["path"], self.vars)) == subst(until.get("equals"), self.vars)
                if not ok and time.monotonic() < deadline:
                    time.sleep(0.15)
                    continue
                if not ok:
                    ans["untilReached"] = False
            break
        for var, p in (step.get("saveAs") or {}).items():
            got = get_path(raw, p) if raw is not None else None
            if got is not None:
                self.vars[var] = got
        return ans

    def play(self):
        """[(step, answer or None, error or None)]"""
        out = []
        start = time.monotonic()
        try:
            try:
                self.setup()
            except Exception as e:  # noqa: BLE001
                self.unreachable += 0 if isinstance(e, StepError) else MAX_TRANSPORT_ERRORS
                msg = "set-up: %s: %s" % (type(e).__name__, e)
                return [(s, None, msg) for s in self.doc["steps"]]
            for s in self.doc["steps"]:
                if time.monotonic() - start > SCENARIO_LIMIT:
                    out.append((s, None, "scenario took too long"))
                    continue
                if self.unreachable >= MAX_TRANSPORT_ERRORS:
                    out.append((s, None, "not tried: the server did not answer %d requests in a row" % self.unreachable))
                    continue
                try:
                    at = time.monotonic()
                    out.append((s, self.step(s), None))
                    self.unreachable = 0
                    if time.monotonic() - at > SLOW:
                        print("slow %s/%s %.1fs" % (self.name, s["id"], time.monotonic() - at), file=sys.stderr)
                except StepError as e:
                    out.append((s, None, str(e)))
                except Exception as e:  # noqa: BLE001
                    self.unreachable += 1
                    out.append((s, None, "%s: %s" % (type(e).__name__, e)))
            return out
        finally:
            try:
                self.cleanup()
            except Exception:  # noqa: BLE001
                pass


# ----------------------------------------------------------------- comparison

def short(v):
    s = json.dumps(v, sort_keys=True, ensure_ascii=False)
    return s if len(s) < 260 else s[:257] + "..."


def diff(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        out = []
        for k in sorted(set(want) | set(got)):
            p = path + "." + k if path else k
            if k not in got:
                out.append("%s: missing, want %s" % (p, short(want[k])))
            elif k not in want:
                out.append("%s: unexpected %s" % (p, short(got[k])))
            else:
                out.extend(diff(want[k], got[k], p))
        return out
    if isinstance(want, list) and isinstance(got, list):
        out = []
        if len(want) != len(got):
            out.append("%s: %d elements, want %d" % (path, len(got), len(want)))
        for i, (a, b) in enumerate(zip(want, got)):
            out.extend(diff(a, b, "%s[%d]" % (path, i)))
        return out
    if type(want) is not type(got) and not (isinstance(want, (int, float)) and isinstance(got, (int, float))
                                            and not isinstance(want, bool) and not isinstance(got, bool)):
        return ["%s: got %s, want %s" % (path or "answer", short(got), short(want))]
    if want != got:
        return ["%s: got %s, want %s" % (path or "answer", short(got), short(want))]
    return []


def loosened(ans):
    """the same answer without the texts of an error"""
    a = json.loads(json.dumps(ans))
    b = a.get("body")
    if is_status(b):
        b.pop("message", None)
        for c in (b.get("details") or {}).get("causes") or []:
            c.pop("message", None)
        if (b.get("details") or {}).get("causes"):
            b["details"]["causes"].sort(key=lambda c: json.dumps(c, sort_keys=True))
    a.pop("text", None)
    return a


def compare(want, got, loose):
    if loose:
        want, got = loosened(want), loosened(got)
    return diff(want, got)


# ----------------------------------------------------------------------- main

def kubeconfig(path):
    """server and credentials of a kubeconfig with one cluster and one user"""
    text = open(path, encoding="utf-8").read()

    def val(key):
        m = re.search(r'["\']?\b%s["\']?\s*:\s*(?:"([^"]*)"|\'([^\']*)\'|([^\s,}]+))' % re.escape(key), text)
        return next((g for g in m.groups() if g is not None), None) if m else None
    import tempfile

    def datafile(key):
        if val(key):
            p = val(key)
            return p if os.path.isabs(p) else os.path.join(os.path.dirname(os.path.abspath(path)), p)
        if val(key + "-data"):
            f = tempfile.NamedTemporaryFile(delete=False)
            f.write(base64.b64decode(val(key + "-data")))
            f.close()
            return f.name
        return None
    return {"server": val("server"), "token": val("token"), "insecure": val("insecure-skip-tls-verify") == "true",
            "ca": datafile("certificate-authority"), "cert": datafile("client-certificate"), "key": datafile("client-key")}


def documents(d, kind):
    """The documents of d/kind/ or d/kind.jsonl.gz by name."""
    folder = os.path.join(d, kind)
    if os.path.isdir(folder):
        out = {}
        for f in sorted(os.listdir(folder)):
            if f.endswith(".json"):
                with open(os.path.join(folder, f), encoding="utf-8") as h:
                    out[f[:-5]] = json.load(h)
        return out
    packed = folder + ".jsonl.gz"
    if not os.path.exists(packed):
        return {}
    with gzip.open(packed, "rt", encoding="utf-8") as h:
        rows = [json.loads(line) for line in h]
    return {r["file"][:-5]: r["document"] for r in rows}


def load(d, only):
    return [doc for name, doc in documents(d, "scenarios").items()
            if not only or any(fnmatch.fnmatch(name, p) or p in name for p in only)]


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("mode", choices=["check", "record", "list"])
    ap.add_argument("--dir", default=HERE, help="folder that holds scenarios and golden, as folders or .jsonl.gz (default: api)")
    ap.add_argument("--server")
    ap.add_argument("--token")
    ap.add_argument("--insecure", action="store_true")
    ap.add_argument("--ca")
    ap.add_argument("--kubeconfig")
    ap.add_argument("--only", action="append", help="glob or substring of scenario names (may repeat)")
    ap.add_argument("--jobs", type=int, default=4, help="scenarios run at the same time")
    ap.add_argument("--json", metavar="FILE", help="write a summary as JSON ('-': standard output)")
    ap.add_argument("--loose-tags", default="", help="comma-separated tags of steps whose error texts are not compared")
    ap.add_argument("--diffs", type=int, default=3, help="differences printed per step")
    ap.add_argument("--verbose", action="store_true", help="print passing steps too")
    a = ap.parse_args()

    docs = load(a.dir, a.only)
    if a.mode == "list":
        for d in docs:
            print("%-44s %3d steps" % (d["scenario"], len(d["steps"])))
        print("%d scenarios, %d steps" % (len(docs), sum(len(d["steps"]) for d in docs)))
        return 0
    kc = kubeconfig(a.kubeconfig) if a.kubeconfig else {}
    server = a.server or kc.get("server")
    if not server:
        ap.error("--server or --kubeconfig is needed")
    target = Target(server, token=a.token or kc.get("token"), ca=a.ca or kc.get("ca"),
                    insecure=a.insecure or kc.get("insecure", False), cert=kc.get("cert"), key=kc.get("key"))
    try:
        probe = Client(target)
        probe.request("GET", "/version", timeout=10)
        probe.close()
    except Exception as e:  # noqa: BLE001
        print("the server does not answer: %s: %s" % (type(e).__name__, e))
        print("0 passed, %d failed" % sum(len(d["steps"]) for d in docs))
        return 1
    loose = {t for t in a.loose_tags.split(",") if t}
    gd = os.path.join(a.dir, "golden")
    if a.mode == "record":
        os.makedirs(gd, exist_ok=True)
    goldens = documents(a.dir, "golden") if a.mode == "check" else {}
    passed = failed = 0
    summary = []
    lock = threading.Lock()

    def one(doc):
        nonlocal passed, failed
        t0 = time.monotonic()
        result = Scenario(target, doc).play()
        lines, rec = [], {}
        ok = bad = 0
        gfile = os.path.join(gd, doc["scenario"] + ".json")
        golden = goldens.get(doc["scenario"], {}).get("steps", {})
        fails = []
        for s, ans, err in result:
            sid = "%s/%s" % (doc["scenario"], s["id"])
            if a.mode == "record":
                if err:
                    bad += 1
                    lines.append("%s: ERROR %s" % (sid, err))
                    continue
                if ans is None:
                    continue
                if "want" in s and ans["status"] != s["want"]:
                    bad += 1
                    lines.append("%s: status %d, the scenario wants %d: %s"
                                 % (sid, ans["status"], s["want"], short(ans.get("body", ans.get("text")))[:400]))
                else:
                    ok += 1
                if s.get("compare", True):
                    rec[s["id"]] = ans
                continue
            if err is None and (ans is None or not s.get("compare", True)):
                # a step that is only there for its effect
                if ans is not None and "want" in s and ans["status"] != s["want"]:
                    err = "status: got %d, want %d (preparing step): %s" % (
                        ans["status"], s["want"], short(ans.get("body", ans.get("text"))))
                else:
                    continue
            if err is not None:
                d = [err]
            elif s["id"] not in golden:
                d = ["no recorded answer"]
            else:
                d = compare(golden[s["id"]], ans, bool(loose & set(s.get("tags") or [])))
            if d:
                bad += 1
                fails.append({"step": sid, "differences": d[:20]})
                more = "" if len(d) <= a.diffs else " (+%d more)" % (len(d) - a.diffs)
                lines.append("FAIL %s: %s%s" % (sid, "; ".join(d[:a.diffs]), more))
            else:
                ok += 1
                if a.verbose:
                    lines.append("ok   %s" % sid)
        if a.mode == "record":
            with open(gfile, "w", encoding="utf-8") as h:
                json.dump({"scenario": doc["scenario"], "steps": rec}, h, indent=1, ensure_ascii=False)
                h.write("\n")
        with lock:
            passed += ok
            failed += bad
            summary.append({"scenario": doc["scenario"], "passed": ok, "failed": bad,
                            "seconds": round(time.monotonic() - t0, 2), "failures": fails})
            for ln in lines:
                print(ln, flush=True)

    with concurrent.futures.ThreadPoolExecutor(max(1, a.jobs)) as ex:
        for f in [ex.submit(one, d) for d in docs]:
            f.result()
    if a.json:
        areas = {}
        for s in summary:
            e = areas.setdefault(s["scenario"].split("-")[0], {"passed": 0, "failed": 0})
            e["passed"] += s["passed"]
            e["failed"] += s["failed"]
        doc = {"passed": passed, "failed": failed, "areas": areas,
               "scenarios": sorted(summary, key=lambda s: s["scenario"])}
        if a.json == "-":
            print(json.dumps(doc, indent=1))
        else:
            with open(a.json, "w", encoding="utf-8") as h:
                json.dump(doc, h, indent=1)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
