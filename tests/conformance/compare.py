#!/usr/bin/env python3
"""Asks two API servers the same random questions and reports where their answers differ, by kind of difference.
The first server is the reference. Python 3.11+, standard library only. See compare.md."""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import sys
import threading
import time

import mutate
import replay
import topics

HERE = os.path.dirname(os.path.abspath(__file__))
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Normaliser(replay.Normaliser):
    """As in a replay, but versions of an object stay apart: the first one that is seen is <rv 1>, and so on."""

    def __init__(self, run):
        super().__init__(run)
        self.versions = {}

    def text(self, s):
        # Where the source of a server was when it was built.
        return re.sub(r'in scheme \\?"[^"]*"', "in scheme <…>", super().text(s))

    def meta(self, m, keep_managed):
        out = super().meta(m, keep_managed)
        if m.get("uid") and m.get("resourceVersion"):
            seen = self.versions.setdefault(m["uid"], {})
            out["resourceVersion"] = "<rv %d>" % seen.setdefault(m["resourceVersion"], len(seen) + 1)
        return out


def target(path):
    kc = replay.kubeconfig(path)
    return replay.Target(kc["server"], kc["token"], kc["ca"], kc["insecure"], kc["cert"], kc["key"])


def fetch(t, path, accept="application/json"):
    client = replay.Client(t)
    try:
        status, _, data = client.request("GET", path, {"Accept": accept}, timeout=60)
        if status != 200:
            raise SystemExit("%s: %d %s" % (path, status, data[:200].decode("utf-8", "replace")))
        return json.loads(data)
    finally:
        client.close()


def resources(t):
    """what the server serves, by group, version and name"""
    out = {}
    for root in ("/api", "/apis"):
        for group in fetch(t, root, DISCOVERY)["items"]:
            for version in group["versions"]:
                for entry in version["resources"]:
                    r = mutate.Resource(group["metadata"].get("name", ""), version["version"], entry)
                    out[(r.group, r.version, r.plural)] = r
    return out


def generator(reference, other, only):
    ours, theirs = resources(reference), resources(other)
    for key in sorted(set(ours) ^ set(theirs)):
        print("only %s serves %s" % ("the reference" if key in ours else "the other server", "/".join(key)))
    common = {k: r for k, r in ours.items() if k in theirs}
    schemas = mutate.Schemas(fetch(reference, "/openapi/v2"))
    for key, body in mutate.seed_objects():
        if key in common and isinstance(body, dict):
            common[key].seeds.append(body)
            schemas.learn(body)
    return mutate.Generator(list(common.values()), schemas, only)


def play(t, doc):
    scenario = replay.Scenario(t, doc)
    scenario.norm = Normaliser(scenario.run)
    return [ans if err is None else {"error": err} for _, ans, err in scenario.play()]


# -- differences

def flat(value, path=()):
    if isinstance(value, dict) and value:
        for k, v in value.items():
            yield from flat(v, path + (k,))
    elif isinstance(value, list) and value:
        for i, v in enumerate(value):
            yield from flat(v, path + (i,))
    else:
        yield path, value


def found(value, path):
    """what is at a path"""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return "<absent>"
    return value


def errors(answer):
    """the errors that a Status names, in order"""
    m = re.match(r".* is invalid: (\[?)(.*?)\]?$", str(((answer.get("body") or {}) if isinstance(answer.get("body"), dict) else {}).get("message")), re.S)
    return re.split(r", (?=(?:<nil>|[a-zA-Z.][\w.\[\]/\"-]*): )", m.group(2)) if m else []


def kind_of(answer):
    body = answer.get("body") if isinstance(answer.get("body"), dict) else {}
    return "%s %s" % (answer.get("status", answer.get("error")), body.get("reason") or body.get("kind") or "")


def plain(text):
    """a text without what is particular to an object"""
    text = re.sub(r'\\?"(?:[^"\\]|\\[^"])*\\?"', '"…"', text)
    text = re.sub(r"\[\w*\]", "[]", text)
    return re.sub(r"\d+", "N", text)[:160]


def differences(want, got):
    """(kind, detail) of each difference"""
    if "error" in want or "error" in got:
        return [("no answer", "%s / %s" % (want.get("error"), got.get("error")))] if want.get("error") != got.get("error") else []
    out = []
    if want["status"] != got["status"]:
        texts = [str((a.get("body") or {}).get("message", a.get("text", ""))) if isinstance(a.get("body", {}), dict) else "" for a in (want, got)]
        return [("status %s, not %s" % (want["status"], got["status"]), "reference: %s | other: %s" % tuple(texts))]
    if want.get("contentType") != got.get("contentType"):
        out.append(("content type", "reference: %s | other: %s" % (want.get("contentType"), got.get("contentType"))))
    if want.get("warnings") != got.get("warnings"):
        a, b = want.get("warnings") or [], got.get("warnings") or []
        out.append(("warnings" if sorted(a) != sorted(b) else "order of warnings", "missing: %s | too many: %s" % ([x for x in a if x not in b], [x for x in b if x not in a])))
    if want.get("headers") != got.get("headers"):
        out.append(("headers", "reference: %s | other: %s" % (want.get("headers"), got.get("headers"))))
    a, b = errors(want), errors(got)
    if a or b:
        if sorted(a) != sorted(b):
            out.append(("errors", "missing: %s | too many: %s" % ([x for x in a if x not in b], [x for x in b if x not in a])))
            return out
        if a != b:
            out.append(("order of errors", "reference: %s | other: %s" % (a, b)))
            return out
    rest = [{k: v for k, v in x.items() if k not in ("status", "contentType", "warnings", "headers")} for x in (want, got)]
    a, b = (dict(flat(x)) for x in rest)
    for path in sorted(set(a) | set(b), key=str):
        if a.get(path, "<absent>") != b.get(path, "<absent>") or type(a.get(path)) is not type(b.get(path)):
            if "managedFields" in path:
                path = path[:path.index("managedFields") + 1]
                if any(kind.endswith("managedFields") for kind, _ in out):
                    continue                     # told once, whatever differs in it
            where = ".".join("#" if isinstance(k, int) else str(k) for k in path)
            out.append((where, "reference: %s | other: %s" % tuple(replay.short(found(x, path)) for x in rest)))
            if len(out) > 5:
                break
    return out


def route(step, resource):
    path = step["path"].split("?")[0]
    tail = path[len(resource.path()):] if path.startswith(resource.path()) else None
    sub = "/" + tail.split("/", 2)[2] if tail and tail.count("/") > 1 else ""
    how = {"application/apply-patch+yaml": "APPLY"}.get(step["headers"].get("Content-Type"), step["method"])
    if tail is None and isinstance(resource, topics.Topic):
        return "%s %s %s" % (resource.plural, how, re.sub(r"^/apis?(/|$)|/v\d\w*(?=/)|/namespaces/\$\{ns\}", "", path))
    return "%s %s%s" % (how, resource.plural, sub) if tail is not None else "%s path" % how


def expected(file):
    """(pattern, reason) of each line of the file: PATTERN => REASON"""
    out = []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and line[0] != "#":
                pattern, _, reason = line.strip().partition(" => ")
                out.append((re.compile(pattern), reason))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("reference", help="kubeconfig of the server that is right")
    ap.add_argument("other", help="kubeconfig of the server that is compared with it")
    ap.add_argument("--seed", type=int, default=1, help="number of the first scenario; a scenario follows from its number")
    ap.add_argument("--count", type=int, default=200, help="how many scenarios")
    ap.add_argument("--jobs", type=int, default=4, help="scenarios that are played at the same time")
    ap.add_argument("--only", help="regular expression for names of resources")
    ap.add_argument("--topics", metavar="NAMES", help="only conversations of topics.py: all, or names of functions with commas between")
    ap.add_argument("--expected", default=os.path.join(HERE, "compare-expected.txt"), help="file of differences that are meant to be")
    ap.add_argument("--verbose", action="store_true", help="print every request and both answers")
    ap.add_argument("--json", metavar="FILE", help="write every difference, a JSON object per line")
    a = ap.parse_args()

    reference, other = target(a.reference), target(a.other)
    make = generator(reference, other, a.only)
    meant = expected(a.expected)
    found, known = collections.OrderedDict(), collections.Counter()
    steps = 0
    log = open(a.json, "w", encoding="utf-8") if a.json else None
    began = time.monotonic()
    lock = threading.Lock()

    def one(number):
        nonlocal steps
        if a.topics or (number % 3 == 0 and not a.only):
            resource, doc = topics.topic(number, random.Random(number), make, a.topics and a.topics != "all" and a.topics.split(","))
        else:
            resource, doc = make.scenario(number)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            want, got = pool.map(lambda t: play(t, doc), (reference, other))
        all_ = [differences(*pair) if step.get("compare", True) else [] for step, *pair in zip(doc["steps"], want, got)]
        # What the reference itself answers differently from time to time is no difference.
        again = play(reference, doc) if any(all_) else want
        with lock:
            for i, step in enumerate(doc["steps"]):
                steps += 1
                if a.verbose:
                    print("%d/%s %s %s %s\n  body      %s\n  reference %s\n  other     %s" % (
                        number, step["id"], step["method"], step["path"], step["headers"], json.dumps(step.get("body", step.get("bodyText"))),
                        json.dumps(want[i], ensure_ascii=False), json.dumps(got[i], ensure_ascii=False)))
                steady = {kind for kind, _ in differences(want[i], again[i])}
                for kind, detail in all_[i]:
                    line = "%s: %s: %s" % (route(step, resource), kind, detail)
                    reason = next((reason for pattern, reason in meant if pattern.search(line)), None)
                    if kind in steady:
                        continue
                    if reason:
                        known[reason] += 1
                        continue
                    found.setdefault("%s: %s" % (kind, plain(detail)), []).append((number, step, line))
                    if log:
                        print(json.dumps({"seed": number, "step": step["id"], "kind": kind, "line": line, "request": step}), file=log, flush=True)
                if want[i].get("status") != got[i].get("status") and step.get("compare", True):
                    break                        # from here on the servers hold different objects

    with concurrent.futures.ThreadPoolExecutor(max(1, a.jobs)) as pool:
        list(pool.map(one, range(a.seed, a.seed + a.count)))
    for key, cases in sorted(found.items(), key=lambda x: -len(x[1])):
        number, step, line = cases[0]
        print("%4d  %s" % (len(cases), line))
        print("      --seed %d --count 1, step %s: %s %s %s" % (number, step["id"], step["method"], step["path"],
                                                               json.dumps(step.get("body", step.get("bodyText")), ensure_ascii=False)[:600]))
    for reason, times in known.most_common():
        print("%4d  expected: %s" % (times, reason))
    print("%d scenarios, %d requests, %d seconds: %d kinds of differences, %d in all" % (
        a.count, steps, time.monotonic() - began, len(found), sum(map(len, found.values()))))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
