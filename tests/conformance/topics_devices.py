"""Random conversations for compare.py about devices: claims through all parts of their life and in all versions, their
templates and classes, slices, taints, and pods that use claims. Most of what is asked is valid."""

import copy
import json

import mutate

TABLE = mutate.TABLE
MERGE, STRATEGIC, JSON, APPLY = ("application/merge-patch+json", "application/strategic-merge-patch+json",
                                 "application/json-patch+json", "application/apply-patch+yaml")
ROOT = "/apis/resource.k8s.io/"
VERSIONS = ["v1", "v1", "v1beta2", "v1beta1"]
DRIVERS = ["gpu.example.com", "gpu.example.com", "nic.example.com", "Bad", "", "${repeat:a:64}"]
CELS = ["true", "device.driver == 'gpu.example.com'", "device.attributes['gpu.example.com'].model == 'a'", "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))",
        "device.driver", "devices.x", "", "device.attributes['gpu.example.com'].model.x == 1", "1 +", "size(device.attributes) > 'a'", "device.attributes[1]", "device.foo", "device.allowMultipleAllocations",
        "device.attributes['a'].exists(x, x == 1)", "cel.bind(g, device.attributes['gpu.example.com'], g.model == 'a' && g.size > 2)", "semver('1.0.0').isLessThan(device.attributes['a'].v)",
        "device.driver.matches('^g.*$')", "device.driver.matches('(')", "[1,2,3].all(x, [1,2,3].all(y, [1,2,3].all(z, device.driver.contains(string(x+y+z)))))", "device == null", "'a' in device.attributes",
        "${repeat:a:300}", "has(device.attributes.a)", "quantity('x').isLessThan(quantity('1'))", "ip('1.2.3.4').isLoopback()", "device.driver.upperAscii() == 'A'", "device.driver == \"ä\"", "dyn(device).x", "optional.of(1).hasValue()",
        "device.attributes['a'].?b.orValue(1) == 1", "sets.contains([1],[1])", "device.driver.format([1])", "duration('1h') > duration('1m')", "timestamp(1) == timestamp(2)", "math.greatest(1,2) == 2", "device.attributes['a'].b.includes('c')"]
PARAMETERS = [{"a": 1}, {"apiVersion": "x/v1", "kind": "C", "z": [1, None, 1.5, {"b": None}]}, {}, "a", 1, None, [], {"big": 12345678901234567890, "float": 1e3, "html": "<a&b>"}, {"s": "${repeat:x:10240}"}]
QUANTITIES = ["1", "2Gi", "1024Mi", "0.5", "1500m", "1e3", "-1", "0", "x", "100k", 5, "1.5Gi", "3000000000"]


def some(r, choices, share=0.75):
    """one of the first of the choices mostly"""
    return copy.deepcopy(choices[0] if r.random() < share else r.choice(choices))


def selectors(r):
    return [{"cel": {"expression": r.choice(CELS[:4]) if r.random() < 0.6 else r.choice(CELS)}} for _ in range(r.choice([1, 1, 2, 33 if r.random() < 0.05 else 1]))]


def tolerations(r):
    return [r.choice([{"key": "example.com/a", "operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}, {"operator": "Exists"}, {"effect": "NoExecute", "key": "a", "tolerationSeconds": r.choice([0, 60, -1])},
                      {"key": "a", "operator": "X"}, {}, {"key": "a b"}, {"key": "a", "operator": "Exists", "value": "v"}, {"key": "a", "effect": "None"}, {"key": "a", "value": "b b", "tolerationSeconds": 5}]) for _ in range(r.choice([1, 1, 2]))]


def capacity(r):
    return {"requests": {some(r, ["memory", "gpu.example.com/memory", "a/b/c", "", "x-y"]): r.choice(QUANTITIES[:4] if r.random() < 0.8 else QUANTITIES) for _ in range(r.choice([0, 1, 1, 2]))}}


def exact(r):
    out = {"deviceClassName": some(r, ["gpu.example.com", "", "Bad_", "nic.example.com"], 0.85)}
    for name, make in (("selectors", selectors), ("tolerations", tolerations), ("capacity", capacity)):
        if r.random() < 0.25:
            out[name] = make(r)
    if r.random() < 0.5:
        out["allocationMode"] = some(r, ["ExactCount", "All", "X", ""], 0.5)
    if r.random() < 0.5:
        out["count"] = r.choice([1, 2, 2, 0, -1, 33])
    if r.random() < 0.15:
        out["adminAccess"] = r.choice([True, False])
    return out


def request(r, name, version):
    if r.random() < 0.3:
        subs = [{"name": some(r, ["s%d" % i, "s0", "A", ""], 0.9), **exact(r)} for i in range(r.choice([1, 2, 2, 3, 9 if r.random() < 0.1 else 1]))]
        for sub in subs:
            if r.random() < 0.9:
                sub.pop("adminAccess", None)
        out = {"name": name, "firstAvailable": subs}
        if r.random() < 0.05:
            out["exactly"] = exact(r)
        return out
    if version == "v1beta1":
        return {"name": name, **exact(r)}
    out = {"name": name, "exactly": exact(r)}
    if r.random() < 0.05:
        out["firstAvailable"] = []
    if r.random() < 0.03:
        del out["exactly"]
    return out


def config(r):
    out = {"opaque": {"driver": some(r, DRIVERS, 0.85), "parameters": some(r, PARAMETERS)}}
    if r.random() < 0.3:
        out["requests"] = r.choice([["r0"], ["r0", "r1"], [], ["missing"], ["r0/s0"], ["r0", "r0"], ["A_"], ["r0/x/y"]])
    if r.random() < 0.04:
        out = r.choice([{}, {"opaque": {}}, {"opaque": None}])
    return out


def claim_spec(r, version):
    names = ["r%d" % i for i in range(r.choice([1, 1, 2, 2, 3]))]
    if r.random() < 0.05:
        names.append(r.choice(["r0", "", "A", "a.b", "${repeat:a:64}"]))
    devices = {"requests": [request(r, n, version) for n in names]}
    if r.random() < 0.3:
        devices["constraints"] = [r.choice([{"matchAttribute": "gpu.example.com/numa"}, {"requests": ["r0"], "matchAttribute": "gpu.example.com/numa"}, {"distinctAttribute": "gpu.example.com/slot"}, {"requests": ["missing"], "matchAttribute": "a/b"},
                                            {"matchAttribute": "numa"}, {}, {"matchAttribute": "a/b", "distinctAttribute": "a/b"}, {"requests": [], "matchAttribute": "a.b/c"}, {"requests": ["r0/s0"], "distinctAttribute": "a/-b"}])]
    if r.random() < 0.3:
        devices["config"] = [config(r) for _ in range(r.choice([1, 1, 2]))]
    if r.random() < 0.05:
        devices[r.choice(["requests", "constraints", "config"])] = r.choice([[], None, [{}], [None]])
    return {"devices": devices}


def node_selector(r):
    return r.choice([{"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
                     {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]},
                     {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchExpressions": [{"key": "b", "operator": "Gt", "values": ["1"]}]}]},
                     {"nodeSelectorTerms": []}, {}, {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a b", "operator": "X"}]}]}, {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]},
                     {"nodeSelectorTerms": [{}]}])


def result(r, name):
    out = {"request": name, "driver": some(r, DRIVERS, 0.93), "pool": some(r, ["pool", "a/b", "", "A_", "n1"], 0.9), "device": some(r, ["d0", "d1", "", "D"], 0.6)}
    for key, share, make in (("adminAccess", 0.08, lambda: r.choice([True, False])), ("tolerations", 0.1, lambda: tolerations(r)), ("bindingConditions", 0.12, lambda: r.choice([["a.example.com/ready"], ["a", "a"], [], ["a b"], ["a", "b", "c", "d", "e"]])),
                             ("bindingFailureConditions", 0.1, lambda: r.choice([["failed"], [], ["ready", "x y"]])), ("shareID", 0.12, lambda: r.choice(["11111111-2222-3333-4444-555555555555", "x", "", "11111111-2222-3333-4444-55555555555A"])),
                             ("consumedCapacity", 0.12, lambda: {r.choice(["memory", "a/b"]): r.choice(QUANTITIES)})):
        if r.random() < share:
            out[key] = make()
    return out


def allocation(r, names):
    out = {"devices": {"results": [result(r, n) for n in names]}}
    if r.random() < 0.25:
        out["devices"]["config"] = [{"source": some(r, ["FromClass", "FromClaim", "X", ""], 0.8), **config(r)}]
    if r.random() < 0.5:
        out["nodeSelector"] = node_selector(r) if r.random() < 0.5 else node_selector(type("First", (), {"choice": staticmethod(lambda x: x[0])}))
    if r.random() < 0.2:
        out["allocationTimestamp"] = r.choice(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.5Z", "2020-01-01T02:00:00+02:00", "x", None])
    if r.random() < 0.05:
        out = r.choice([{}, {"devices": {}}, {"devices": {"results": []}}, {"nodeSelector": {}}])
    return out


def device_status(r):
    out = {"driver": some(r, DRIVERS, 0.95), "pool": some(r, ["pool", "a/b", ""], 0.93), "device": some(r, ["d0", "d1", "missing"], 0.7)}
    if r.random() < 0.4:
        out["conditions"] = [{"type": some(r, ["Ready", "A", ""]), "status": some(r, ["True", "False", "x"]), "reason": some(r, ["R", "", "a b"], 0.9), "message": "m", "lastTransitionTime": some(r, ["2020-01-01T00:00:00Z", None, "x"], 0.95)}
                             for _ in range(r.choice([1, 1, 2, 9 if r.random() < 0.1 else 1]))]
    if r.random() < 0.3:
        out["data"] = some(r, PARAMETERS)
    if r.random() < 0.3:
        out["networkData"] = {k: v for k, v in (("interfaceName", r.choice(["eth0", "", "${repeat:a:257}"])), ("ips", r.choice([["10.0.0.1/24"], ["10.0.0.1"], ["2001:db8::1/64", "2001:DB8::2/64"], ["10.0.0.1/24", "10.0.0.1/24"], [], ["x"], ["010.0.0.1/24"]])),
                                                ("hardwareAddress", r.choice(["aa:bb", "", "${repeat:a:129}"]))) if r.random() < 0.7}
    if r.random() < 0.15:
        out["shareID"] = r.choice(["11111111-2222-3333-4444-555555555555", "x", ""])
    return out


def reserved(r):
    out = [r.choice([{"resource": "pods", "name": "p%d" % i, "uid": "u%d" % i}, {"resource": "pods", "name": "p%d" % i, "uid": "u%d" % i}, {"apiGroup": "a.example.com", "resource": "x", "name": "p", "uid": "u"}, {"resource": "pods", "name": "p", "uid": "u"},
                     {"resource": "", "name": "", "uid": ""}, {"resource": "pods", "name": "P_", "uid": "q"}, {}, {"resource": "Pods", "name": "p", "uid": "w", "apiGroup": "A_"}]) for i in range(r.choice([0, 1, 1, 2]))]
    return out


def status(r, names):
    out = {}
    if r.random() < 0.85:
        out["allocation"] = allocation(r, names)
    if r.random() < 0.4:
        out["reservedFor"] = reserved(r)
    if r.random() < 0.5:
        out["devices"] = [device_status(r) for _ in range(r.choice([0, 1, 1, 2]))]
    return out


def envelope(version, kind, name, **rest):
    return {"apiVersion": "resource.k8s.io/" + version, "kind": kind, "metadata": {"name": name}, **rest}


def write(t, collection, name, body, part=""):
    """one of the ways to bring an object, or its status, to a state"""
    r = t.r
    one = collection + "/" + name + part
    query = r.choice(["", "", "", "?fieldManager=" + r.choice("mn"), "?fieldValidation=Strict", "?dryRun=All", "?fieldValidation=Ignore"])
    key = "status" if part else "spec"
    how = r.choice(["put", "put", "merge", "merge", "strategic", "apply", "apply", "json"])
    whole = copy.deepcopy(body)
    if r.random() < 0.1:
        whole["metadata"].update(r.choice([{"labels": {"a": "b"}}, {"finalizers": ["a.example.com/f"]}, {"annotations": {"x": "y"}}, {"labels": {"a b": "c"}}, {"generation": 9}, {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}]))
    if how == "put":
        whole["metadata"].update(r.choice([{}, {"resourceVersion": "${rv}"}, {"resourceVersion": "1"}]) if any("saveAs" in s for s in t.steps) else {})
        t.add("PUT", one + query, whole)
    elif how == "apply":
        manager = r.choice(["fieldManager=m", "fieldManager=n", "fieldManager=n&force=true", "fieldManager=m&force=true", ""])
        if part and r.random() < 0.7:
            whole.pop("spec", None)
        t.add("PATCH", one + "?" + "&".join(x for x in (manager, query[1:]) if x and not ("fieldManager" in x and x != manager)), json.dumps(whole), APPLY)
    elif how == "json":
        value = whole.get(key, {})
        members = sorted(value) if isinstance(value, dict) else []
        ops = [r.choice([{"op": "add", "path": "/" + key, "value": value}, {"op": "replace", "path": "/" + key, "value": value}, {"op": "remove", "path": "/%s/%s" % (key, r.choice(members or ["x"]))},
                         *[{"op": "add", "path": "/%s/%s" % (key, m), "value": value[m]} for m in members], {"op": "test", "path": "/metadata/name", "value": name}])]
        t.add("PATCH", one + query, ops, JSON)
    else:
        value = whole.get(key)
        if isinstance(value, dict) and r.random() < 0.4:
            value = {k: v if r.random() < 0.8 else None for k, v in value.items() if r.random() < 0.7}
        t.add("PATCH", one + query, {key: value, **r.choice([{}, {"metadata": {"labels": {"l": r.choice(["m", None])}}}])}, MERGE if how == "merge" else STRATEGIC)


def look(t, plural, name, namespaced, versions):
    """one of the ways to see it"""
    r = t.r
    version = r.choice(versions)
    collection = ROOT + version + ("/namespaces/${ns}/" if namespaced else "/") + plural
    chosen = "labelSelector=" + r.choice(["a%3Db", "l", "%21l", "run%3Dx-${run}"]) if namespaced else "labelSelector=run%3Dx-${run}"
    field = r.choice(["", "&fieldSelector=metadata.name%3D" + name, "&fieldSelector=spec.driver%3Dgpu.example.com", "&fieldSelector=spec.nodeName%3Dn1", "&fieldSelector=spec.x%3D1"])
    t.add(*r.choice([
        ("GET", collection + "/" + name), ("GET", collection + "/" + name, None, None, r.choice([TABLE, mutate.METADATA, "application/yaml", "application/vnd.kubernetes.protobuf"])), ("GET", collection + "?" + chosen + field),
        ("GET", collection + "?" + chosen + field, None, None, r.choice([TABLE, mutate.METADATA_LIST, "application/vnd.kubernetes.protobuf"])), ("GET", collection + "?limit=1&" + chosen),
        ("GET", collection + "?watch=true&timeoutSeconds=1&" + r.choice(["resourceVersion=0", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "resourceVersion=0"]) + "&" + chosen, None, None, r.choice([None, TABLE, mutate.METADATA])),
        ("DELETE", collection + "/" + name + r.choice(["?dryRun=All", "?propagationPolicy=Foreground", "", "?gracePeriodSeconds=0"])), ("DELETE", collection + "?" + chosen + field + r.choice(["", "&dryRun=All"]))]))
    if "watch=true" in t.steps[-1]["path"]:
        t.steps[-1]["watch"] = {"events": 50, "seconds": 3, "untilClose": True, "bookmarks": "initial"}
        t.steps[-1].pop("saveAs", None)


def claims(t):
    """a claim through its life"""
    r = t.r
    if r.random() < 0.4:
        t.labels = {**t.labels, "resource.kubernetes.io/admin-access": "true"}
    version = r.choice(VERSIONS)
    path = lambda v: ROOT + v + "/namespaces/${ns}/resourceclaims"
    spec = claim_spec(r, version)
    t.add("POST", path(version) + r.choice(["", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=m"]), envelope(version, "ResourceClaim", "c", spec=spec))
    # One that is valid, so that the rest of the conversation is about more than a missing claim.
    subs = r.random() < 0.3
    plain = {"deviceClassName": "gpu.example.com"}
    spec = {"devices": {"requests": [{"name": "r0", "exactly": plain} if not subs else {"name": "r0", "firstAvailable": [{"name": "s0", **plain}, {"name": "s1", **plain, "count": 2}]},
                                     {"name": "r1", "exactly": {**plain, **r.choice([{}, {}, {"allocationMode": "All"}, {"count": 2}, {"adminAccess": True}])}}]}}
    t.add("POST", path("v1"), envelope("v1", "ResourceClaim", "d", spec=spec))
    names = ["r0/s0" if subs else "r0", "r1"] if r.random() < 0.85 else r.choice([["r0"], ["r1", "r0"], ["x"], [], ["r0/s9", "r1"], ["r0", "r0"]])
    for _ in range(r.randint(6, 10)):
        v, name = r.choice(VERSIONS), r.choice(["d", "d", "d", "d", "c", "missing"])
        how = r.random()
        if how < 0.55:
            body = envelope(v, "ResourceClaim", name, status=status(r, names))
            if v != "v1beta1":
                body["spec"] = spec
            write(t, path(v), name, body, "/status")
        elif how < 0.72:
            write(t, path(v), name, envelope(v, "ResourceClaim", name, spec=claim_spec(r, v) if r.random() < 0.7 or v == "v1beta1" else spec))
        else:
            look(t, "resourceclaims", name, True, VERSIONS)


def templates(t):
    """templates of claims"""
    r = t.r
    path = lambda v: ROOT + v + "/namespaces/${ns}/resourceclaimtemplates"
    for _ in range(r.randint(5, 9)):
        v, name = r.choice(VERSIONS), r.choice("ab")
        body = envelope(v, "ResourceClaimTemplate", name, spec={"spec": claim_spec(r, v)})
        if r.random() < 0.3:
            body["spec"]["metadata"] = r.choice([{"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"name": "x"}, {"labels": {"a b": "c"}}, {"finalizers": []}, {"finalizers": ["a/b"], "uid": "u"}, {"unknown": 1}, {}, {"creationTimestamp": None},
                                                 {"ownerReferences": []}, {"labels": {}, "namespace": "x"}, {"generation": 1}])
        r.choice([lambda: t.add("POST", path(v) + r.choice(["", "?fieldValidation=Strict"]), body), lambda: write(t, path(v), name, body), lambda: look(t, "resourceclaimtemplates", name, True, VERSIONS)])()


def classes(t):
    """classes of devices"""
    r = t.r
    for i in range(r.randint(5, 9)):
        v, name = r.choice(VERSIONS), r.choice("ab") + "-${run}.example.com"
        spec = {}
        for key, share, make in (("selectors", 0.6, lambda: selectors(r)), ("config", 0.4, lambda: [{k: x for k, x in config(r).items() if k != "requests"} for _ in range(r.choice([1, 2]))]),
                                 ("extendedResourceName", 0.4, lambda: r.choice(["example.com/gpu", "gpu", "kubernetes.io/gpu", "requests.example.com/gpu", "", "example.com/a b", "deviceclass.resource.kubernetes.io/x"]))):
            if r.random() < share:
                spec[key] = make()
        body = envelope(v, "DeviceClass", name, spec=spec)
        body["metadata"]["labels"] = {"run": "x-${run}"}
        collection = ROOT + v + "/deviceclasses"
        r.choice([lambda: t.add("POST", collection, body), lambda: write(t, collection, name, body), lambda: look(t, "deviceclasses", name, False, VERSIONS)])()


def device(r, i, version):
    basic = {}
    attribute = lambda: r.choice([{"int": 1}, {"string": "a"}, {"bool": True}, {"version": "1.2.3"}, {"version": "1.2"}, {"bool": False}, {"int": 0}, {"string": ""}, {}, {"int": 1, "string": "a"}, {"ints": [1, 2]}, {"strings": ["a"]}, {"string": "${repeat:a:65}"}, {"bools": []},
                                  {"versions": ["1.0.0", "x"]}])
    for key, share, make in (
            ("attributes", 0.5, lambda: {r.choice(["model", "gpu.example.com/model", "a b", "numa", "/x", "A.b/c", "x-y", "${repeat:a:33}"]) if r.random() < 0.3 else "a%d" % k: attribute() for k in range(r.choice([1, 2, 2, 33 if r.random() < 0.03 else 1]))}),
            ("capacity", 0.4, lambda: {some(r, ["memory", "gpu.example.com/memory", "a b"]): {"value": r.choice(QUANTITIES[:6]), **r.choice([{}, {}, {"requestPolicy": r.choice([
                {"default": "1Gi"}, {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}, {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, {"validValues": ["2Gi", "1Gi"], "default": "3Gi"}, {}, {"validRange": {"max": "1Gi"}},
                {"default": "1", "validRange": {"min": "2", "max": "1"}}, {"default": "1Gi", "validValues": []}, {"default": "1500Mi", "validRange": {"min": "1Gi", "step": "1Gi"}}])}])}}),
            ("taints", 0.2, lambda: [r.choice([{"key": "a/b", "effect": "NoSchedule"}, {"key": "a/b", "value": "v", "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z"}, {"key": "", "effect": "X"}, {"key": "a/b", "effect": "None"}, {"effect": "NoSchedule"}]) for _ in range(r.choice([1, 1, 2, 5, 17]))]),
            ("consumesCounters", 0.2, lambda: [{"counterSet": some(r, ["cs", "missing", "A"]), "counters": {some(r, ["c", "A"]): {"value": r.choice(QUANTITIES)}}} for _ in range(r.choice([1, 1, 2]))]),
            ("nodeName", 0.05, lambda: r.choice(["n1", ""])), ("nodeSelector", 0.05, lambda: node_selector(r)), ("allNodes", 0.05, lambda: r.choice([True, False])),
            ("bindingConditions", 0.1, lambda: r.choice([["a"], ["a", "a"], [], ["a b"]])), ("bindingFailureConditions", 0.1, lambda: r.choice([["b"], []])), ("bindsToNode", 0.1, lambda: r.choice([True, False])),
            ("allowMultipleAllocations", 0.2, lambda: r.choice([True, False])), ("nodeAllocatableResourceMappings", 0.07, lambda: r.choice([{"cpu": {"allocationMultiplier": "1"}}, {"memory": {"capacityKey": "memory"}}, {"x": {}}]))):
        if r.random() < share:
            basic[key] = make()
    name = some(r, ["d%d" % i, "d0", "D", ""], 0.95)
    if version == "v1beta1":
        return {"name": name, "basic": basic} if r.random() < 0.95 else {"name": name}
    return {"name": name, **basic}


def slices(t):
    """slices of a pool"""
    r = t.r
    for _ in range(r.randint(5, 9)):
        v, name = r.choice(VERSIONS), r.choice("ab") + "-${run}"
        spec = {"driver": some(r, DRIVERS, 0.95), "pool": {"name": some(r, ["pool", "a/b", "", "A"], 0.9), "generation": r.choice([0, 1, 2, -1] if r.random() < 0.2 else [1, 2]), "resourceSliceCount": r.choice([0, 1, 2] if r.random() < 0.2 else [1])},
                **some(r, [{"nodeName": "n1"}, {"allNodes": True}, {"nodeSelector": node_selector(r)}, {"perDeviceNodeSelection": True}, {}, {"nodeName": "n1", "allNodes": True}, {"allNodes": False}, {"nodeName": ""}, {"perDeviceNodeSelection": False, "nodeName": "n1"}], 0.5)}
        if r.random() < 0.85:
            spec["devices"] = [device(r, i, v) for i in range(r.choice([0, 1, 1, 2, 3]))]
        if r.random() < 0.2:
            if r.random() < 0.7:
                spec.pop("devices", None)
            spec["sharedCounters"] = [{"name": some(r, ["cs", "cs", "A", ""]), "counters": {some(r, ["c", "A"]): {"value": r.choice(QUANTITIES)} for _ in range(r.choice([0, 1, 1]))}} for _ in range(r.choice([0, 1, 1, 2]))]
        body = envelope(v, "ResourceSlice", name, spec=spec)
        body["metadata"]["labels"] = {"run": "x-${run}"}
        collection = ROOT + v + "/resourceslices"
        r.choice([lambda: t.add("POST", collection, body), lambda: write(t, collection, name, body), lambda: look(t, "resourceslices", name, False, VERSIONS)])()


def taints(t):
    """rules of taints"""
    r = t.r
    versions = sorted({x.version for x in t.g.resources if x.plural == "devicetaintrules"})
    if not versions:
        return templates(t)
    for _ in range(r.randint(5, 9)):
        v, name = r.choice(versions), r.choice("ab") + "-${run}"
        selector = {k: x for k, x in (("driver", r.choice(DRIVERS[:4])), ("pool", r.choice(["pool", "A", ""])), ("device", r.choice(["d0", "D", ""])), ("deviceClassName", "gpu.example.com"), ("selectors", selectors(r))) if r.random() < 0.3}
        spec = {"taint": {"key": some(r, ["a/b", "", "a b"]), "effect": some(r, ["NoSchedule", "NoExecute", "None", "X"], 0.5), **r.choice([{}, {"value": r.choice(["v", "v v", ""])}, {"timeAdded": r.choice(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.9Z", None, "x"])}])}}
        if r.random() < 0.7:
            spec["deviceSelector"] = selector
        body = envelope(v, "DeviceTaintRule", name, spec=spec)
        body["metadata"]["labels"] = {"run": "x-${run}"}
        collection = ROOT + v + "/devicetaintrules"
        part = ""
        if r.random() < 0.25:
            part, body["status"] = "/status", r.choice([{"conditions": [{"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}, {"conditions": [{"type": "A"}]}, {}, None, {"conditions": []}])
        r.choice([lambda: t.add("POST", collection, body), lambda: write(t, collection, name, body, part), lambda: write(t, collection, name, body, part), lambda: look(t, "devicetaintrules", name, False, versions)])()


def users(t):
    """pods that use claims"""
    r = t.r
    pods = "/api/v1/namespaces/${ns}/pods"

    def pod(name):
        refs = [r.choice([{"name": "c%d" % i, "resourceClaimName": "a"}, {"name": "c%d" % i, "resourceClaimTemplateName": "t"}] * 4 + [{"name": "c%d" % i}, {"name": "A", "resourceClaimName": "a"}, {"name": "c0", "resourceClaimName": "a", "resourceClaimTemplateName": "t"},
                          {"name": "c%d" % i, "resourceClaimName": ""}, {"name": "c%d" % i, "resourceClaimName": "A_"}, {"resourceClaimName": "a"}, {"name": "c0", "source": {"resourceClaimName": "a"}}, {"name": "c%d" % i, "podGroupResourceClaim": "x"}]) for i in range(r.choice([1, 1, 2]))]
        use = lambda: {"resources": {"claims": [r.choice([{"name": "c0"}] * 4 + [{"name": "c1"}, {"name": "c0", "request": "r0"}, {"name": "missing"}, {"name": "c0", "request": "A"}, {}, {"name": "c0", "request": ""}]) for _ in range(r.choice([0, 1, 1, 2]))],
                                     **r.choice([{}, {}, {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, {"limits": {"example.com/gpu": r.choice(["1", "0", "1.5"])}}])}}
        out = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": refs, "containers": [{"name": n, "image": "i:1", **use()} for n in "xy"[:r.choice([1, 1, 2])]]}}
        if r.random() < 0.2:
            out["spec"]["initContainers"] = [{"name": "i", "image": "i:1", **use(), **r.choice([{}, {"restartPolicy": "Always"}])}]
        if r.random() < 0.1:
            out["spec"]["resources"] = r.choice([{"claims": [{"name": "c0"}]}, {"claims": []}, {"requests": {"cpu": "2"}}])
        if r.random() < 0.15:
            out["metadata"].update(r.choice([{"finalizers": ["a.example.com/f"]}, {"annotations": {"resource.kubernetes.io/pod-claim-name": "x"}}, {"labels": {"a": "b"}}]))
        if r.random() < 0.1:
            out["spec"]["schedulingGates"] = [{"name": "a.example.com/g"}]
        if r.random() < 0.15:
            out["spec"]["nodeName"] = "n"
        return out
    t.add("POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"resourceClaims": [{"name": "c0", "resourceClaimTemplateName": "t"}, {"name": "c1", "resourceClaimName": "k"}],
                                                                                               "containers": [{"name": "x", "image": "i:1", "resources": {"claims": [{"name": "c0"}]}}]}})
    for _ in range(r.randint(5, 9)):
        name = r.choice("aab")
        body = pod(name)
        how = r.random()
        if how < 0.25:
            t.add("POST", pods + r.choice(["", "?dryRun=All", "?fieldValidation=Strict"]), body)
        elif how < 0.4:
            write(t, pods, name, body)
        elif how < 0.7:
            body["status"] = {k: v for k, v in (
                ("resourceClaimStatuses", [r.choice([{"name": "c0", "resourceClaimName": "g-1"}, {"name": "c0"}, {"name": "c1", "resourceClaimName": "g-1"}, {"name": "x", "resourceClaimName": "A_"}, {}, {"name": "c0", "resourceClaimName": "g-2"}]) for _ in range(r.choice([0, 1, 1, 2]))]),
                ("extendedResourceClaimStatus", r.choice([{"resourceClaimName": "e", "requestMappings": [{"containerName": "x", "resourceName": "example.com/gpu", "requestName": "r"}]}, {"resourceClaimName": "", "requestMappings": []}, {"resourceClaimName": "f", "requestMappings": [{"containerName": "no", "resourceName": "x", "requestName": "A"}]}, None])),
                ("containerStatuses", [{"name": "x", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "allocatedResourcesStatus": r.choice([[{"name": "claim:c0", "resources": [{"resourceID": "a/b", "health": r.choice(["Healthy", "Unhealthy", "Unknown", "X"])}]}],
                    [{"name": "claim:c0/r0", "resources": [{"resourceID": "a", "health": "Healthy", "message": "m"}, {"resourceID": "a"}]}], [{"name": "claim:missing", "resources": []}], [{"name": "example.com/gpu"}], [{"name": "cpu"}], [{"name": "x y"}]])}]),
                ("phase", r.choice(["Running", "Pending"])), ("conditions", [{"type": "PodScheduled", "status": "False", "reason": "X"}]), ("nodeAllocatableResourceClaimStatuses", [{"resourceClaimName": "e", "containers": ["x"], "resources": {"cpu": "1"}}])) if r.random() < 0.35}
            write(t, pods, name, body, "/status")
        elif how < 0.78:
            t.add("PATCH", pods + "/" + name, {"spec": {r.choice(["containers", "initContainers"]): [{"name": "x", "resources": {"claims": r.choice([[{"name": "c1"}], [{"name": "c0", "request": "r"}], [], None])}}], **r.choice([{}, {"resourceClaims": r.choice([[], None, [{"name": "c0", "resourceClaimName": "z"}]])}])}}, r.choice([STRATEGIC, MERGE]))
        elif how < 0.9:
            t.add("GET", r.choice([pods, pods + "/" + name]), None, None, r.choice([None, TABLE, "application/vnd.kubernetes.protobuf"]))
        else:
            t.add("DELETE", pods + "/" + name + r.choice(["", "?gracePeriodSeconds=0", "?dryRun=All", "?gracePeriodSeconds=5"]), r.choice([None, {"preconditions": {"uid": "x"}}, {"gracePeriodSeconds": 0}]))


TOPICS = [claims, claims, claims, templates, classes, slices, slices, taints, users, users]
