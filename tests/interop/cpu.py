#!/usr/bin/env python3
"""Where the processor time of a kube-apiserver goes: by kind of request, and in each by what is done.

    go tool pprof -traces PROFILE | tests/interop/cpu.py [MILLISECONDS]

PROFILE is what /debug/pprof/profile answers. MILLISECONDS is the processor time of the server for a pod: it is split up as
the samples are. `tests/interop/upstream speed` with PROFILE=SECONDS does so.
"""

import collections
import re
import sys

# The first that is in a stack decides.
KINDS = [
    ("collecting garbage", r"^runtime\.(gcBgMarkWorker|bgsweep|bgscavenge|gcAssistAlloc|gcDrain)"),
    ("binding", r"CreateNamedResource"),
    ("create", r"handlers\.CreateResource|namedCreaterAdapter"),
    ("patch", r"handlers\.PatchResource|handlers\.\(\*patcher\)"),
    ("update", r"handlers\.UpdateResource"),
    ("delete", r"handlers\.Delete(Resource|Collection)"),
    ("watches of clients", r"WatchServer|handleWatch"),
    ("watch of etcd, and its cache", r"storage/(cacher|etcd3)\."),
    ("list", r"handlers\.ListResource"),
    ("get", r"handlers\.(GetResource|getResourceHandler)"),
    ("the server's own clients", r"client-go/"),
    ("client of etcd", r"etcd/client|google\.golang\.org/grpc"),
    ("filters before a request", r"apiserver/pkg/(server|endpoints)/filters|apiserver/pkg/authenti|apiserver/pkg/authoriz"),
    ("connections", r"net/http|crypto/tls|golang\.org/x/net/http2"),
]
WORK = [
    ("managed fields", r"managedfields/internal|structured-merge-diff"),
    ("JSON written", r"serializer/json\.\(\*Serializer\)\.(Encode|doEncode)"),
    ("JSON read", r"serializer/json\.\(\*Serializer\)\.(Decode|unmarshal)|serializer/recognizer"),
    ("patch applied", r"strategicpatch|smpPatcher|jsonPatcher|DefaultUnstructuredConverter|unstructuredConverter"),
    ("validation", r"[vV]alidation\.|\.Validate[A-Z_]|ValidateDeclaratively|Strategy\.Validate"),
    ("admission", r"pkg/admission"),
    ("protobuf written", r"protobuf\.\(\*(Serializer|RawSerializer)\)\.(Encode|doEncode|encode)"),
    ("protobuf read", r"protobuf\.\(\*(Serializer|RawSerializer)\)\.(Decode|unmarshal)"),
    ("etcd asked", r"etcd/client|google\.golang\.org/grpc"),
    ("defaults and versions", r"runtime\.\(\*Scheme\)\.(Default|Convert|unsafeObjectConvertor)|SetObjectDefaults|serializer/versioning"),
    ("audit, metrics, traces", r"pkg/audit|endpoints/metrics|component-base/(tracing|metrics)|prometheus"),
    ("sent and received", r"crypto/tls|golang\.org/x/net/http2|^syscall|^internal/poll|http\.\(\*(conn|response|chunkWriter)\)"),
]
# Filters call each other: the innermost decides.
FILTERS = [
    ("authentication", r"pkg/authentication|withAuthentication"),
    ("authorization", r"authoriz"),
    ("flow control", r"flowcontrol|[pP]riorityAndFairness|fairqueuing"),
    ("time limits", r"timeoutHandler|withTimeout|context\.With"),
    ("other filters", r"pkg/(server|endpoints)/filters"),
]


def first(table, stack, otherwise):
    """The name of the first pattern that is found in a stack."""
    for name, pattern in table:
        if any(re.search(pattern, function) for function in stack):
            return name
    return otherwise


def work(kind, stack):
    """What is done in a stack."""
    found = first(WORK, stack, "other")
    if found != "other" or not kind.startswith("filters"):
        return found
    for function in stack:
        of = first(FILTERS, [function], None)
        if of:
            return of
    return "other"


def milliseconds(text):
    """A duration as pprof prints it."""
    number, unit = re.fullmatch(r"([\d.]+)(ns|us|ms|s|mins?)", text).groups()
    return float(number) * {"ns": 1e-6, "us": 1e-3, "ms": 1, "s": 1e3, "min": 6e4, "mins": 6e4}[unit]


def main():
    times = collections.defaultdict(collections.Counter)
    stack, time = [], 0.0

    def end():
        if stack:
            kind = first(KINDS, stack, "other")
            times[kind][work(kind, stack)] += time

    for line in sys.stdin:
        if line.startswith("-----------+"):
            end()
            stack, time = [], 0.0
            continue
        found = re.match(r"\s+([\d.]+(?:ns|us|ms|s|mins?))\s{2,}(\S+)", line)
        if found and not stack:
            time, stack = milliseconds(found[1]), [found[2]]
        elif stack and line.startswith("  "):
            stack.append(line.split()[0])
    end()
    whole = sum(sum(of.values()) for of in times.values())
    if not whole:
        sys.exit("no samples")
    total = float(sys.argv[1]) if len(sys.argv) > 1 else whole
    share = total / whole
    print(f"{total:8.2f} ms{' a pod' if len(sys.argv) > 1 else ''}, of which")
    for kind, of in sorted(times.items(), key=lambda item: -sum(item[1].values())):
        parts = [f"{name} {value * share:.2f}" for name, value in of.most_common(6) if value > whole / 200]
        print(f"{sum(of.values()) * share:8.2f} {kind}: {', '.join(parts)}")
    every = collections.Counter()
    for of in times.values():
        every.update(of)
    print("by what is done: " + ", ".join(f"{name} {value * share:.2f}" for name, value in every.most_common()))


main()
