"""Random requests for compare.py: scenarios in the format of api.md, each made from a number alone.

Objects begin as those that the recordings and crates/apiserver/tests/answers create; what is changed in them follows the
schemas that the reference server publishes."""

import copy
import glob
import gzip
import json
import os
import random
import re

HERE = os.path.dirname(os.path.abspath(__file__))
ANSWERS = os.path.join(HERE, "..", "..", "crates", "apiserver", "tests", "answers", "*.txt")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
ACCEPTS = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", TABLE, METADATA, METADATA_LIST,
           TABLE + ",application/json", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/cbor", "text/html",
           "*/*", "application/*", "application/json;as=Table;v=v2;g=meta.k8s.io", "application/json;pretty=1",
           "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", "application/json;q=0.5,application/yaml", ""]
STRINGS = ["", " ", "a", "A", "-a", "a.", "a/b", "/a", "a_b", "a b", "..", "a.example.com", "a.example.com/b", "0", "true",
           "*", "a\nb", "ä", "1.2.3.4", "::1", "10.0.0.5", "10.0.0.0/24", "2001:db8::/64", "${repeat:a:64}", "${repeat:a:254}",
           "${repeat:a:300}.com", "/a/b", "../a", "1", "-1", "1Gi", "1e3", "0.5", "100%", "50%", "None", "Always", "In",
           "Exists", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000000Z", "kubernetes.io/a", "x-y.z", "$(A)", "a=b", "a,b"]
NUMBERS = [0, 1, -1, 2, 3, 5, 10, 80, 99, 100, 101, 255, 256, 1000, 32767, 65535, 65536, 2**31 - 1, 2**31, -2**31, 2**63 - 1, 2**63,
           1.5, 1e3, 600, 3600]
WRONG = [None, "", "a", 1, -1, 1.5, True, False, [], {}, [None], [1], {"a": "b"}, ["a"], [{}], {"a": None}]
OURS = "labelSelector=run+in+(x-${run},y-${run})"     # objects of this scenario among those that have no namespace
CLUSTER_WIDE_KEPT = {"namespaces", "nodes"}     # what they select would be deleted for other scenarios too
NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


def wrong(r):
    """a value of some type; a copy, because scenarios change what they hold"""
    return copy.deepcopy(r.choice(WRONG))


class Resource:
    """A resource as discovery tells it, with objects that can be created."""

    def __init__(self, group, version, entry):
        self.group, self.version, self.plural = group, version, entry["resource"]
        self.namespaced = entry["scope"] == "Namespaced"
        self.kind = (entry.get("responseKind") or {}).get("kind", "")
        self.verbs = entry["verbs"]
        self.subresources = {s["subresource"]: s["verbs"] for s in entry.get("subresources", [])}
        self.seeds = []

    @property
    def api_version(self):
        return self.group + "/" + self.version if self.group else self.version

    def path(self, name=None, namespace="${ns}"):
        root = "/apis/" + self.api_version if self.group else "/api/" + self.version
        scope = "/namespaces/" + namespace if self.namespaced and namespace else ""
        return root + scope + "/" + self.plural + ("/" + name if name else "")


def seed_objects():
    """(group, version, plural) and body of every object that recordings or answers create"""
    def split(path):
        parts = path.split("?")[0].strip("/").split("/")
        group, parts = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, rest = parts[0], parts[1:]
        if len(rest) == 3 and rest[0] == "namespaces":
            rest = rest[2:]
        return (group, version, rest[0]) if len(rest) == 1 else None

    for file in sorted(glob.glob(ANSWERS)):
        with open(file, encoding="utf-8") as lines:
            for block in re.split(r"\n\n+", lines.read()):
                lines_ = [x for x in block.split("\n") if x and x[0] != "#" and not x.startswith("warning:")]
                m = re.match(r"POST (/api\S*)", lines_[0]) if len(lines_) == 3 else None
                if m and lines_[2].startswith(("201", "422")) and split(m.group(1)):
                    try:
                        yield split(m.group(1)), json.loads(lines_[1])
                    except ValueError:
                        pass
    with gzip.open(os.path.join(HERE, "api", "scenarios.jsonl.gz"), "rt", encoding="utf-8") as rows:
        for row in rows:
            for step in json.loads(row)["document"]["steps"]:
                if step.get("method") == "POST" and step.get("want") == 201 and isinstance(step.get("body"), dict):
                    if split(step["path"]):
                        yield split(step["path"]), step["body"]
    with open(os.path.join(HERE, "compare-seeds.json"), encoding="utf-8") as file:
        for path, body in json.load(file):
            yield split(path), body


class Schemas:
    """The definitions that a server publishes at /openapi/v2."""

    def __init__(self, document):
        self.definitions = document["definitions"]
        self.kinds = {}
        for name, d in self.definitions.items():
            for k in d.get("x-kubernetes-group-version-kind", []):
                self.kinds[(k["group"], k["version"], k["kind"])] = name
        self.words = {}

    def of(self, resource):
        return {"$ref": "#/definitions/" + self.kinds.get((resource.group, resource.version, resource.kind), "")}

    def resolve(self, schema):
        while schema and "$ref" in schema:
            schema = self.definitions.get(schema["$ref"].rsplit("/", 1)[1], {})
        return schema or {}

    def learn(self, value, key=""):
        """remembers the texts and numbers that valid objects have, by the name of their field"""
        if isinstance(value, dict):
            for k, v in value.items():
                self.learn(v, k)
        elif isinstance(value, list):
            for v in value:
                self.learn(v, key)
        elif value is not None and "${" not in str(value):
            self.words.setdefault(key, {})[json.dumps(value)] = value

    def at(self, schema, path):
        for key in path:
            schema = self.resolve(schema)
            if isinstance(key, int):
                schema = schema.get("items", {})
            else:
                schema = schema.get("properties", {}).get(key) or schema.get("additionalProperties") or {}
            if not isinstance(schema, dict):
                return {}
        return self.resolve(schema)

    def make(self, r, schema, key="", depth=0):
        """a random value, valid as often as not"""
        schema = self.resolve(schema)
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind == "object" and "properties" in schema:
            names = sorted(schema["properties"])
            some = [n for n in names if n in schema.get("required", []) and r.random() < 0.9]
            if depth < 4 and names:
                some += r.sample(names, min(len(names), r.choice([0, 1, 1, 2, 3])))
            return {n: self.make(r, schema["properties"][n], n, depth + 1) for n in dict.fromkeys(some)}
        if kind == "object":
            values = schema.get("additionalProperties") or {"type": "string"}
            return {self.text(r, "key"): self.make(r, values, key, depth + 1) for _ in range(r.choice([0, 1, 1, 2]))}
        if kind == "array":
            return [self.make(r, schema.get("items", {}), key, depth + 1) for _ in range(r.choice([0, 1, 1, 1, 2]))]
        if kind == "boolean":
            return r.random() < 0.7
        if kind in ("integer", "number"):
            known = [x for x in self.words.get(key, {}).values() if isinstance(x, (int, float)) and not isinstance(x, bool)]
            return r.choice(known) if known and r.random() < 0.5 else r.choice(NUMBERS)
        if kind == "string":
            if "enum" in schema and r.random() < 0.8:
                return r.choice(schema["enum"])
            return self.text(r, key)
        return wrong(r)

    def text(self, r, key):
        known = [x for x in self.words.get(key, {}).values() if isinstance(x, str)]
        return r.choice(known) if known and r.random() < 0.6 else r.choice(STRINGS)


def places(value, path=()):
    """the paths of everything in an object"""
    if isinstance(value, dict):
        for k in value:
            yield path + (k,)
            yield from places(value[k], path + (k,))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield path + (i,)
            yield from places(value[i], path + (i,))


def get(value, path):
    for key in path:
        value = value[key]
    return value


class Generator:
    def __init__(self, resources, schemas, only=None):
        self.resources = [x for x in resources if x.seeds and "create" in x.verbs]
        if only:
            self.resources = [x for x in self.resources if re.fullmatch(only, x.plural)]
        self.schemas = schemas

    def scenario(self, number):
        make = Scenario(self, random.Random(number))
        return make.resource, make.document("random-%d" % number)


class Scenario:
    """One random conversation about one resource, in a namespace of its own."""

    def __init__(self, generator, r):
        self.g, self.r, self.schemas = generator, r, generator.schemas
        # Every kind is as likely as any other, whatever its number of versions.
        plural = r.choice(sorted({x.plural for x in generator.resources}))
        self.resource = r.choice([x for x in generator.resources if x.plural == plural])
        self.versions = [x for x in generator.resources
                         if (x.plural, x.group, x.kind) == (plural, self.resource.group, self.resource.kind)]
        self.steps = []
        self.names = []

    def document(self, name):
        for _ in range(self.r.randint(6, 14)):
            self.step()
        return {"scenario": name, "namespaces": {"ns": {"labels": {"team": "a"}}}, "steps": self.steps}

    # -- objects
    def seed(self, fresh):
        """an object that can be created, with a name of this scenario"""
        body = copy.deepcopy(self.r.choice(self.resource.seeds))
        body["apiVersion"], body["kind"] = self.resource.api_version, self.resource.kind
        meta = body.setdefault("metadata", {})
        if not isinstance(meta, dict):
            meta = body["metadata"] = {}
        meta.pop("namespace", None)
        if fresh or not self.names:
            if self.resource.plural == "customresourcedefinitions":
                pass                             # the name follows from the spec
            elif isinstance(meta.get("name"), str) and not NAME.match(meta["name"]) and self.resource.namespaced:
                pass
            elif "generateName" not in meta or meta.get("name"):
                meta["name"] = "%s-${run}" % self.r.choice("abc")
                if self.resource.plural in ("csidrivers", "csinodes", "deviceclasses", "certificatesigningrequests"):
                    meta["name"] += ".example.com"
        else:
            meta["name"] = self.r.choice(self.names)
        if isinstance(meta.get("labels", {}), dict) and self.r.random() < 0.3:
            meta.setdefault("labels", {})["run"] = self.r.choice(["x-${run}", "y-${run}"])
        return body

    def mutated(self, body, times):
        for _ in range(times):
            body = self.mutate(body)
        return body

    def mutate(self, body):
        r = self.r
        schema = self.schemas.of(self.resource)
        all_ = [p for p in places(body) if p not in (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"))]
        inner = [p for p in all_ if p[0] != "metadata"] or all_
        how = r.random()
        if how < 0.10:
            return self.meta(body)
        if not inner or how < 0.42:                                    # a field that the schema knows
            holders = [()] + [p for p in inner if isinstance(get(body, p), dict)]
            if r.random() < 0.85:
                holders = [p for p in holders if p] or holders
            at = r.choice(holders)
            properties = self.schemas.at(schema, at).get("properties")
            if properties:
                key = r.choice(sorted(k for k in properties if at or k not in ("apiVersion", "kind", "metadata")) or ["x"])
                if isinstance(get(body, at), dict) and key in properties:
                    get(body, at)[key] = self.schemas.make(r, properties[key], key, 1)
            return body
        at = r.choice(inner)
        parent, key, value = get(body, at[:-1]), at[-1], get(body, at)
        if how < 0.52:
            del parent[key]
        elif how < 0.57:
            parent[key] = wrong(r)
        elif how < 0.62 and isinstance(value, dict):
            value[r.choice(["unknown", "Name", "x-y", ""])] = wrong(r)
        elif isinstance(value, list) and value:
            choice = r.random()
            if choice < 0.5:
                value.append(copy.deepcopy(r.choice(value)))
            elif choice < 0.7:
                parent[key] = []
            elif choice < 0.8:
                parent[key] = value * r.choice([8, 17, 33, 65])
            else:
                parent[key] = value + [self.schemas.make(r, self.schemas.at(schema, at).get("items", {}), str(key), 2)]
        elif isinstance(value, bool):
            parent[key] = not value
        elif isinstance(value, (int, float)):
            parent[key] = r.choice(NUMBERS)
        elif isinstance(value, str):
            field = next((str(k) for k in reversed(at) if isinstance(k, str)), "")
            enum = self.schemas.at(schema, at).get("enum")
            parent[key] = r.choice(enum) if enum and r.random() < 0.7 else self.schemas.text(r, field)
        else:
            parent[key] = self.schemas.make(r, self.schemas.at(schema, at), str(key), 1)
        return body

    def meta(self, body):
        r = self.r
        meta = body.get("metadata")
        if not isinstance(meta, dict):
            return body
        key, value = r.choice([
            ("labels", {self.schemas.text(r, "key"): r.choice(STRINGS)}), ("annotations", {r.choice(STRINGS): "x"}),
            ("finalizers", [r.choice(STRINGS)]), ("finalizers", ["a.example.com/f", "a.example.com/f"]),
            ("ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
            ("ownerReferences", [self.schemas.make(r, {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"})]),
            ("ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in "ab"]),
            ("generateName", r.choice(STRINGS)), ("name", r.choice(STRINGS)), ("namespace", r.choice(["other", "", "A"])),
            ("resourceVersion", r.choice(["1", "0", "x", ""])), ("uid", "11111111-2222-3333-4444-555555555555"), ("generation", 7),
            ("creationTimestamp", r.choice(["2020-01-01T00:00:00Z", "x", None])), ("deletionTimestamp", "2020-01-01T00:00:00Z"),
            ("deletionGracePeriodSeconds", 5), ("selfLink", "/x"), ("managedFields", r.choice([[], [{}], [{"manager": "m"}]])),
            ("unknown", 1), ("labels", wrong(r)), ("annotations", wrong(r)), ("name", wrong(r)),
        ])
        meta[key] = value
        return body

    # -- requests
    def query(self, *more):
        r = self.r
        out = [x for x in more if x]
        if r.random() < 0.12:
            out.append("dryRun=" + r.choice(["All", "All", "", "Some", "All&dryRun=All"]))
        if r.random() < 0.2:
            out.append("fieldValidation=" + r.choice(["Strict", "Warn", "Ignore", "Strict", "strict", ""]))
        if r.random() < 0.1:
            out.append("fieldManager=" + r.choice(["m", "", "${repeat:m:129}", "a%00b", "m%C3%A4"]))
        if r.random() < 0.03:
            out.append(r.choice(["pretty=true", "pretty=1", "timeout=5s", "timeout=x", "unknown=1", "limit=x"]))
        return "?" + "&".join(out) if out else ""

    def add(self, method, path, body=None, **more):
        headers = {}
        if self.r.random() < 0.12:
            headers["Accept"] = self.r.choice(ACCEPTS)
        content = more.pop("content", None)
        if content:
            headers["Content-Type"] = content
        step = {"id": "%02d" % (len(self.steps) + 1), "method": method, "path": path, "compareManagedFields": True,
                "headers": headers, **more}
        if isinstance(body, str):
            step["bodyText"] = body
        elif body is not None:
            step["body"] = body
        if "Accept" not in headers:
            step["saveAs"] = {"rv": "metadata.resourceVersion", "uid": "metadata.uid", "continue": "metadata.continue"}
        self.steps.append(step)

    def some_name(self):
        return self.r.choice(self.names) if self.names and self.r.random() < 0.93 else "missing"

    def step(self):
        r = self.r
        if not self.names or r.random() < 0.25:
            return self.create()
        actions = [(self.create, 3), (self.get, 2), (self.list, 2), (self.update, 4), (self.patch, 5), (self.apply, 3),
                   (self.sub, 5), (self.delete, 1), (self.delete_some, 0.4), (self.watch, 0.3), (self.odd, 0.7)]
        r.choices([a for a, _ in actions], [w for _, w in actions])[0]()

    def create(self):
        r = self.r
        body = self.mutated(self.seed(not self.names or r.random() < 0.8), r.choice([0, 1, 1, 2, 3]) if self.names or r.random() < 0.5 else 0)
        meta = body.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if isinstance(name, str) and name and "/" not in name and name not in self.names and not re.search(r"[\s%?#]|^\.|ä", name):
            self.names.append(name)
        how = r.random()
        if how < 0.06:
            self.add("POST", self.resource.path() + self.query(), json.dumps(body, indent=1), content="application/yaml")
        elif how < 0.09:
            text = json.dumps(body)
            self.add("POST", self.resource.path() + self.query(), r.choice([
                text[:-1] + ',"metadata":{}}', text[:-3], text + "x", "[%s]" % text, "", "null", "{}", '"a"', text.replace('"metadata"', '"Metadata"', 1),
                text.replace('"kind"', '"Kind"', 1), text.replace('"spec"', '"Spec"', 1), "\ufeff" + text]))
        elif how < 0.11:
            body[r.choice(["kind", "apiVersion"])] = r.choice(["Pod", "v1", "apps/v1", "x/y/z", "", "Xyz", 1, None])
            self.add("POST", self.resource.path() + self.query(), body)
        elif how < 0.13:
            self.add("POST", self.resource.path() + self.query(), body, content=r.choice(
                ["application/cbor", "text/plain", "application/json;charset=utf-8", "application/merge-patch+json", "", "application/vnd.kubernetes.protobuf"]))
        else:
            self.add("POST", self.resource.path() + self.query(), body)

    def get(self):
        if "get" in self.resource.verbs:
            version = self.r.choice(self.versions)
            self.add("GET", version.path(self.some_name()) + self.r.choice(
                ["", "", "", "?resourceVersion=0", "?resourceVersion=x", "?pretty=true", "?resourceVersion=99999999", "?includeObject=None"]))

    def selector(self):
        r = self.r
        if r.random() < 0.5:
            return "labelSelector=" + r.choice(["run%3Dx-${run}", "run", "%21run", "run+in+%28x-${run},y%29", "run%21%3Dx-${run}", "run+notin+(x-${run})", "a%3D%3Db,run", "=",
                                                "run+in+x", "run%3E1", "a%2Fb%2Fc", "${repeat:a:64}", "run+exists", ",", "run%3D%3D%3D"])
        return "fieldSelector=" + r.choice(["metadata.name%3D", "metadata.namespace%3D", "status.phase%3D", "spec.nodeName%3D", "type%3D", "spec.x%3D",
                                            "reason%3D", "metadata.name%21%3D", "spec.driver%3D", "involvedObject.name%3D", "spec.replicas%3D", "%3D"]) + \
            r.choice(["", "x", self.some_name(), "Active"])

    def list(self):
        r = self.r
        if "list" not in self.resource.verbs:
            return
        version = r.choice(self.versions)
        query = [OURS] if not self.resource.namespaced else []
        for _ in range(r.choice([0, 1, 1, 2])):
            query.append(r.choice([self.selector(), self.selector(), "limit=1", "limit=2", "limit=1&continue=${continue}", "limit=-1", "continue=x",
                                   "resourceVersion=0", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact",
                                   "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersion=x", "resourceVersion=1&resourceVersionMatch=Exact",
                                   "limit=1&resourceVersion=0", "timeoutSeconds=x", "sendInitialEvents=true", "allowWatchBookmarks=true", "watch=x",
                                   "resourceVersion=99999999999", "includeObject=Object", "includeObject=Metadata", "includeObject=x", "limit=x"]))
        if any("continue=${" in x for x in query) and not any("limit=1" in str(s["path"]) for s in self.steps):
            return
        self.add("GET", version.path() + ("?" + "&".join(query) if query else ""))
        if r.random() < 0.35:
            self.steps[-1]["headers"]["Accept"] = r.choice([TABLE, TABLE, METADATA_LIST, "application/vnd.kubernetes.protobuf"])

    def update(self, suffix="", verbs=None):
        r = self.r
        if "update" not in (verbs or self.resource.verbs):
            return
        name = self.some_name()
        body = self.mutated(self.seed(False), r.choice([0, 1, 1, 2]))
        if isinstance(body.get("metadata"), dict):
            if r.random() < 0.9:
                body["metadata"]["name"] = name
            # Some kinds are only updated with the version that is stored.
            if r.random() < 0.6 and any("saveAs" in s for s in self.steps):
                body["metadata"]["resourceVersion"] = "${rv}"
        if suffix == "/status" or r.random() < 0.3:
            body["status"] = self.status(body)
        self.add("PUT", self.resource.path(name) + suffix + self.query(), body)

    def status(self, body):
        schema = self.schemas.at(self.schemas.of(self.resource), ("status",))
        known = [x["status"] for x in self.resource.seeds if isinstance(x.get("status"), dict)]
        if known and self.r.random() < 0.4:
            return copy.deepcopy(self.r.choice(known))
        return self.schemas.make(self.r, schema, "status", 0)

    def fragment(self):
        """some of an object, for a patch"""
        r = self.r
        body = {k: v for k, v in self.mutated(self.seed(False), r.choice([0, 1, 2])).items() if k not in ("apiVersion", "kind")}
        if isinstance(body.get("metadata"), dict):
            body["metadata"].pop("name", None)
        for _ in range(r.choice([0, 2, 5])):
            all_ = list(places(body))
            if len(all_) < 2:
                break
            at = r.choice(all_)
            if r.random() < 0.7:
                del get(body, at[:-1])[at[-1]]
            else:
                get(body, at[:-1])[at[-1]] = None
        return body

    def patch(self, suffix="", verbs=None):
        r = self.r
        if "patch" not in (verbs or self.resource.verbs):
            return
        path = self.resource.path(self.some_name()) + suffix + self.query()
        how = r.random()
        body = self.fragment()
        if suffix == "/status":
            body["status"] = self.status(body)
        if how < 0.35:
            self.add("PATCH", path, body, content="application/merge-patch+json")
        elif how < 0.75:
            if r.random() < 0.3:
                lists = [p for p in places(body) if isinstance(get(body, p), list)]
                for p in lists[:2]:
                    for item in get(body, p):
                        if isinstance(item, dict):
                            item["$patch"] = r.choice(["delete", "replace", "merge", "x"])
                            break
            if r.random() < 0.1:
                body[r.choice(["$patch", "$retainKeys", "$setElementOrder/x", "$deleteFromPrimitiveList/finalizers"])] = r.choice(
                    ["delete", "replace", ["a"], [], None])
            self.add("PATCH", path, body, content="application/strategic-merge-patch+json")
        elif how < 0.97:
            whole = list(places(self.seed(False))) or [("metadata",)]
            ops = []
            for _ in range(r.choice([1, 1, 2])):
                at = r.choice(whole)
                if suffix == "/status":
                    at = ("status",) + ((r.choice(sorted(self.schemas.at(self.schemas.of(self.resource), ("status",)).get("properties", {"x": 1}))),)
                                        if r.random() < 0.8 else ())
                op = {"op": r.choice(["add", "replace", "remove", "test", "copy", "move", "add", "replace", "x"]),
                      "path": "".join("/" + str(k).replace("~", "~0").replace("/", "~1") for k in at) + r.choice(["", "", "", "/-", "/x", "/0", "/9"])}
                if op["op"] in ("copy", "move"):
                    op["from"] = "/metadata/" + r.choice(["name", "labels", "x"])
                elif op["op"] != "remove":
                    op["value"] = self.schemas.make(r, self.schemas.at(self.schemas.of(self.resource), at), str(at[-1]), 1) if r.random() < 0.8 else wrong(r)
                ops.append(op)
            self.add("PATCH", path, r.choice([ops, ops, ops, ops, ops, ops[0], [], [{}], None, "x"]), content="application/json-patch+json")
        else:
            self.add("PATCH", path, body, content=r.choice(["application/json", "text/plain", "application/apply-patch+json", "application/apply-patch+cbor",
                                                             "application/json-patch+json;charset=utf-8", ""]))

    def apply(self, suffix="", verbs=None):
        r = self.r
        if "patch" not in (verbs or self.resource.verbs):
            return
        body = self.mutated(self.seed(False), r.choice([0, 0, 1, 2]))
        if suffix == "/status":
            body = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {}, "status": self.status(body)}
        if isinstance(body.get("metadata"), dict):
            body["metadata"].pop("generateName", None)
            name = body["metadata"].get("name")
            if r.random() < 0.1:
                body["metadata"]["resourceVersion"] = r.choice(["${rv}", "1"]) if any("saveAs" in s for s in self.steps) else "1"
            if r.random() < 0.05:
                body["metadata"]["managedFields"] = []
        else:
            name = None
        path = self.resource.path(name if isinstance(name, str) and NAME.match(name.replace("${run}", "r")) else self.some_name())
        query = r.choice(["fieldManager=m", "fieldManager=m", "fieldManager=n", "fieldManager=n&force=true", "fieldManager=m&force=true", "", "force=true",
                          "fieldManager=m&force=x"])
        more = self.query().replace("?", "&" if query else "?")
        self.add("PATCH", path + suffix + ("?" if query else "") + query + more, json.dumps(body), content="application/apply-patch+yaml")

    def sub(self):
        r = self.r
        subs = {s: v for s, v in self.resource.subresources.items() if s not in ("proxy", "exec", "attach", "portforward", "log")}
        if not subs:
            return self.update()
        names = sorted(subs)
        name = "status" if "status" in subs and r.random() < 0.6 else r.choice(names)
        verbs = subs[name]
        if name in ("status", "resize", "ephemeralcontainers", "finalize", "approval", "resourceclaimstatus"):
            r.choice([lambda: self.update("/" + name, verbs), lambda: self.patch("/" + name, verbs), lambda: self.apply("/" + name, verbs),
                      lambda: self.add("GET", self.resource.path(self.some_name(), ) + "/" + name) if "get" in verbs else None])()
            return
        body = {
            "scale": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.some_name()}, "spec": {"replicas": r.choice([0, 1, 2, -1, "1", None])}},
            "eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.some_name()},
                         "deleteOptions": r.choice([{}, {"gracePeriodSeconds": r.choice(NUMBERS)}, {"preconditions": {"uid": "x"}}, {"dryRun": ["All"]}, {"propagationPolicy": "X"}])},
            "binding": {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.some_name()}, "target": r.choice([{"name": "n"}, {}, {"kind": "Node", "name": "n"}, {"kind": "X"}])},
            "token": {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                      "spec": r.choice([{}, {"audiences": ["a"]}, {"expirationSeconds": r.choice(NUMBERS)}, {"boundObjectRef": {"kind": r.choice(["Pod", "Secret", "Node", "X", ""]), "apiVersion": r.choice(["v1", "", "x"]), "name": r.choice(["x", ""]), "uid": r.choice(["", "u"])}}])},
        }.get(name, {})
        if isinstance(body, dict) and r.random() < 0.3:
            at = r.choice(list(places(body)) or [("x",)])
            try:
                get(body, at[:-1])[at[-1]] = wrong(r)
            except (KeyError, TypeError):
                pass
        path = self.resource.path(self.some_name()) + "/" + name
        if "create" in verbs:
            self.add("POST", path + self.query(), body)
            if name == "token":
                self.steps[-1]["mask"] = ["status.token", "status.expirationTimestamp"]
        elif "get" in verbs and r.random() < 0.3:
            self.add("GET", path)
        elif "update" in verbs and r.random() < 0.5:
            self.add("PUT", path + self.query(), body)
        elif "patch" in verbs:
            self.add("PATCH", path + self.query(), {"spec": body.get("spec", {})}, content=r.choice(
                ["application/merge-patch+json", "application/strategic-merge-patch+json"]))

    def options(self):
        r = self.r
        return r.choice([None, None, {}, {"kind": "DeleteOptions", "apiVersion": "v1"}, {"gracePeriodSeconds": r.choice([0, 1, 30, -1, "x"])},
                         {"propagationPolicy": r.choice(["Foreground", "Background", "Orphan", "X", ""])}, {"orphanDependents": True},
                         {"orphanDependents": False, "propagationPolicy": "Orphan"}, {"preconditions": {"uid": r.choice(["x", "${uid}"])}},
                         {"preconditions": {"resourceVersion": r.choice(["1", "${rv}"])}}, {"dryRun": [r.choice(["All", "X", ""])]}, {"unknown": 1},
                         {"kind": "Pod", "apiVersion": "v1"}, {"ignoreStoreReadErrorWithClusterBreakingPotential": True}])

    def delete(self):
        if "delete" in self.resource.verbs:
            self.add("DELETE", self.resource.path(self.some_name()) + self.r.choice(
                ["", "", "", "?gracePeriodSeconds=0", "?propagationPolicy=Foreground", "?propagationPolicy=x", "?gracePeriodSeconds=x", "?dryRun=All",
                 "?orphanDependents=true", "?gracePeriodSeconds=-5"]), self.options())

    def delete_some(self):
        if "deletecollection" in self.resource.verbs and (self.resource.namespaced or self.resource.plural not in CLUSTER_WIDE_KEPT):
            query = self.selector() if self.resource.namespaced else OURS
            self.add("DELETE", self.resource.path() + "?" + query + self.r.choice(["", "&limit=1", "&dryRun=All"]), self.options())

    def watch(self):
        r = self.r
        if "watch" not in self.resource.verbs:
            return
        query = "watch=true&timeoutSeconds=1&" + r.choice(["resourceVersion=0", "resourceVersion=x", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                                                         "sendInitialEvents=true", "resourceVersion=", "resourceVersion=0&" + self.selector(), "limit=1&resourceVersion=0",
                                                         "resourceVersionMatch=Exact&resourceVersion=1"])
        if not self.resource.namespaced:
            query += "&" + OURS
        self.add("GET", self.resource.path() + "?" + query, watch={"events": 50, "seconds": 3, "untilClose": True, "bookmarks": "initial"})
        self.steps[-1].pop("saveAs", None)
        if r.random() < 0.3:
            self.steps[-1]["headers"]["Accept"] = TABLE

    def odd(self):
        """paths and methods that are wrong, or are not about objects"""
        r = self.r
        name = self.some_name()
        self.add(r.choice(["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]), r.choice([
            self.resource.path(name) + "/unknown", self.resource.path(name) + "/status", self.resource.path(name) + "/scale", self.resource.path(name) + "/a/b",
            self.resource.path() + "/", self.resource.path(namespace=None), self.resource.path(name, namespace=None), self.resource.path(namespace="missing"),
            self.resource.path(name)[:-len(name)] + "A_b", "/apis/" + (self.resource.group or "x"), "/apis/" + (self.resource.group or "x") + "/v9",
            "/apis/%s/v9/%s" % (self.resource.group or "x", self.resource.plural), "/api/v1/unknown", "/apis/x.example.com/v1/y", "/unknown", "/api/v2", "/apis/", "/api",
            "/openapi/v3/apis/x/v1", "/openapi/v4", "/version", "/logs", "/swagger.json", "/.well-known/openid-configuration", "/openid/v1/jwks/x",
            "/api/v1/watch/namespaces", "/api/v1/namespaces/${ns}/" + self.resource.plural + "/" + name + "/proxy/x", "//api/v1", "/api/v1/namespaces//pods", "/api/v1/namespaces/${ns}/",
        ]) + r.choice(["", "", "?x=y", "?pretty=true"]))
        self.steps[-1].pop("saveAs", None)
        if self.steps[-1]["method"] in ("POST", "PUT", "PATCH"):
            self.steps[-1]["body"] = r.choice([{}, self.seed(False)])
