#!/usr/bin/env python3
"""Writes data/types.txt, the facts about every built-in type that the crate embeds.

    types.py SWAGGER.json GO_ROOT... > data/types.txt

SWAGGER.json is the OpenAPI v2 document of a Kubernetes release; each GO_ROOT is a checkout of k8s.io/api,
k8s.io/apimachinery, k8s.io/apiextensions-apiserver or k8s.io/kube-aggregator of the same release. The OpenAPI document
says which fields exist, their known values, how lists and maps merge, and which kinds there are. It does not say what the Go encoder does with a
zero value, nor a field's protobuf number or default; that comes from the struct tags. Descriptions are not read.
"""
import json
import os
import re
import sys

ALIASES = [
    ("io.k8s.apimachinery.pkg.apis.meta.v1.", "meta."),
    ("io.k8s.apimachinery.pkg.", "apimachinery."),
]
WELL_KNOWN = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": "duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "json",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "json",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": "schemaorarray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "schemaorbool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "json",
}


def definition_name(path):
    """The OpenAPI name of the types in a Go package directory, by where the directory lies."""
    path = path.replace(os.sep, "/")
    for marker, prefix in (
        ("kubernetes+apimachinery/", "io.k8s.apimachinery."),
        ("kubernetes+apiextensions-apiserver/", "io.k8s.apiextensions-apiserver."),
        ("kubernetes+kube-aggregator/", "io.k8s.kube-aggregator."),
        ("kubernetes+api/", "io.k8s.api."),
    ):
        if marker in path + "/":
            rest = (path + "/").split(marker, 1)[1].strip("/")
            return prefix + rest.replace("/", ".")
    raise SystemExit(f"cannot place {path}")


def go_structs(roots):
    """OpenAPI name -> {json name: (pointer, omitempty, omitzero, proto number, default, go type)} and embedded types."""
    structs, aliases = {}, {}
    for root in roots:
        for base, _, files in os.walk(root):
            for file in sorted(files):
                if not file.endswith(".go"):
                    continue
                package = definition_name(base)
                current, comments = None, []
                for line in open(os.path.join(base, file), encoding="utf-8"):
                    text = line.strip()
                    start = re.match(r"type (\w+) struct \{", text)
                    if start:
                        current = package + "." + start.group(1)
                        structs.setdefault(current, ({}, []))
                        if text.endswith("}"):
                            current = None
                        continue
                    alias = re.match(r"type (\w+) (?:= )?([\w.\[\]*]+)$", text)
                    if alias and not current:
                        aliases[package + "." + alias.group(1)] = alias.group(2)
                    if not current:
                        continue
                    if text == "}":
                        current, comments = None, []
                        continue
                    if text.startswith("//"):
                        comments.append(text[2:].strip())
                        continue
                    field = re.match(r"(\w+\s+)?([\w.\[\]*{}]+)\s*`(.*)`", text)
                    if field:
                        tag = re.search(r'json:"([^"]*)"', field.group(3))
                        proto = re.search(r'protobuf:"([^"]*)"', field.group(3))
                        if tag:
                            name, *options = tag.group(1).split(",")
                            kind = field.group(2)
                            number = None
                            if proto:
                                numbers = [p for p in proto.group(1).split(",") if p.isdigit()]
                                number = int(numbers[0]) if numbers else None
                            default = None
                            for comment in comments:
                                if comment.startswith("+default="):
                                    default = comment[len("+default="):].strip()
                            if name == "" and "inline" in options or not field.group(1):
                                structs[current][1].append((package, kind, number))
                            if name and name != "-":
                                structs[current][0][name] = (
                                    kind.startswith("*"), "omitempty" in options, "omitzero" in options, number, default, kind)
                    if text == "" or field:
                        comments = []
    return structs, aliases


def flatten(structs, name, seen=()):
    """A struct's fields with those of its embedded structs."""
    fields, embedded = structs.get(name, ({}, []))
    result = dict(fields)
    for package, kind, number in embedded:
        kind = kind.lstrip("*")
        if "." in kind:
            alias, short = kind.split(".")
            candidates = [n for n in structs if n.endswith("." + short) and
                          ("meta.v1" in n if alias == "metav1" else alias.rstrip("0123456789") in n)]
            target = candidates[0] if candidates else None
        else:
            target = package + "." + kind
        if target and target not in seen:
            for key, value in flatten(structs, target, seen + (name,)).items():
                if number is None:
                    # Type metadata is not part of the protobuf message.
                    value = value[:3] + (None,) + value[4:]
                result.setdefault(key, value)
    return result


def aliased(structs, simple):
    """A type that is an alias of one of another package: the first of that simple name."""
    for name in sorted(structs):
        if name.endswith("." + simple) and structs[name][0]:
            return flatten(structs, name)
    return {}


def alias_name(kind, package):
    """The Go name of a scalar field's type where it has one of its own."""
    kind = kind.lstrip("*")
    if kind in ("string", "int32", "int64", "bool", "float64", "float32", "int", "uint32") or kind[0] in "[m":
        return None
    version = package.rsplit(".", 1)[1]
    if "." in kind:
        alias, simple = kind.split(".")
        return "%s.%s" % ({"metav1": "v1", "intstr": "intstr"}.get(alias, "v1" if alias.endswith("v1") else alias), simple)
    return version + "." + kind


def map_name(kind, ty, package):
    """The Go name of a map whose type, or the type of its keys or elements, has a name of its own."""
    if ty == "{}quantity":
        if not kind.startswith("map["):
            return alias_name(kind, package)
        key, element = kind.removeprefix("map[").split("]")
        return "map[%s]%s" % (alias_name(key, package) or key, element)
    if ty == "{}[]str" and kind.startswith("map[string]"):
        element = alias_name(kind.removeprefix("map[string]"), package)
        return element and "map[string]" + element
    return None


def short(name, package):
    if name in WELL_KNOWN:
        return WELL_KNOWN[name]
    if name.rsplit(".", 1)[0] == package:
        return "." + name.rsplit(".", 1)[1]
    for long, alias in ALIASES:
        if name.startswith(long):
            return alias + name[len(long):]
    return name.removeprefix("io.k8s.")


def type_of(schema, package):
    if "$ref" in schema:
        return short(schema["$ref"].removeprefix("#/definitions/"), package)
    kind, form = schema.get("type"), schema.get("format")
    if kind == "array":
        return "[]" + type_of(schema["items"], package)
    if kind == "object":
        if "additionalProperties" in schema:
            return "{}" + type_of(schema["additionalProperties"], package)
        return "json"
    if kind == "string":
        return {"byte": "bytes", "int-or-string": "intstr", "date-time": "time"}.get(form, "str")
    if kind == "integer":
        return {"int32": "i32", "int64": "i64"}.get(form, "i64")
    if kind == "number":
        return "f64"
    if kind == "boolean":
        return "bool"
    return "json"


def merge_attributes(schema):
    out = []
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        out.append("map=" + ",".join(schema["x-kubernetes-list-map-keys"]))
    elif kind:
        out.append(kind)
    if schema.get("x-kubernetes-map-type") in ("atomic", "granular"):
        out.append(schema["x-kubernetes-map-type"])
    if "x-kubernetes-patch-strategy" in schema:
        key = schema.get("x-kubernetes-patch-merge-key", "")
        out.append("patch=" + schema["x-kubernetes-patch-strategy"].replace(",", "+") + (":" + key if key else ""))
    return out


def resolve_default(value):
    constants = {"ref(AzureDataDiskCachingReadWrite)": '"ReadWrite"', "ref(AzureSharedBlobDisk)": '"Shared"'}
    return constants.get(value, value)


def main():
    swagger = json.load(open(sys.argv[1], encoding="utf-8"))
    structs, _ = go_structs(sys.argv[2:])
    definitions = swagger["definitions"]
    missing = []
    last = None
    print("// Generated by tools/types.py from the OpenAPI document and struct tags of Kubernetes 1.36; the format is told in src/types.rs.")
    for name in sorted(definitions):
        if name in WELL_KNOWN:
            continue
        schema = definitions[name]
        package, simple = name.rsplit(".", 1)
        if package != last:
            print("# " + package)
            last = package
        head = [simple]
        gvks = schema.get("x-kubernetes-group-version-kind", [])
        own = [g for g in gvks if len(gvks) == 1]
        if own:
            head.append("gvk=" + "/".join((own[0]["group"], own[0]["version"], own[0]["kind"])))
        elif gvks:
            head.append("anygroup")
        head += merge_attributes(schema)
        if "properties" not in schema and schema.get("type") != "object":
            head.append("is=" + type_of(schema, package))
        print(" ".join(head))
        go = flatten(structs, name) or aliased(structs, simple)
        if "properties" in schema and not go:
            missing.append(name)
        required = schema.get("required", [])
        for field, sub in schema.get("properties", {}).items():
            parts = [field, type_of(sub, package)]
            if field in required:
                parts.append("!%d" % required.index(field))
            tags = go.get(field)
            if tags:
                pointer, omitempty, omitzero, number, default, kind = tags
                flags = ("*" if pointer else "") + ("o" if omitempty else "") + ("z" if omitzero else "")
                if flags:
                    parts.append(flags)
                if number is not None:
                    parts.append("#%d" % number)
                if default is not None:
                    parts.append("d=" + resolve_default(default))
                alias = alias_name(kind, package)
                if alias and parts[1] in ("str", "i32", "i64", "bool"):
                    parts.append("t=" + alias)
                element = kind.startswith("[]") and alias_name(kind[2:], package)
                if element and parts[1] == "[]str":
                    parts.append("t=[]" + element)
                if map_name(kind, parts[1], package):
                    parts.append("t=" + map_name(kind, parts[1], package))
            else:
                missing.append(name + "." + field)
                parts.append("o")
            parts += merge_attributes(sub)
            elements = sub.get("items") or sub.get("additionalProperties") or {}
            values = sub.get("enum") or elements.get("enum")
            if values:
                parts.append("e=" + "|".join(value.replace(" ", "_") for value in values))
            print("\t" + " ".join(parts))
    if missing:
        print("no struct tags for: " + ", ".join(missing), file=sys.stderr)


if __name__ == "__main__":
    main()
