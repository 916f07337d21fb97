"""Random conversations for compare.py about what one resource alone does not show: definitions and their custom
resources, admission policies, quotas and limits, versions of one object, users with few permissions, status and tables of
objects that are valid."""

import copy
import json

import mutate
import topics_devices

TABLE = mutate.TABLE
MERGE, STRATEGIC, JSON, APPLY = ("application/merge-patch+json", "application/strategic-merge-patch+json",
                                 "application/json-patch+json", "application/apply-patch+yaml")
WORDS = ["", "a", "b", "red", "blue", "abcdefgh", "A", "1", "5%", "2020-01-01T00:00:00Z", "10.0.0.1", "a b", "ä", "2001:db8::/64", "1h"]
# Of a custom resource: the schema of a field, and values for it, some of which are not valid.
FIELDS = {
    "size": ({"type": "integer", "minimum": 1, "maximum": 10}, [1, 5, 10, 0, 11, "3", 1.5, None, 1e3]),
    "small": ({"type": "integer", "format": "int32", "default": 3}, [1, 2**31, -1, None]),
    "odd": ({"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0}, [0.5, 0, 0.3, 2, "x"]),
    "colour": ({"type": "string", "enum": ["red", "blue"], "default": "red"}, ["red", "blue", "green", 1, None]),
    "name": ({"type": "string", "maxLength": 5, "minLength": 1, "pattern": "^[a-z]*$"}, WORDS),
    "ip": ({"type": "string", "format": "ipv4"}, ["10.0.0.1", "x", "::1", 3]),
    "cidr": ({"type": "string", "format": "cidr"}, ["10.0.0.0/8", "10.0.0.1", ""]),
    "when": ({"type": "string", "format": "date-time"}, ["2020-01-01T00:00:00Z", "yesterday", 5]),
    "wait": ({"type": "string", "format": "duration"}, ["1h", "x", "5"]),
    "secret": ({"type": "string", "format": "byte"}, ["YQ==", "a", "ä"]),
    "maybe": ({"type": "string", "nullable": True, "default": "m"}, ["a", None, 1]),
    "list": ({"type": "array", "items": {"type": "string"}, "maxItems": 3, "minItems": 1}, [["a"], [], ["a", "a"], ["a", 1], [None], "a", ["a", "b", "c", "d"]]),
    "set": ({"type": "array", "items": {"type": "string", "maxLength": 20}, "x-kubernetes-list-type": "set", "maxItems": 9}, [["a", "b"], ["b", "a"], ["a", "a"], [], ["c"]]),
    "atomic": ({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}, "x-kubernetes-list-type": "atomic"}, [[{"x": 1}], [{"y": 1}], [{}], [None]]),
    "map": ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "maxItems": 5, "items": {
        "type": "object", "required": ["id"], "properties": {"id": {"type": "string", "maxLength": 9}, "weight": {"type": "integer", "default": 5}}}},
        [[{"id": "a"}], [{"id": "a"}, {"id": "b", "weight": 1}], [{"id": "b"}], [{"id": "a"}, {"id": "a"}], [{"weight": 1}], [{"id": "a", "unknown": 1}]]),
    "two": ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"], "maxItems": 5, "items": {
        "type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "n": {"type": "string"}}}},
        [[{"port": 1}], [{"port": 1, "protocol": "UDP"}, {"port": 1}], [{"port": 1}, {"port": 1, "protocol": "TCP"}], [{"port": 1, "n": "x"}], [{}]]),
    "free": ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, [{"a": 1}, {"a": {"b": [1, None]}}, {}, 1, {"a": 1.0}]),
    "half": ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
             [{"known": {"a": 1, "b": 2}, "x": 1}, {"known": {"a": "x"}}]),
    "embedded": ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
                 [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "unknown": 1}}, {"kind": "Pod"}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "A_"}},
                  {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": 1}}, {}]),
    "either": ({"x-kubernetes-int-or-string": True}, [1, "5%", True, 1.5, None]),
    "either2": ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%?$"}, [1, "5%", "x", False]),
    "labels": ({"type": "object", "additionalProperties": {"type": "string", "maxLength": 9}, "maxProperties": 2},
               [{"a": "b"}, {"a": 1}, {"a": "b", "c": "d", "e": "f"}, {"a": None}, {}]),
    "deep": ({"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "object", "properties": {"c": {"type": "integer", "default": 1}}}}},
             [{}, {"b": {}}, {"a": "y", "z": 1}, None, {"b": None}]),
    "oneof": ({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
              [{"a": "x"}, {"b": "x"}, {"a": "x", "b": "x"}, {}]),
    "allof": ({"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}], "not": {"enum": ["abc"]}}, ["ab", "abc", "b", "a"]),
    "flag": ({"type": "boolean"}, [True, False, "true", None, 0]),
    "fixed": ({"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "may not change"}]}, ["a", "b"]),
    "ruled": ({"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}, {"rule": "size(self) < 4", "messageExpression": "'length ' + string(size(self))", "reason": "FieldValueForbidden"}]},
              ["a", "abcd", "b", "bcdef"]),
    "once": ({"type": "integer", "x-kubernetes-validations": [{"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True, "message": "may not shrink", "fieldPath": ""}]}, [1, 2, 3]),
    "quantity": ({"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": "isQuantity(self) && quantity(self).isLessThan(quantity('2Gi'))", "message": "too much"}]}, ["1Gi", "3Gi", "x"]),
    "items": ({"type": "array", "maxItems": 4, "items": {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string", "maxLength": 5}},
                                                        "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n > 0", "message": "n is too small", "fieldPath": ".n"}]}},
              [[{"n": 1}], [{"n": 0}], [{"n": 1}, {"n": -1, "t": "x"}], []]),
}
RULES = [
    {"rule": "!has(self.size) || !has(self.small) || self.size >= self.small", "message": "size must reach small", "fieldPath": ".size", "reason": "FieldValueInvalid"},
    {"rule": "self.size != 5", "message": "five"}, {"rule": "has(self.size)", "reason": "FieldValueRequired", "message": "need a size", "fieldPath": ".size"},
    {"rule": "self.colour == oldSelf.colour", "message": "colour is fixed", "reason": "FieldValueForbidden"}, {"rule": "has(self.list) ? self.list.all(x, x != 'a') : true"},
    {"rule": "self.map.all(x, x.weight > 0)", "messageExpression": "'weights: ' + self.map.map(x, string(x.weight)).join(',')"},
    {"rule": "self.map.map(x, x.id).exists(x, x == 'a') || self.size > 1"}, {"rule": "self.labels.all(k, self.labels[k] != 'b')"},
    {"rule": "self.size > 'a'"}, {"rule": "self.unknown == 1"}, {"rule": "true", "message": " "}, {"rule": "self.set.isSorted()", "message": "not sorted"},
]


class Topic:
    """A conversation in the making; in place of a Resource it tells compare.py what the requests are about."""

    def __init__(self, r, name, generator):
        self.r, self.plural, self.steps, self.g = r, name, [], generator
        self.labels = {"team": "a"}

    def path(self):
        return "/topic"

    def add(self, method, path, body=None, content=None, accept=None, **more):
        headers = {k: v for k, v in (("Content-Type", content), ("Accept", accept)) if v}
        headers.update(more.pop("headers", {}))
        step = {"id": "%02d" % (len(self.steps) + 1), "method": method, "path": path, "headers": headers, "compareManagedFields": True, **more}
        if body is not None:
            if isinstance(body, str):
                step["bodyText"] = body
            else:
                step["body"] = copy.deepcopy(body)
        if not accept and "saveAs" not in step and method != "DELETE":
            step["saveAs"] = {"rv": "metadata.resourceVersion", "uid": "metadata.uid"}
        self.steps.append(step)

    def wait(self, url, status=200, **until):
        self.add("GET", url, until={"status": status, "timeout": 20, **until}, compare=False)

    def document(self, number):
        return {"scenario": "topic-%d" % number, "namespaces": {"ns": {"labels": self.labels}}, "steps": self.steps}

    def chance(self, share):
        return self.r.random() < share


def custom(t):
    """a definition, and objects of it"""
    r = t.r
    names = r.sample(sorted(FIELDS), r.randint(2, 7))
    spec = {"type": "object", "properties": {n: copy.deepcopy(FIELDS[n][0]) for n in names}}
    if t.chance(0.3):
        spec["required"] = r.sample(names, 1)
    if t.chance(0.5):
        usable = [x for x in RULES if all(w not in x["rule"] or w in names for w in ("size", "small", "colour", "list", "map.", "labels", "set."))]
        spec["x-kubernetes-validations"] = r.sample(usable, min(len(usable), r.choice([1, 1, 2])))
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {
        "replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string", "default": "New"},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                       "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}}}}}}
    if t.chance(0.3):
        schema["required"] = ["spec"]
    if t.chance(0.2):
        schema["properties"]["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3, "pattern": "^[a-b]$"}}}
    if t.chance(0.15):
        schema["x-kubernetes-validations"] = [{"rule": "self.metadata.name != 'b'", "message": "b is not allowed"}]
    if t.chance(0.15):
        spec["properties"][r.choice(names)].update(r.choice([
            {"default": "x"}, {"format": "unknown"}, {"nullable": True}, {"x-kubernetes-list-type": "set"}, {"description": "d"}, {"type": "object"}, {"pattern": "("}, {"x-kubernetes-map-type": "atomic"},
            {"uniqueItems": True}, {"enum": [1]}, {"maxItems": -1}, {"title": "t", "example": {"a": 1}}, {"additionalProperties": False}, {"properties": {"q": {}}}, {"$ref": "#/a"}]))
    columns = [{"name": n.capitalize(), "type": r.choice(["string", "integer", "number", "boolean", "date"]), "jsonPath": r.choice([".spec.", ".spec.", "{.spec.", "$.spec."]) + n}
               for n in r.sample(names, r.choice([0, 1, 2]))]
    columns += r.choice([[], [{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1, "description": "the phase"}],
                         [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                         [{"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'}],
                         [{"name": "All", "type": "string", "jsonPath": ".spec.map[*].id"}]])
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if columns:
        version["additionalPrinterColumns"] = columns
    subs = r.choice([{}, {}, {"status": {}}, {"status": {}, "scale": {"specReplicasPath": ".spec." + r.choice(["size", "small", "none"]), "statusReplicasPath": ".status.replicas",
                                                                    "labelSelectorPath": ".status.selector"}}])
    if subs:
        version["subresources"] = subs
    if t.chance(0.25):
        version["selectableFields"] = [{"jsonPath": ".spec." + n} for n in r.sample(names, 1)]
    versions = [version]
    if t.chance(0.4):
        second = copy.deepcopy(version)
        second.update({"name": r.choice(["v1beta1", "v2", "v1alpha1"]), "storage": False})
        if t.chance(0.5):
            second.update({"deprecated": True, **r.choice([{}, {"deprecationWarning": "use another one"}])})
        if t.chance(0.5):
            second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop(names[0])
        versions.append(second)
    scope = r.choice(["Namespaced", "Namespaced", "Cluster"])
    crds, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "gs.${run}.example.com"
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": {
        "group": "${run}.example.com", "scope": scope, "names": {"plural": "gs", "kind": "G", **r.choice([{}, {"singular": "gg", "shortNames": ["gx"], "categories": ["all"]}])}, "versions": versions}}
    if t.chance(0.1):
        definition["spec"]["preserveUnknownFields"] = r.choice([True, False])
    t.add("POST", crds, definition)
    t.wait(crds + "/" + name, path="status.conditions[type=Established].status", equals="True")
    root = "/apis/${run}.example.com/%s" % r.choice(versions)["name"]
    base = root + ("/namespaces/${ns}" if scope == "Namespaced" else "") + "/gs"
    t.wait(base)
    if t.chance(0.3):
        t.add("GET", root, mask=["resources[*].storageVersionHash"])
    if t.chance(0.15):
        t.add("GET", "/openapi/v3" + root, until={"status": 200, "timeout": 20})

    def body(name=None):
        out = {"apiVersion": root[6:], "kind": "G", "metadata": {"name": name or r.choice("ab")}, "spec": {}}
        for n in names:
            if t.chance(0.6):
                good = FIELDS[n][1][:2] if t.chance(0.75) else FIELDS[n][1]
                out["spec"][n] = copy.deepcopy(r.choice(good))
        if t.chance(0.1):
            out["spec"]["unknown"] = 1
        if t.chance(0.15):
            out["status"] = {"replicas": 1, "selector": "a=b"}
        if t.chance(0.05):
            out.pop("spec")
        if t.chance(0.05):
            out["spec"] = r.choice([None, 1, [], "a"])
        if t.chance(0.1):
            out["metadata"].update(r.choice([{"labels": {"a": "b"}}, {"finalizers": ["a.example.com/f"]}, {"labels": {"a": 1}}, {"unknown": 1}, {"generateName": "g-"}]))
        return out

    def status():
        return r.choice([{"replicas": 2, "selector": "a=b"}, {"replicas": "x"}, {"phase": "Done", "unknown": 1}, {"conditions": [{"type": "Ready", "status": "True"}]},
                         {"conditions": [{"type": "A"}, {"type": "A"}]}, {}, None])
    t.add("POST", base, body("a"))
    for _ in range(r.randint(6, 12)):
        one = base + "/" + r.choice(["a", "a", "b", "c"])
        query = r.choice(["", "", "", "", "?fieldValidation=Strict", "?fieldValidation=Warn", "?dryRun=All", "?fieldManager=m"])
        new = body(one[-1])
        how = r.choice(["post", "post", "put", "put", "merge", "merge", "json", "apply", "apply", "apply", "strategic", "status", "status", "scale", "get", "table", "table", "delete", "schema", "watch", "select"])
        if how == "post":
            t.add("POST", base + query, new)
        elif how == "put":
            if t.chance(0.85):
                new["metadata"]["resourceVersion"] = "${rv}"
            t.add("PUT", one + query, new)
        elif how == "merge":
            n = r.choice(names)
            t.add("PATCH", one + query, {"spec": {n: copy.deepcopy(r.choice(FIELDS[n][1]))}}, MERGE)
        elif how == "json":
            n = r.choice(names)
            t.add("PATCH", one + query, [{"op": r.choice(["add", "replace", "remove", "test"]), "path": "/spec/" + n, "value": copy.deepcopy(r.choice(FIELDS[n][1]))}], JSON)
        elif how == "apply":
            t.add("PATCH", one + r.choice(["?fieldManager=m", "?fieldManager=n", "?fieldManager=n&force=true"]) + query.replace("?", "&").replace("&fieldManager=m", ""), json.dumps(new), APPLY)
        elif how == "strategic":
            t.add("PATCH", one, {"spec": {}}, STRATEGIC)
        elif how == "status":
            new["status"] = status()
            if t.chance(0.5):
                t.add("PATCH", one + "/status" + query, {"status": new["status"], "metadata": {"labels": {"x": "y"}}}, MERGE)
            elif t.chance(0.3):
                t.add("PATCH", one + "/status?fieldManager=m", json.dumps({k: new[k] for k in ("apiVersion", "kind", "status")}), APPLY)
            else:
                new["metadata"]["resourceVersion"] = "${rv}"
                t.add("PUT", one + "/status" + query, new)
        elif how == "scale":
            t.add(*r.choice([("GET", one + "/scale"), ("PATCH", one + "/scale" + query, {"spec": {"replicas": r.choice([1, 5, -1, 20, "x"])}}, MERGE),
                             ("PUT", one + "/scale", {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": one[-1], **({"namespace": "${ns}"} if "${ns}" in base else {})}, "spec": {"replicas": 4}}),
                             ("PATCH", one + "/scale?fieldManager=s", json.dumps({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": one[-1]}, "spec": {"replicas": 3}}), APPLY)]))
        elif how == "get":
            t.add("GET", r.choice([one, base, one.replace(root, "/apis/${run}.example.com/" + versions[-1]["name"])]))
        elif how == "table":
            t.add("GET", r.choice([one, base]) + r.choice(["", "", "?includeObject=Object", "?includeObject=None"]), accept=r.choice([TABLE, TABLE, mutate.METADATA, mutate.METADATA_LIST]))
        elif how == "delete":
            t.add("DELETE", r.choice([one, one, base]))
        elif how == "watch":
            t.add("GET", base + "?watch=true&resourceVersion=0&timeoutSeconds=1", accept=r.choice([None, None, TABLE]), watch={"events": 50, "seconds": 3, "untilClose": True})
        elif how == "select":
            t.add("GET", base + "?fieldSelector=" + r.choice(["metadata.name%3Da", "spec." + names[0] + "%3Da", "spec.x%3D1", "metadata.namespace%3D${ns}"]))
        elif len(versions) and how == "schema":
            later = copy.deepcopy(definition)                 # what is stored may not be valid any more
            n = r.choice(names)
            later["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][n].update(r.choice([{"maxLength": 2}, {"minimum": 6}, {"enum": ["zzz"]}, {"maxItems": 1}, {"nullable": True}]))
            t.add("PATCH", crds + "/" + name, {"spec": {"versions": later["spec"]["versions"]}}, MERGE)
            t.wait(base, timeout=4)


MATCHES = [{"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ops, "resources": ["configmaps"]}]} for ops in (["CREATE"], ["UPDATE"], ["*"], ["CREATE", "UPDATE", "DELETE"])]
CHECKS = [
    {"expression": "object.data.size() < 2"}, {"expression": "!has(object.data.a) || object.data.a != 'b'", "message": "a may not be b", "reason": "Forbidden"},
    {"expression": "has(object.metadata.labels)", "messageExpression": "'no labels on ' + object.metadata.name", "reason": "Invalid"}, {"expression": "object.data.x == '1'"},
    {"expression": "request.operation != 'DELETE'", "reason": "Conflict"}, {"expression": "oldObject == null || object.data == oldObject.data", "reason": "RequestEntityTooLarge"},
    {"expression": "namespaceObject.metadata.labels['team'] == 'a'"}, {"expression": "variables.v == 'b'", "messageExpression": "'v is ' + variables.v"},
    {"expression": "params.data.limit == '1'", "message": "the limit"}, {"expression": "request.userInfo.username == 'admin'"}, {"expression": "authorizer.group('').resource('pods').namespace('default').check('get').allowed()", "reason": "Unauthorized"},
    {"expression": "object.kind == 'ConfigMap' && request.resource.resource == 'configmaps'"}, {"expression": "1 + 1"}, {"expression": "object.x.y"}, {"expression": "object.data.a"}, {"expression": "false", "messageExpression": "''"},
    {"expression": "false", "messageExpression": "object.x.y"}, {"expression": "false", "message": "m", "messageExpression": "1"}, {"expression": "object.?data.a.orValue('z') != 'z'"},
]
MUTATIONS = [
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}"}},
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'mutated': object.metadata.name}}"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/data/new', value: 'x'}]"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "has(object.data) ? [JSONPatch{op: 'replace', path: '/data', value: {'all': 'gone'}}] : []"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test', path: '/data/a', value: 'b'}, JSONPatch{op: 'remove', path: '/data/a'}]"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {jsonpatch.escapeKey('a/b'): 'c'}}]"}},
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 1}}"}},
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "object.x.y"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "'x'"}},
]


def policy(t):
    """an admission policy with its binding, and requests that it sees"""
    r = t.r
    root = "/apis/admissionregistration.k8s.io/v1/"
    kind = r.choice(["Validating", "Validating", "Mutating"])
    plural = kind.lower() + "admissionpolicies"
    spec = {"matchConstraints": copy.deepcopy(r.choice(MATCHES))}
    if kind == "Validating":
        spec["validations"] = copy.deepcopy(r.sample(CHECKS, r.choice([1, 1, 2])))
        if t.chance(0.3):
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": r.choice(["'x'", "object.data.a", "null", "1"])}]
    else:
        spec["mutations"] = copy.deepcopy(r.sample(MUTATIONS, r.choice([1, 1, 2])))
        spec["reinvocationPolicy"] = r.choice(["Never", "IfNeeded"])
    spec["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "${ns}"}}
    spec["failurePolicy"] = r.choice(["Fail", "Fail", "Ignore"])
    if "variables" in json.dumps(spec) or t.chance(0.2):
        spec["variables"] = [{"name": "v", "expression": r.choice(["object.data.a", "'b'", "object.x.y"])}]
    if t.chance(0.25):
        spec["matchConditions"] = [{"name": "c", "expression": r.choice(["object.metadata.name != 'b'", "true", "false", "object.x.y", "request.operation == 'CREATE'"])}]
    binding = {"policyName": "p-${run}"}
    if kind == "Validating":
        binding["validationActions"] = r.choice([["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Warn", "Audit"], ["Deny", "Audit"]])
    if "params" in json.dumps(spec) or t.chance(0.2):
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        binding["paramRef"] = {**r.choice([{"name": "params"}, {"selector": {"matchLabels": {"params": "x"}}}, {"name": "missing"}]), "namespace": "${ns}",
                               "parameterNotFoundAction": r.choice(["Deny", "Allow"])}
        t.add("POST", "/api/v1/namespaces/${ns}/configmaps", {"metadata": {"name": "params", "labels": {"params": "x"}}, "data": {"limit": r.choice("12")}})
    kind_ = kind + "AdmissionPolicy"
    t.add("POST", root + plural, {"apiVersion": root[6:-1], "kind": kind_, "metadata": {"name": "p-${run}"}, "spec": spec})
    t.add("POST", root + plural[:-3] + "ybindings", {"apiVersion": root[6:-1], "kind": kind_ + "Binding", "metadata": {"name": "p-${run}"}, "spec": binding})
    # A second policy that denies, to see that both are in force.
    t.add("POST", root + "validatingadmissionpolicies", {"metadata": {"name": "q-${run}"}, "spec": {
        "matchConstraints": {"namespaceSelector": spec["matchConstraints"]["namespaceSelector"], "resourceRules": MATCHES[0]["resourceRules"]},
        "validations": [{"expression": "object.metadata.name != 'probe'"}]}})
    t.add("POST", root + "validatingadmissionpolicybindings", {"metadata": {"name": "q-${run}"}, "spec": {"policyName": "q-${run}", "validationActions": ["Deny"]}})
    t.add("POST", "/api/v1/namespaces/${ns}/configmaps", {"metadata": {"name": "probe"}}, until={"status": 422, "timeout": 10}, compare=False)
    t.add("DELETE", "/api/v1/namespaces/${ns}/configmaps/probe", compare=False)
    t.add("POST", "/api/v1/namespaces/${ns}/configmaps?dryRun=All", {"metadata": {"name": "later"}}, compare=False, until={"status": 0, "timeout": 1.2})
    if t.chance(0.3):
        t.add("GET", root + plural + "/p-${run}", accept=r.choice([None, TABLE]))
    for _ in range(r.randint(4, 8)):
        one = "/api/v1/namespaces/${ns}/configmaps/" + r.choice("ab")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": one[-1]}}
        if t.chance(0.8):
            body["data"] = r.choice([{"a": "b"}, {"a": "c"}, {"x": "1"}, {"a": "b", "x": "2"}, {}])
        if t.chance(0.4):
            body["metadata"]["labels"] = {"l": "m"}
        query = r.choice(["", "", "", "?dryRun=All", "?fieldManager=x"])
        t.add(*r.choice([("POST", one[:-2] + query, body), ("POST", one[:-2] + query, body), ("PUT", one + query, body), ("PATCH", one + query, {"data": {"a": "b"}}, MERGE),
                         ("PATCH", one + "?fieldManager=m&force=true", json.dumps(body), APPLY), ("DELETE", one), ("GET", one)]))


AMOUNTS = ["1", "2", "100m", "500m", "1500m", "0", "64Mi", "1Gi", "2Gi", "1e3"]


def quota(t):
    """quotas and limit ranges, and what they refuse"""
    r = t.r
    ns = "/api/v1/namespaces/${ns}/"
    names = ["pods", "requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "configmaps", "secrets", "services", "services.nodeports", "services.loadbalancers", "persistentvolumeclaims",
             "requests.storage", "count/deployments.apps", "count/configmaps", "cpu", "memory", "c.storageclass.storage.k8s.io/requests.storage", "requests.example.com/gpu", "hugepages-2Mi",
             "ephemeral-storage", "count/resourceclaims.resource.k8s.io", "c.deviceclass.resource.k8s.io/devices", "replicationcontrollers", "resourcequotas"]
    spec = {"hard": {n: r.choice(AMOUNTS) for n in r.sample(names, r.randint(1, 4))}}
    if t.chance(0.3):
        spec["scopes"] = r.choice([["BestEffort"], ["NotBestEffort"], ["Terminating"], ["NotTerminating"], ["CrossNamespacePodAffinity"], ["X"], ["PriorityClass"]])
    elif t.chance(0.2):
        spec["scopeSelector"] = {"matchExpressions": [r.choice([{"scopeName": "PriorityClass", "operator": "In", "values": ["x"]}, {"scopeName": "BestEffort", "operator": "Exists"},
                                                               {"scopeName": "BestEffort", "operator": "In", "values": ["a"]}, {"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}])]}
    limits = [{"type": r.choice(["Container", "Container", "Pod", "PersistentVolumeClaim", "x.example.com/y"]),
               **{k: {n: r.choice(AMOUNTS) for n in r.sample(["cpu", "memory", "storage", "ephemeral-storage"], r.choice([1, 1, 2]))}
                  for k in r.sample(["default", "defaultRequest", "min", "max", "maxLimitRequestRatio"], r.choice([1, 2, 2, 3]))}} for _ in range(r.choice([1, 1, 2]))]
    if t.chance(0.75):
        t.add("POST", ns + "resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec})
        if t.chance(0.85):
            t.add("PUT", ns + "resourcequotas/q/status", {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec,
                                                         "status": {"hard": spec["hard"], "used": {n: r.choice(["0", "0", "1"]) for n in spec["hard"] if t.chance(0.95)}}})
    if t.chance(0.6):
        t.add("POST", ns + "limitranges", {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}})
    t.add("POST", ns + "pods?dryRun=All", {"metadata": {"name": "later"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, compare=False, until={"status": 0, "timeout": 1.2})

    def amounts():
        return {n: r.choice(AMOUNTS) for n in r.sample(["cpu", "memory", "ephemeral-storage", "example.com/gpu"], r.choice([0, 1, 1, 2]))}
    for i in range(r.randint(4, 8)):
        pod = {"containers": [{"name": n, "image": "i", "resources": r.choice([{}, {"requests": amounts()}, {"limits": amounts()}, {"requests": amounts(), "limits": amounts()}])} for n in ("cd"[:r.choice([1, 1, 2])])]}
        if t.chance(0.2):
            pod["initContainers"] = [{"name": "i", "image": "i", "resources": {"requests": amounts()}}]
        if t.chance(0.2):
            pod.update(r.choice([{"activeDeadlineSeconds": 5}, {"priorityClassName": "system-node-critical"}, {"overhead": {"cpu": "1"}}, {"resources": {"requests": {"cpu": "1"}}}]))
        name = {"name": "o%d" % i}
        t.add(*r.choice([
            ("POST", ns + "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": pod}), ("POST", ns + "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": pod}),
            ("POST", ns + "pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": pod}),
            ("POST", ns + "persistentvolumeclaims", {"metadata": name, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": r.choice(["c", "d", ""]), "resources": {"requests": {"storage": r.choice(AMOUNTS)}}}}),
            ("POST", ns + "services", {"metadata": name, "spec": {"type": r.choice(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]), "externalName": "a", "ports": [{"port": 80}]}}),
            ("POST", ns + "configmaps", {"metadata": name}), ("POST", ns + "secrets", {"metadata": name}), ("DELETE", ns + "configmaps/o%d" % max(0, i - 1)),
            ("POST", "/apis/apps/v1/namespaces/${ns}/deployments", {"metadata": name, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": pod["containers"]}}}}),
            ("POST", "/apis/resource.k8s.io/v1/namespaces/${ns}/resourceclaims", {"metadata": name, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": r.choice("cd"), "count": r.choice([1, 2])}}]}}}),
            ("PATCH", ns + "persistentvolumeclaims/o%d" % max(0, i - 1), {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}, MERGE), ("GET", ns + "resourcequotas/q"),
            ("GET", ns + "resourcequotas/q", None, None, TABLE), ("GET", ns + "limitranges"), ("PATCH", ns + "pods/o%d/resize" % max(0, i - 1), {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}, STRATEGIC)]))


def objects(t):
    """an object with a status, in all its forms"""
    r, g = t.r, t.g
    plural = r.choice(sorted({x.plural for x in g.resources if "get" in x.verbs}))
    versions = [x for x in g.resources if x.plural == plural and "get" in x.verbs]
    s = mutate.Scenario.__new__(mutate.Scenario)
    s.g, s.r, s.schemas, s.resource, s.versions, s.steps, s.names = g, r, g.schemas, r.choice(versions), versions, [], []
    v = s.resource
    t.plural = v.plural
    for _ in range(r.choice([1, 1, 2])):
        body = s.seed(True)
        if isinstance(body.get("metadata"), dict) and body["metadata"].get("name"):
            s.names.append(body["metadata"]["name"])
        t.add("POST", v.path(), body)
        if not s.names:
            s.names.append("missing")
        if "status" in v.subresources and t.chance(0.8):
            body = copy.deepcopy(body)
            body["status"] = s.status(body)
            how = r.choice(["PUT", "PUT", "PATCH", "APPLY"])
            one = v.path(s.names[-1]) + "/status"
            if how == "PUT":
                body.setdefault("metadata", {})["resourceVersion"] = "${rv}"
                t.add("PUT", one, body)
            elif how == "PATCH":
                t.add("PATCH", one, {"status": body["status"]}, r.choice([MERGE, STRATEGIC]))
            else:
                t.add("PATCH", one + "?fieldManager=m&force=true", json.dumps({"apiVersion": v.api_version, "kind": v.kind, "status": body["status"]}), APPLY)
    ours = "" if v.namespaced else "labelSelector=run+in+(x-${run},y-${run})"
    for _ in range(r.randint(4, 8)):
        w = r.choice([x for x in versions if x.group == v.group])
        name = r.choice(s.names)
        include = r.choice(["", "", "includeObject=Object", "includeObject=None", "includeObject=Metadata"])
        body = s.seed(False)
        body["metadata"]["name"] = name
        body["apiVersion"] = w.api_version
        t.add(*r.choice([
            ("GET", w.path(name) + "?" + include, None, None, TABLE), ("GET", w.path() + "?" + "&".join(x for x in (ours, include) if x), None, None, TABLE), ("GET", w.path(name)),
            ("GET", w.path(name), None, None, r.choice([mutate.METADATA, "application/yaml", "application/vnd.kubernetes.protobuf", TABLE])), ("GET", w.path() + "?" + ours, None, None, mutate.METADATA_LIST),
            ("GET", w.path() + "?" + "&".join(x for x in (ours, "fieldSelector=" + r.choice(["metadata.name%3D" + name, "metadata.namespace%3D${ns}", "spec.x%3D1", "status.phase%3DX", "spec.driver%3Da", "type%3Da", "metadata.name%21%3D" + name])) if x)),
            ("PUT", w.path(name), {**body, "metadata": {**body["metadata"], **r.choice([{"name": "other"}, {"uid": "u"}, {"resourceVersion": "1"}, {"resourceVersion": "x"}, {"resourceVersion": "${rv}", "uid": "${uid}"}, {"namespace": "other"}, {}])}}),
            ("PUT", w.path("new-${run}"), {**body, "metadata": {**body["metadata"], "name": "new-${run}", **r.choice([{}, {}, {"uid": "u"}, {"resourceVersion": "5"}])}}),
            ("PATCH", w.path(name) + "?fieldManager=" + r.choice("mn") + r.choice(["", "&force=true"]), json.dumps(body), APPLY),
            ("PATCH", w.path(name), {"metadata": {"labels": {"x": r.choice(["y", None])}}}, r.choice([MERGE, STRATEGIC])),
            ("PATCH", w.path(name) + "?fieldValidation=Strict", s.fragment() if s.names else {}, r.choice([MERGE, STRATEGIC])),
            ("PATCH", w.path(name), r.choice([{"a": 1}, [{"op": "x"}], [{"op": "replace", "path": "/spec/none/x", "value": 1}], [], "x", [{"op": "test", "path": "/kind", "value": "X"}], [{"op": "add", "path": "metadata", "value": 1}]]), r.choice([JSON, MERGE, STRATEGIC])),
            ("DELETE", w.path(name) + r.choice(["", "?dryRun=All", "?propagationPolicy=Foreground", "?gracePeriodSeconds=0"])), ("GET", w.path() + "?" + "&".join(x for x in (ours, "watch=true&resourceVersion=0&timeoutSeconds=1") if x), None, None, r.choice([None, TABLE, mutate.METADATA]))]))
        if "watch=true" in t.steps[-1]["path"]:
            t.steps[-1]["watch"] = {"events": 50, "seconds": 3, "untilClose": True}
            t.steps[-1].pop("saveAs", None)


def access(t):
    """a user with few permissions"""
    r = t.r
    rbac = "/apis/rbac.authorization.k8s.io/v1/"
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*", "bind", "escalate", "approve", "impersonate"]
    groups = ["", "apps", "resource.k8s.io", "*", "rbac.authorization.k8s.io", "certificates.k8s.io", "policy"]
    kinds = ["pods", "configmaps", "pods/status", "pods/eviction", "resourceclaims", "resourceclaims/status", "resourceclaims/binding", "resourceclaims/driver", "*", "*/scale", "deployments", "roles",
             "rolebindings", "secrets", "pods/binding", "serviceaccounts/token", "certificatesigningrequests/approval", "deployments/scale", "pods/exec"]
    rules = [{"apiGroups": r.sample(groups, r.choice([1, 2])), "resources": r.sample(kinds, r.choice([1, 2, 3, 5])), "verbs": r.sample(verbs, r.choice([1, 2, 4])),
              **r.choice([{}, {}, {}, {"resourceNames": ["a"]}])} for _ in range(r.choice([1, 2, 3]))]
    t.add("POST", rbac + "namespaces/${ns}/roles", {"metadata": {"name": "r"}, "rules": rules})
    who = r.choice(["jane-${run}", "system:serviceaccount:${ns}:sa", "system:node:n-${run}"])
    subject = {"kind": "User", "name": who, "apiGroup": "rbac.authorization.k8s.io"}
    t.add("POST", rbac + "namespaces/${ns}/rolebindings", {"metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [subject]})
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}
    allocation = {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}, **r.choice([{}, {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-${run}"]}]}]}}])}
    t.add("POST", "/apis/resource.k8s.io/v1/namespaces/${ns}/resourceclaims", claim)
    if t.chance(0.5):
        t.add("PUT", "/apis/resource.k8s.io/v1/namespaces/${ns}/resourceclaims/a/status", {**claim, "status": {"allocation": allocation}})
    t.add("POST", "/api/v1/namespaces/${ns}/pods", {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}], **r.choice([{}, {"nodeName": "n-${run}"}])}})
    t.add("POST", "/api/v1/namespaces/${ns}/serviceaccounts", {"metadata": {"name": "a"}})
    t.add("POST", "/apis/apps/v1/namespaces/${ns}/deployments", {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "i"}]}}}})
    t.add("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": who, "resourceAttributes": {"namespace": "${ns}", "verb": "get", "resource": "secrets"}}}, compare=False, until={"status": 0, "timeout": 0.7})
    groups_ = {"system:serviceaccount:${ns}:sa": ["system:serviceaccounts", "system:authenticated"], "system:node:n-${run}": ["system:nodes", "system:authenticated"]}.get(who, ["system:authenticated"])
    headers = {"Impersonate-User": who}
    if "serviceaccount" not in who:
        headers["Impersonate-Group"] = groups_[0]
    devices = [{"driver": "d.example.com", "pool": "p", "device": "x", "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}]
    for _ in range(r.randint(6, 12)):
        ns, dra = "/api/v1/namespaces/${ns}/", "/apis/resource.k8s.io/v1/namespaces/${ns}/"
        asked = r.choice([
            ("GET", ns + "pods"), ("GET", ns + "pods/a"), ("POST", ns + "configmaps", {"metadata": {"name": "c"}}), ("PATCH", ns + "configmaps/c?fieldManager=m", '{"apiVersion":"v1","kind":"ConfigMap"}', APPLY),
            ("PUT", ns + "configmaps/new", {"metadata": {"name": "new"}}), ("DELETE", ns + "configmaps"), ("DELETE", ns + "configmaps/c"), ("GET", ns + "secrets/x"), ("GET", "/api/v1/nodes"), ("GET", "/api/v1/pods"),
            ("POST", ns + "pods/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}), ("POST", ns + "pods/a/binding", {"target": {"kind": "Node", "name": "n"}}),
            ("PATCH", ns + "pods/a/status", {"status": {"phase": "Running"}}, STRATEGIC), ("GET", ns + "pods/a/log"), ("POST", ns + "pods/a/exec?command=x"),
            ("PATCH", dra + "resourceclaims/a/status", {"status": {"allocation": allocation}}, MERGE), ("PATCH", dra + "resourceclaims/a/status", {"status": {"devices": devices}}, MERGE),
            ("PATCH", dra + "resourceclaims/a/status", {"status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}]}}, MERGE), ("PATCH", dra + "resourceclaims/a/status", {"status": None}, MERGE),
            ("PATCH", dra + "resourceclaims/a/status?fieldManager=m", json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": {"devices": devices}}), APPLY),
            ("PATCH", dra + "resourceclaims/a", {"metadata": {"labels": {"a": "b"}}}, MERGE), ("GET", "/apis/apps/v1/namespaces/${ns}/deployments/a/scale"), ("PATCH", "/apis/apps/v1/namespaces/${ns}/deployments/a/scale", {"spec": {"replicas": 2}}, MERGE),
            ("POST", rbac + "namespaces/${ns}/roles", {"metadata": {"name": "s"}, "rules": [{"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]}]}),
            ("POST", rbac + "namespaces/${ns}/rolebindings", {"metadata": {"name": "s"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": r.choice(["view", "admin", "missing"])}, "subjects": [subject]}),
            ("POST", ns + "serviceaccounts/a/token", {"spec": {}}), ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"namespace": "${ns}", "verb": "get", "resource": r.choice(["pods", "secrets"])}}}),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "${ns}"}}), ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
            ("GET", r.choice(["/healthz", "/readyz", "/livez", "/version", "/metrics", "/apis", "/openapi/v2", "/x", "/logs", "/debug/pprof", "/healthz/ping", "/readyz?verbose", "/livez/x"]))])
        t.add(*asked, headers={**headers, **({"Content-Type": asked[3]} if len(asked) > 3 else {})})
        if "/token" in t.steps[-1]["path"]:
            t.steps[-1]["mask"] = ["status.token", "status.expirationTimestamp"]
        if t.steps[-1]["path"] in ("/version", "/metrics", "/openapi/v2"):
            t.steps[-1].update({"select": ["kind"]})


def eviction(t):
    """pods, their budget, and evictions"""
    r = t.r
    ns, pdb = "/api/v1/namespaces/${ns}/", "/apis/policy/v1/namespaces/${ns}/poddisruptionbudgets"
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"selector": r.choice([{"matchLabels": {"a": "b"}}, {}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]),
              r.choice(["minAvailable", "maxUnavailable"]): r.choice([0, 1, "50%", "x"]), **r.choice([{}, {"unhealthyPodEvictionPolicy": r.choice(["AlwaysAllow", "IfHealthyBudget", "X"])}])}}
    for n in "cd":
        t.add("POST", ns + "pods", {"metadata": {"name": n, "labels": {"a": "b"}}, "spec": {"nodeName": r.choice(["n", ""]), "terminationGracePeriodSeconds": r.choice([0, 5]), "containers": [{"name": "c", "image": "i"}]}})
        t.add("PATCH", ns + "pods/%s/status" % n, {"status": {"phase": r.choice(["Running", "Running", "Pending", "Succeeded"]), "conditions": [{"type": "Ready", "status": r.choice(["True", "False"])}]}}, STRATEGIC)
    t.add("POST", pdb, budget)
    if t.chance(0.7):
        t.add("PATCH", pdb + "/b/status", {"status": {"disruptionsAllowed": r.choice([0, 1, 1, 2]), "currentHealthy": r.choice([0, 2, 5]), "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": r.choice([0, 1, 1, 1]),
                                                     **r.choice([{}, {"disruptedPods": {"c": "2020-01-01T00:00:00Z"}}])}}, MERGE)
    if t.chance(0.2):
        t.add("POST", pdb, {**budget, "metadata": {"name": "second"}})
    for _ in range(r.randint(3, 7)):
        n = r.choice("ccdx")
        options = r.choice([None, {}, {"dryRun": ["All"]}, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "1"}}, {"gracePeriodSeconds": -1}])
        t.add(*r.choice([("POST", ns + "pods/%s/eviction" % n + r.choice(["", "?dryRun=All"]), {"apiVersion": r.choice(["policy/v1", "policy/v1", "policy/v1beta1", "v1"]), "kind": "Eviction", "metadata": {"name": r.choice([n, n, n, "y", ""])},
                                                                                       **({"deleteOptions": options} if options is not None else {})}),
                         ("GET", pdb + "/b", None, None, r.choice([None, TABLE])), ("GET", ns + "pods", None, None, TABLE), ("DELETE", ns + "pods/" + n), ("PUT", pdb + "/b", {**budget, "metadata": {"name": "b", "resourceVersion": r.choice(["${rv}", ""])}}),
                         ("PATCH", pdb + "/b", {"spec": {"selector": {"matchLabels": {"a": "c"}}, "minAvailable": 1}}, r.choice([MERGE, STRATEGIC]))]))


ACCEPTS = [None, None, "*/*", "application/json", "application/yaml", "application/yaml;stream=watch", "application/json;stream=watch", "application/json;stream=x", "application/vnd.kubernetes.protobuf",
           "application/cbor", "text/plain", "text/*", "application/xml", "application/*", "application/json;q=0.1,application/yaml", TABLE, TABLE + ",application/json", mutate.METADATA, "application/json;as=X;g=y;v=z",
           "application/json;charset=utf-8", "application/jwk-set+json", "foo"]
CONTENTS = ["application/json", "application/json", "application/json; charset=utf-8", "application/json;x", "application/json;", "APPLICATION/JSON", "application/yaml", "text/yaml", "text/plain", "application/xml", "application/cbor",
            "application/x-www-form-urlencoded", "/", MERGE, JSON, STRATEGIC, APPLY, "application/apply-patch+cbor"]


def paths(t):
    """what is no object: discovery, health, versions, keys, and paths that do not exist, by all methods"""
    r = t.r
    versions = sorted({(x.group, x.version) for x in t.g.resources})
    for _ in range(r.randint(8, 14)):
        group, version = r.choice(versions)
        of_group = "/apis/" + group if group else "/api"
        path = r.choice([
            "/api", "/api/", "/apis", "/apis/", of_group, of_group + "/", of_group + "/" + version, of_group + "/" + version + "/", of_group + "/v9", "/apis/x", "/apis/x.example.com/v1", "/apis/x.example.com/v1/y",
            "/healthz", "/livez", "/readyz", "/healthz/", "/healthz/ping", "/livez/ping", "/readyz/ping", "/readyz/etcd", "/healthz/x", "/livez?exclude=ping", "/livez?verbose&exclude=x", "/readyz?exclude=x&exclude=ping",
            "/version", "/version/", "/openid/v1/jwks", "/openid/v1/jwks/", "/openid/v1", "/.well-known/openid-configuration", "/openapi", "/openapi/v2", "/openapi/v3", "/openapi/v3/x", "/openapi/v4", "/logs", "/swagger.json", "/x",
            "/api/v1/x", "/api/v1/namespaces/${ns}/x", "/api/v1/namespaces/${ns}/x/y", "/api/v1/namespaces/${ns}/pods/a/x", "/api/v1/namespaces/${ns}/pods/a/x/y", "/api/v1/namespaces/${ns}/configmaps/a/status",
            "/api/v1/namespaces/${ns}/pods/a/b/c/d", "/api/v1/watch/pods", "/api/v1/proxy/nodes/a", "/api/v1/namespaces/${ns}/"])
        method = r.choice(["GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
        t.add(method, path, {} if method in ("POST", "PUT", "PATCH") else None, MERGE if method == "PATCH" else None, r.choice(ACCEPTS))
        t.steps[-1].pop("saveAs", None)
        if path.startswith(("/version", "/openapi", "/openid", "/.well", "/api", "/healthz", "/livez", "/readyz")):
            t.steps[-1]["select"] = ["kind", "message", "reason", "code", "details"]


def media(t):
    """formats of bodies and answers on all kinds of writes"""
    r = t.r
    ns = "/api/v1/namespaces/${ns}/configmaps"
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
    t.add("POST", ns, one)
    for _ in range(r.randint(8, 14)):
        name = r.choice(["a", "a", "missing"])
        path, body = ns + "/" + name, {**one, "metadata": {"name": name}}
        method, path, body = r.choice([
            ("GET", path, None), ("GET", ns, None), ("POST", ns + "?dryRun=All", {**one, "metadata": {"name": "b"}}), ("PUT", path, body), ("PATCH", path, {"data": {"c": "d"}}), ("PATCH", path + "?fieldManager=m", body),
            ("DELETE", path + "?dryRun=All", {"kind": "DeleteOptions", "apiVersion": "v1"}), ("DELETE", ns + "?dryRun=All", {"dryRun": ["All"]}), ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}}),
            ("POST", "/api/v1/namespaces/${ns}/serviceaccounts/default/token", {"spec": {}}), ("POST", ns + "?dryRun=All", "null"), ("POST", ns, ""), ("PATCH", path, "null"), ("PUT", path, "[]"), ("POST", ns, "{"),
            ("PATCH", path, {"$patch": r.choice([None, "x", 1, ["a", 1]])})])
        t.add(method, path, body, r.choice(CONTENTS) if method != "GET" else None, r.choice(ACCEPTS))
        t.steps[-1].pop("saveAs", None)
        if "/token" in path:
            t.steps[-1]["mask"] = ["status.token", "status.expirationTimestamp"]


def reviews(t):
    """reviews of permissions, with all that can be wrong about them"""
    r = t.r
    root = "/apis/authorization.k8s.io/v1/"

    def selector():
        return r.choice([{}, {"rawSelector": r.choice(["a=b", "=", "a in x"])}, {"requirements": [{"key": r.choice(["a", "", "a b"]), "operator": r.choice(["In", "Exists", "X"]), "values": r.choice([[], ["b"], ["b", "c d"]])}]},
                         {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}, {"requirements": []}])
    for _ in range(r.randint(6, 12)):
        attributes = {k: v for k, v in (("verb", r.choice(["get", "list", "*"])), ("resource", r.choice(["pods", "secrets", "*"])), ("group", r.choice(["", "apps", "*"])), ("name", "a"), ("subresource", "status"),
                                        ("namespace", r.choice(["${ns}", "x", ""])), ("fieldSelector", selector()), ("labelSelector", selector())) if t.chance(0.5)}
        spec = {k: v for k, v in (("resourceAttributes", attributes), ("user", r.choice(["jane", "system:kube-scheduler", ""])), ("groups", r.choice([["system:masters"], []]))) if t.chance(0.8)}
        if t.chance(0.25):
            spec["nonResourceAttributes"] = r.choice([{"path": "/version", "verb": "get"}, {}, {"path": "/x"}])
        kind = r.choice(["selfsubjectaccessreviews", "subjectaccessreviews", "namespaces/${ns}/localsubjectaccessreviews", "namespaces/x/localsubjectaccessreviews"])
        if kind.startswith("self"):
            spec = {k: v for k, v in spec.items() if k not in ("user", "groups")}
        body = {"spec": spec}
        if t.chance(0.3):
            body["metadata"] = r.choice([{"name": "a"}, {"labels": {"a": "b"}}, {"uid": "u"}, {"namespace": "x"}, {"namespace": "${ns}"}, {"generateName": "a"}, {"deletionGracePeriodSeconds": 1}, {"resourceVersion": "1"},
                                         {"finalizers": ["a"]}, {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]}])
        t.add("POST", root + kind + r.choice(["", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=m"]), body, accept=r.choice([None, None, None, TABLE, mutate.METADATA, "application/yaml"]))
        t.steps[-1].pop("saveAs", None)


TOPICS = [custom, custom, custom, policy, policy, quota, quota, objects, objects, objects, access, access, eviction, paths, media, reviews] + topics_devices.TOPICS


def topic(number, r, generator, only=None):
    """the conversation with this number; its topic can be chosen by name"""
    choices = [x for x in TOPICS if not only or x.__name__ in only]
    chosen = r.choice(choices)
    t = Topic(r, chosen.__name__, generator)
    chosen(t)
    return t, t.document(number)
