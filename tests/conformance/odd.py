#!/usr/bin/env python3
"""Sends single odd requests to two API servers and reports where their answers differ, by kind: bodies that are cut or have
wrong values, text that is no YAML, unusual media types, parameters and paths. Creates are dry runs. The first server is the
reference. Python 3.11+, standard library only. See compare.md."""

import argparse
import collections
import json
import os
import random
import re
import sys

import compare
import replay

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = os.path.join(HERE, "../../crates/apiserver/src/yaml/parse/cases.jsonl")
NAMESPACE = "/api/v1/namespaces/default/"

OBJECTS = [
    (NAMESPACE + "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}],
        "tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {"x": "y"}}}),
    (NAMESPACE + "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"},
                                "binaryData": {"x": "aGk="}}),
    (NAMESPACE + "services", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}}}),
    (NAMESPACE + "resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                                    "spec": {"hard": {"cpu": "1"}}}),
    ("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {
        "taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}}}),
    ("/apis/apps/v1/namespaces/default/deployments", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "d", "count": 1, "selectors": [{"cel": {"expression": "true"}}]}}]}}}),
    ("/apis/resource.k8s.io/v1/resourceslices", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": "s"}, "spec": {"driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}]}}),
]
VALUES = [None, True, 1, -1, 1.5, 1e30, "", "x", [], {}, [1], ["x"], {"a": 1}, "1Gi", "-1", "1x", [None], [[]], "é\u0000",
          99999999999999999999, [{"a": {}}], "0x1", "2020-01-01T00:00:00Z", -0.0]
PIECES = ["", "{", "}", "x", '"', ",", "\\", ":", "\t", "[", "1"]
BODY_TYPES = ["application/json"] * 6 + [
    "application/json; charset=utf-8", "application/yaml", None, "text/plain", "application/cbor", "application/cbor-seq",
    "application/vnd.kubernetes.protobuf", "foo", "*/*", "application/JSON", "application/json, application/yaml"]
PATCH_TYPES = ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
               "application/apply-patch+yaml", "application/apply-patch+cbor", "application/json", None]
PATCHES = ["", "{}", "[]", "null", "1", "{", '[{"op":"add"}]', '[{"op":"foo","path":"/a"}]', '{"metadata":{"labels":1}}', "[1]",
           '{"data":{"a":null}}', '[{"op":"remove","path":"/data/z"}]', '{"data":[]}', '{"kind":"Pod"}', '{"apiVersion":"v2"}',
           '{"$patch":"delete"}', "a: [", "apiVersion: v1\nkind: Foo", '[{"op":"move","from":"/a","path":"/b"}]']
ACCEPT = [None] * 12 + [
    "*/*", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf", "text/html", ",", "application/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Foo;v=v1;g=meta.k8s.io", "application/json;q=0.1,application/yaml;q=0.9", "application/json;stream=watch"]
QUERIES = [""] * 12 + [
    "fieldValidation=Strict", "fieldValidation=x", "dryRun=x", "fieldManager=" + "a" * 200, "pretty=true", "limit=x", "limit=-1",
    "continue=abc", "resourceVersion=x", "resourceVersionMatch=NotOlderThan", "labelSelector=a%3D%3D%3D", "labelSelector=a+in+(",
    "fieldSelector=foo%3Dbar", "fieldSelector=a", "timeoutSeconds=x", "timeout=x", "sendInitialEvents=true", "force=x",
    "propagationPolicy=x", "gracePeriodSeconds=-1", "orphanDependents=x", "%zz", "includeObject=x"]
PATHS = """/ /api /api/ /apis /apis/ /api/v1/ /api/v2 /apis/apps /apis/apps/v9 /apis/foo/v1/bars /foo /healthz/ /healthz/ping
/healthz/foo /livez?verbose /readyz?exclude=ping /version/ /metrics/ /openapi /openapi/v3/foo /openapi/v4 /logs/ /debug/flags
/debug/flags/ /flagz /statusz /configz /.well-known/ /openid/ //api/v1 /api/v1/pods/ /api/v1/namespaces/default/foo
/api/v1/namespaces/default/pods/x/foo /api/v1/namespaces/default/pods/a%2Fb /api/v1/watch/foo /api/v1/namespaces/x/finalize
/apis/resource.k8s.io/v1/foo /apis/resource.k8s.io/v1/namespaces/default/resourceslices /swagger.json /ui /API/v1
/api/v1/namespaces/default/bindings /apis/apps/v1/namespaces/default/deployments/x/scale""".split()
METHODS = ["GET"] * 4 + ["POST", "PUT", "PATCH", "HEAD", "OPTIONS", "FOO", "TRACE", "get"]


def places(value, path=()):
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, path + (key,))


def changed(r, value):
    """a copy with one wrong or unknown member"""
    value = json.loads(json.dumps(value))
    path = r.choice(list(places(value)))
    if not path:
        return r.choice(VALUES)
    at = value
    for key in path[:-1]:
        at = at[key]
    unknown = isinstance(path[-1], str) and r.random() < 0.1
    at[path[-1] + "X" if unknown else path[-1]] = r.choice(VALUES)
    return value


def cut(r, text):
    """with a piece that does not belong there, or without its end"""
    at = r.randrange(len(text) + 1)
    return r.choice([text[:at] + r.choice(PIECES) + text[at + r.randrange(2):], text[:at], text + r.choice(["x", "{}", "null"])])


def question(r, texts):
    """method, path, media types of body and answer, body"""
    query, accept, what = r.choice(QUERIES), r.choice(ACCEPT), r.random()
    dry = "?dryRun=All&" + query
    if what < 0.45:
        path, seed = r.choice(OBJECTS)
        body = json.dumps(changed(r, seed))
        return "POST", path + dry, r.choice(BODY_TYPES), accept, cut(r, body) if r.random() < 0.25 else body
    if what < 0.6:
        body = r.choice(texts)
        if r.random() < 0.5:
            indented = "\n".join("  " + line for line in body.split("\n"))
            body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n" + r.choice(["", "data:\n"]) + indented
        if r.random() < 0.3:
            return "PATCH", NAMESPACE + "configmaps/m" + dry + "&fieldManager=a", "application/apply-patch+yaml", accept, body
        return "POST", NAMESPACE + "configmaps" + dry, "application/yaml", accept, body
    if what < 0.72:
        path = NAMESPACE + "configmaps/" + r.choice(["odd", "nobody"])
        return "PATCH", path + dry, r.choice(PATCH_TYPES), accept, r.choice(PATCHES)
    if what < 0.85:
        return "GET", r.choice(OBJECTS)[0] + r.choice(["", "/nobody"]) + "?" + query, None, accept, None
    method, path = r.choice(METHODS), r.choice(PATHS)
    body = r.choice(["", "{}", "x"]) if method in ("POST", "PUT", "PATCH") else None
    return method, path, r.choice(BODY_TYPES) if body is not None else None, accept, body


def ask(client, method, path, kind, accept, body):
    """what of an answer is compared: all of an error, of other answers whether there are any"""
    headers = {"Content-Type": kind, "Accept": accept}
    status, headers, data = client.request(method, path, headers, None if body is None else body.encode("utf-8", "surrogatepass"))
    text = data.decode("utf-8", "replace")
    # Where the source of a server was, and what differs between two calls.
    text = re.sub(r'in scheme \\"[^"]*\\"', "in scheme <…>", text)
    text = re.sub(r"current: \d+", "current: <n>", text)
    try:
        text = json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        pass
    return [status, headers.get("content-type"), headers.get_all("warning"), text if status >= 400 else bool(text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference")
    parser.add_argument("other")
    parser.add_argument("--count", type=int, default=2000, help="requests")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    clients = [replay.Client(compare.target(path)) for path in (args.reference, args.other)]
    with open(TEXTS, encoding="utf-8") as lines:
        texts = [json.loads(line)["in"] for line in lines]
    stored = json.dumps({"metadata": {"name": "odd"}, "data": {"a": "b"}}).encode()
    for client in clients:
        client.request("POST", NAMESPACE + "configmaps", {"Content-Type": "application/json"}, stored)
    kinds = collections.defaultdict(list)
    for number in range(args.count):
        asked = question(random.Random("%d %d" % (args.seed, number)), texts)
        want, got = (ask(client, *asked) for client in clients)
        if want != got:
            shape = re.sub(r'\\?"[^"]*"|\d+', "…", "%s %s" % (want, got))
            kinds[shape[:160]].append((number, asked, want, got))
    for client in clients:
        client.request("DELETE", NAMESPACE + "configmaps/odd")
    for found in sorted(kinds.values(), key=len, reverse=True):
        number, asked, want, got = found[0]
        print("%d times, first in request %d: %s\n  reference: %s\n  other:     %s" % (len(found), number, asked, want, got))
    differ = sum(map(len, kinds.values()))
    print("%d requests, %d answers differ, of %d kinds" % (args.count, differ, len(kinds)))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
