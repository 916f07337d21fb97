#!/usr/bin/env python3
"""Plays the scenarios against a simulation instead of a control plane.

The steps, the checks and the invariants are those of run.py. In place of the API
server there is a program that simulates a cluster (one JSON object a line), and
in place of the clock the time of the simulation. Scenarios about what is not
simulated are left out, each with a reason; --list tells all of them.
"""
import argparse
import collections
import fnmatch
import json
import os
import re
import subprocess
import sys
import time as real_time
import types
import urllib.parse

import run

HERE = os.path.dirname(os.path.abspath(__file__))
START = 1767225600  # 2026-01-01T00:00:00Z

# What is not simulated, by the steps of a scenario: a step, or a kind of object.
STEPS = {
    "expectError": "what the API server refuses",
    "event": "events",
    "kubelet": "a kubelet that is late",
    "deployment": "workload controllers",
    "job": "workload controllers",
    "apply": "server-side apply",
}
KINDS = {
    "Deployment": "workload controllers",
    "ReplicaSet": "workload controllers",
    "StatefulSet": "workload controllers",
    "DaemonSet": "workload controllers",
    "Job": "workload controllers",
    "ResourceQuota": "quota",
}
# By name, with the reason; patterns of what a whole group is about.
NAMES = {
    "taint-evict*": "eviction from tainted devices",
    "taint-rule-none*": "the status of taint rules",
    "taint-rule-other-effect": "the status of taint rules",
    "taint-rule-shared-devices": "the status of taint rules",
    "basic-template": "names of generated claims",
    "basic-generated-labels": "names of generated claims",
    "basic-long-names": "names of generated claims",
    "basic-longest-pod-name": "names of generated claims",
    "basic-mixed-sources-status": "names of generated claims",
    "basic-name-cut-in-proportion": "names of generated claims",
    "basic-template-metadata": "names of generated claims",
    "basic-pod-never-restarted-same-name": "names of generated claims",
    "extended-long-pod-name": "names of generated claims",
    "basic-owner-done-other-user": "names of generated claims",
    "basic-owner-gone-other-user": "names of generated claims",
    "basic-adopted-claim": "claims that are made by hand for a pod with a template",
    "basic-foreign-generated-claim": "claims that are made by hand for a pod with a template",
    "basic-bound-*": "reservations for pods that are bound by hand",
    "basic-reservation-restored": "reservations that are taken away by hand",
    "basic-reservation-of-ghost": "reservations that are made by hand",
    "basic-stale-reservation": "reservations that are made by hand",
    "basic-status-cleared": "claims that are lost while their pods need them",
    "basic-claim-lost-while-pending": "claims that are lost while their pods need them",
    "race-delete-claims": "claims that are lost while their pods need them",
    "basic-claim-of-deleted-owner": "garbage collection",
    "basic-claim-owned-without-controller": "garbage collection",
    "basic-pod-of-deleted-owner": "garbage collection",
    "basic-slice-goes-with-node": "garbage collection",
    "basic-finalizer-on-pod": "finalizers of others",
    "basic-running-pod-finalizer": "finalizers of others",
    "basic-foreign-finalizer-kept": "finalizers of others",
    "resched-claim-deleting-then-recreated": "finalizers of others",
    "basic-namespace-*": "deletion of namespaces",
    "race-namespace-deleted-while-scheduling": "deletion of namespaces",
    "resched-namespace-emptied": "deletion of namespaces",
    "admin-label-taken-away": "admission",
    "basic-too-many-consumers": "validation of what is written",
    "device-status-spec-write-ignored": "validation of what is written",
    "gated-template-made-before": "conditions of pods beside their message",
    "gated-two-gates": "conditions of pods beside their message",
    "select-runtime-error-message": "conditions of pods beside their message",
    "preempt-queue-order": "how long pods stay back when no time passes in between",
}


class Clock:
    """Stands for the module time in run.py."""

    def __init__(self, program):
        self.program, self.now = program, 0.0

    def time(self):
        return START + self.now

    def sleep(self, seconds):
        self.program.ask("pass", seconds=seconds)
        self.now += seconds

    def gmtime(self):
        return real_time.gmtime(self.time())

    strftime = staticmethod(real_time.strftime)


class Done:
    """What a thread would have done, done at once."""

    def __init__(self, func, args):
        self.value = func(*args)

    def result(self, _timeout=None):
        return self.value


class Pool:
    def __init__(self, *_args, **_kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    @staticmethod
    def submit(func, *args):
        return Done(func, args)


class Program:
    """The simulation."""

    def __init__(self, path):
        self.child = subprocess.Popen([path, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what, **fields):
        self.child.stdin.write(json.dumps(dict(fields, do=what)) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit("the simulation ended")
        answer = json.loads(line)
        if "error" in answer:
            raise run.Failure(answer["error"])
        return answer["ok"]


class Api(run.Api):
    """Requests of run.py, put to the simulation."""

    def __init__(self, program):
        self.program = program
        plurals = {v[2]: v[1] for v in run.KINDS.values()}
        plurals["namespaces"] = "Namespace"
        self.kinds = plurals

    def group_version(self, alias):
        return run.KINDS[alias][0][0] if alias != "taintrule" else "resource.k8s.io/v1beta2"

    def parse(self, path):
        parts = urllib.parse.urlsplit(path).path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = None
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        parts = [urllib.parse.unquote(p) for p in parts] + [None, None]
        return self.kinds.get(parts[0], parts[0]), namespace, parts[1], parts[2]

    def call(self, method, path, body=None, ctype="application/json"):
        kind, namespace, name, sub = self.parse(path)
        where = {"kind": kind, "namespace": namespace, "name": name}
        if method == "GET" and name is None:
            items = self.program.ask("list", **where)
            selector = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query).get("labelSelector")
            if selector:
                key, value = selector[0].split("=")
                items = [o for o in items if (o["metadata"].get("labels") or {}).get(key) == value]
            return {"items": items, "metadata": {}}
        if method == "GET":
            found = self.program.ask("get", **where)
            if found is None:
                raise run.ApiError(404, "{}", path)
            return found
        if method == "POST":
            known = self.program.ask("get", kind=body["kind"], namespace=namespace or "",
                                     name=body["metadata"].get("name") or "")
            if known is not None:
                raise run.ApiError(409, "{}", path)
            return self.program.ask("create", object=body, namespace=namespace or "")
        if method == "PUT" and sub is None:
            return self.program.ask("put", object=body, namespace=namespace or "")
        if method == "PUT":
            return self.program.ask("patch", patch={sub: body[sub]}, **where)
        if method == "PATCH":
            if "merge-patch+json" not in ctype or "strategic" in ctype:
                body = strategic(body) if "strategic" in ctype else unsupported(ctype)
            return self.program.ask("patch", patch=body, **where)
        if method == "DELETE":
            if self.program.ask("get", **where) is None:
                raise run.ApiError(404, "{}", path)
            now = (body or {}).get("gracePeriodSeconds") == 0
            return self.program.ask("delete", now=now, **where)
        raise run.Failure("what is %s?" % method)


def strategic(body):
    """Strategic merge patches are merged by keys; the runner's own, about conditions of nodes, make no difference."""
    if set(body) == {"status"} and set(body["status"]) == {"conditions"}:
        return {}
    return unsupported("strategic")


def unsupported(ctype):
    raise run.Failure("unsupported patch: %s" % ctype)


def steps(doc):
    for step in doc:
        yield step
        yield from steps(step.get("parallel") or [])
        yield from steps((step.get("repeat") or {}).get("steps") or [])


def left_out(name, doc):
    """Why a scenario is not played, or None."""
    for pattern, reason in NAMES.items():
        if fnmatch.fnmatch(name, pattern):
            return reason
    for step in steps(doc["steps"]):
        for word, reason in STEPS.items():
            if word in step:
                return reason
        for word in ("create", "apply"):
            for obj in run.listify(step.get(word) or []):
                if obj["kind"] in KINDS:
                    return KINDS[obj["kind"]]
        patch = step.get("patch")
        if patch and (isinstance(patch["body"], list) or patch.get("type") not in (None, "merge")):
            return "patches other than merge patches"
        taint = (step.get("taintrule") or {}).get("taint") or {}
        if taint.get("effect") == "NoExecute" or '"NoExecute"' in json.dumps(step):
            return "eviction from tainted devices and nodes"
    return None


def play(program, clock, name, doc):
    program.ask("reset")
    clock.now = 0.0
    api = Api(program)
    world = run.World.__new__(run.World)
    world.api, world.scenarios, world.pool = api, {}, Pool()
    world.holders, world.held = {}, {}
    args = types.SimpleNamespace(timeout=25, patience=1, keep=True, verbose=False, have=[])
    return run.Scenario(world, name, doc, args).run()


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", required=True, help="what simulates")
    ap.add_argument("--at-least", type=int, default=0, help="fail where fewer are played")
    ap.add_argument("--list", action="store_true", help="tell what is left out, and why")
    ap.add_argument("only", nargs="*", help="names or patterns")
    args = ap.parse_args()
    docs = []
    for place in (os.path.join(HERE, "scenarios.jsonl.gz"), os.path.join(HERE, "..", "scenarios")):
        docs += run.documents(place)
    if args.only:
        docs = [(n, d) for n, d in docs if any(fnmatch.fnmatch(n, p) for p in args.only)]
    program = Program(args.program)
    clock = Clock(program)
    run.time = clock
    run.concurrent = types.SimpleNamespace(futures=types.SimpleNamespace(
        ThreadPoolExecutor=Pool, TimeoutError=TimeoutError))
    reasons, played, failed = collections.Counter(), 0, []
    for name, doc in docs:
        reason = left_out(name, doc)
        if reason is not None:
            reasons[reason] += 1
            if args.list:
                print("left out %s: %s" % (name, reason))
            continue
        if args.list:
            continue
        played += 1
        result = play(program, clock, name, doc)
        if not result["ok"]:
            failed.append(name)
            print("FAIL %s: %s\n    it checks: %s" % (name, result["reason"], result["why"]), flush=True)
    for reason, count in reasons.most_common():
        print("%d left out: %s" % (count, reason))
    print("%d played, %d failed" % (played, len(failed)))
    too_few = not args.list and played < args.at_least
    if too_few:
        print("fewer than %d" % args.at_least)
    return 1 if failed or too_few else 0


if __name__ == "__main__":
    sys.exit(main())
