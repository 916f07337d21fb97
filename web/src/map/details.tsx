import { useEffect, useState } from "preact/hooks";
import { Failed, get } from "../api";
import { BLOCKED, consumption, value } from "../model/device";
import type { Device, Held, Unit } from "../model/device";
import { time } from "../model/claim";
import { entries, list } from "../model/types";
import type { RawPod } from "../model/types";
import { ago, moment, percent } from "../ui/format";
import { StateChip } from "../ui/state";

/** Partitions that are listed one by one. */
const LISTED = 64;

/** Everything about a tile. */
export function Details({ unit, close }: { unit: Unit; close: () => void }) {
  const [part, setPart] = useState("");
  useEffect(() => setPart(""), [unit.key]);
  const device = unit.partitioned ? unit.devices.find((d) => d.key === part) : unit.devices[0];
  return (
    <aside class="details" aria-label="Device">
      <header>
        <div>
          <h2>{unit.label}</h2>
          <p class="quiet">{unit.node}</p>
        </div>
        <button type="button" class="icon" aria-label="Close" onClick={close}>
          ×
        </button>
      </header>
      <p class="row">
        <StateChip state={unit.state} />
        {unit.share > 0 && unit.share < 1 && <span class="quiet">{percent(unit.share, 1)} used</span>}
      </p>
      <dl>
        <dt>Driver</dt>
        <dd>{unit.pool.driver}</dd>
        <dt>Pool</dt>
        <dd>
          {unit.pool.name} <span class="quiet">generation {unit.pool.generation}</span>
        </dd>
        {!unit.pool.complete && (
          <>
            <dt>Published</dt>
            <dd>
              {unit.pool.slices.size} of {unit.pool.expected} slices
            </dd>
          </>
        )}
      </dl>
      {unit.partitioned && <Partitions unit={unit} part={part} choose={setPart} />}
      {device && <OfDevice device={device} />}
    </aside>
  );
}

function Partitions({ unit, part, choose }: { unit: Unit; part: string; choose: (key: string) => void }) {
  const used = new Map<string, number>();
  for (const device of unit.devices) {
    if (device.holders().length === 0) continue;
    for (const [name, amount] of consumption(unit, device)) used.set(name, (used.get(name) ?? 0) + amount);
  }
  return (
    <section>
      <h3>Shared counters</h3>
      {[...(unit.counters ?? [])].map(([name, whole]) => (
        <Meter key={name} name={name} used={used.get(name) ?? 0} whole={whole} />
      ))}
      <h3>{unit.devices.length} partitions</h3>
      <ul class="parts">
        {unit.devices.slice(0, LISTED).map((device) => (
          <li key={device.key}>
            <button
              type="button"
              aria-pressed={device.key === part}
              title={device.state === BLOCKED ? "Others use what it is made of" : undefined}
              onClick={() => choose(device.key === part ? "" : device.key)}
            >
              <StateChip state={device.state} /> <span class="name">{device.name}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Meter({ name, used, whole }: { name: string; used: number; whole: number }) {
  return (
    <div class="meter">
      <span>{name}</span>
      <span class="quiet">{percent(used, whole)}</span>
      <progress max={whole || 1} value={Math.min(used, whole)} aria-label={`${name} used`} />
    </div>
  );
}

function OfDevice({ device }: { device: Device }) {
  const attributes = entries(device.raw.attributes).sort(([a], [b]) => a.localeCompare(b));
  const capacity = entries(device.raw.capacity);
  return (
    <>
      {device.unit?.partitioned && <h3 class="name">{device.name}</h3>}
      <section>
        <h3>Held by</h3>
        {device.held.length === 0 && <p class="quiet">No claim has it.</p>}
        {device.held.slice(0, 16).map((held) => (
          <Holder key={`${held.claim.key} ${held.result.request}`} held={held} />
        ))}
      </section>
      {device.fault !== "" && (
        <section>
          <h3>Fault</h3>
          <p>{device.fault}</p>
        </section>
      )}
      {device.taints.length > 0 && (
        <section>
          <h3>Taints</h3>
          {device.taints.map((taint) => (
            <p key={`${taint.key} ${taint.effect}`}>
              <code>
                {taint.key}
                {taint.value ? `=${taint.value}` : ""}:{taint.effect}
              </code>{" "}
              {taint.timeAdded && <span class="quiet">for {ago(time(taint.timeAdded))}</span>}
            </p>
          ))}
        </section>
      )}
      {device.classes.length > 0 && (
        <section>
          <h3>Classes</h3>
          <p>{device.classes.join(", ")}</p>
        </section>
      )}
      <Table title="Capacity" rows={capacity.map(([name, c]) => [name, String(c?.value)])} />
      <Table title="Attributes" rows={attributes.map(([name, a]) => [name, value(a)])} />
    </>
  );
}

function Table({ title, rows }: { title: string; rows: [string, string][] }) {
  if (rows.length === 0) return null;
  return (
    <section>
      <h3>{title}</h3>
      <dl class="wide">
        {rows.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Holder({ held }: { held: Held }) {
  const { claim, result } = held;
  const since = claim.allocatedAt;
  const [namespace] = claim.key.split("/");
  return (
    <div class="holder">
      <p>
        <strong>{claim.raw.metadata.name}</strong> <span class="quiet">{namespace}</span>
      </p>
      <p class="quiet">
        {result.adminAccess ? "looks at it with admin access" : `request ${result.request}`}
        {since > 0 && `, since ${moment(since)} (${ago(since)})`}
      </p>
      {entries(result.consumedCapacity).map(([name, amount]) => (
        <p class="quiet" key={name}>
          {name} {String(amount)}
        </p>
      ))}
      {claim.consumers.length === 0 && <p class="warn">reserved for nobody</p>}
      {list(claim.raw.status?.reservedFor)
        .slice(0, 4)
        .map((c) =>
          c.resource === "pods" ? <Pod key={c.name} namespace={namespace ?? ""} name={c.name} /> : <p key={c.name}>{c.name}</p>,
        )}
    </div>
  );
}

/** A pod, asked for when it is shown. */
function Pod({ namespace, name }: { namespace: string; name: string }) {
  const [pod, setPod] = useState<RawPod | string>("");
  useEffect(() => {
    const stop = new AbortController();
    setPod("");
    get<RawPod>("pod", [["namespace", namespace], ["name", name]], stop.signal).then(setPod, (error: unknown) => {
      if (error instanceof Failed) setPod(error.code === 404 ? "this pod is gone" : error.message);
    });
    return () => stop.abort();
  }, [namespace, name]);
  if (typeof pod === "string") {
    return (
      <p>
        pod {name} {pod !== "" && <span class="warn">{pod}</span>}
      </p>
    );
  }
  const ill = list(pod.containers).flatMap((c) =>
    list(c.resources).flatMap((r) => list(r.resources).filter((d) => d.health && d.health !== "Healthy")),
  );
  return (
    <p>
      pod {name} <span class="quiet">{pod.status.phase}, started {moment(time(pod.status.startTime))}</span>
      {ill.map((d) => (
        <span class="warn" key={d.resourceID}>
          {" "}
          {d.resourceID}: {d.health}
        </span>
      ))}
    </p>
  );
}
