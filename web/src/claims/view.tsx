import { useMemo, useState } from "preact/hooks";
import { time } from "../model/claim";
import type { Claim, Stage } from "../model/claim";
import type { Fleet } from "../model/fleet";
import { list } from "../model/types";
import { ago, moment, number, plural } from "../ui/format";
import { Pager } from "../ui/pager";

const SIZE = 40;

const STAGES: readonly { id: Stage; name: string }[] = [
  { id: "pending", name: "Waiting" },
  { id: "allocated", name: "Allocated" },
  { id: "reserved", name: "Reserved" },
  { id: "deleting", name: "Deleting" },
];

/** A part of a claim's life. */
interface Part {
  stage: Stage;
  from: number;
  to: number;
}

export function ClaimsView({ fleet, version }: { fleet: Fleet; version: number }) {
  const [text, setText] = useState("");
  const [only, setOnly] = useState<Stage | "leaks" | "">("");
  const [page, setPage] = useState(0);
  const [open, setOpen] = useState("");
  const now = Date.now();
  const all = useMemo(() => [...fleet.claims.values()].sort((a, b) => b.created - a.created), [version]);
  const leaks = new Map(fleet.leaks(now).map((leak) => [leak.claim, leak]));
  const words = text.toLowerCase().split(/\s+/);
  const found = all.filter((claim) => {
    if (only === "leaks" ? !leaks.has(claim) : only !== "" && claim.stage !== only) return false;
    const whole = `${claim.key} ${claim.consumers.join(" ")} ${devices(claim).join(" ")}`.toLowerCase();
    return words.every((word) => whole.includes(word));
  });
  const shown = found.slice(page * SIZE, (page + 1) * SIZE);
  const start = Math.min(now - 60_000, ...shown.map((claim) => claim.created || now));
  const choose = (next: Stage | "leaks" | "") => {
    setOnly(next === only ? "" : next);
    setPage(0);
  };
  return (
    <div class="view page">
      <header class="head">
        <div>
          <h1>{plural(all.length, "claim")}</h1>
          <p class={leaks.size > 0 ? "warn" : "quiet"}>
            {leaks.size > 0 ? `${plural(leaks.size, "claim")} ${leaks.size === 1 ? "keeps" : "keep"} devices that nobody uses` : "No claim keeps devices that nobody uses"}
          </p>
        </div>
        <div class="search">
          <label class="sr" for="claims">
            Filter claims
          </label>
          <input id="claims" type="search" spellcheck={false} placeholder="Filter by name, pod or device" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </div>
      </header>
      <div class="buttons" role="group" aria-label="Only claims in this stage">
        {STAGES.map(({ id, name }) => (
          <button type="button" key={id} aria-pressed={only === id} onClick={() => choose(id)}>
            <i class={`swatch ${id}`} aria-hidden="true" />
            {name} <span class="count">{number.format(all.filter((claim) => claim.stage === id).length)}</span>
          </button>
        ))}
        <button type="button" aria-pressed={only === "leaks"} onClick={() => choose("leaks")}>
          <i class="swatch leak" aria-hidden="true" />
          Leaks <span class="count">{number.format(leaks.size)}</span>
        </button>
      </div>
      <Axis start={start} end={now} />
      <ul class="lives">
        {shown.map((claim) => (
          <li key={claim.key} class={claim.key === open ? "open" : ""}>
            <button type="button" aria-expanded={claim.key === open} onClick={() => setOpen(claim.key === open ? "" : claim.key)}>
              <span class="who">
                <b>{claim.raw.metadata.name}</b>
                <span class="quiet">{claim.raw.metadata.namespace}</span>
              </span>
              <Bar parts={life(claim, now)} start={start} end={now} leak={leaks.has(claim)} />
              <span class="stagename">
                {leaks.has(claim) ? <span class="warn">{leaks.get(claim)?.why}</span> : STAGES.find((s) => s.id === claim.stage)?.name}
              </span>
            </button>
            {claim.key === open && <Life claim={claim} gone={fleet.goneDevices(claim)} now={now} />}
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="quiet">No claim is like that.</p>}
      <Pager page={page} size={SIZE} total={found.length} go={setPage} />
    </div>
  );
}

function devices(claim: Claim): string[] {
  return list(claim.raw.status?.allocation?.devices?.results).map((r) => `${r.driver}/${r.pool}/${r.device}`);
}

/** The parts of a claim's life, as far as times are known. */
function life(claim: Claim, now: number): Part[] {
  const { created, allocatedAt, reservedAt, stage } = claim;
  const deleted = time(claim.raw.metadata.deletionTimestamp);
  // Without a time, only the current stage is known.
  const marks: [Stage, number][] = [[allocatedAt === 0 && stage !== "deleting" ? stage : "pending", created]];
  if (allocatedAt > 0) marks.push(["allocated", allocatedAt]);
  if (reservedAt > 0) marks.push(["reserved", reservedAt]);
  // Reserved before, but without a consumer now.
  if (stage === "allocated" && claim.leakedSince > allocatedAt) {
    marks.push(["reserved", allocatedAt], ["allocated", claim.leakedSince]);
  }
  if (deleted > 0) marks.push(["deleting", Math.min(deleted, now)]);
  return marks.map(([stage, from], at) => ({ stage, from, to: Math.max(from, marks[at + 1]?.[1] ?? now) }));
}

function Bar({ parts, start, end, leak }: { parts: Part[]; start: number; end: number; leak: boolean }) {
  const place = (at: number) => (100 * Math.max(0, at - start)) / Math.max(1, end - start);
  return (
    <span class="life" aria-hidden="true">
      {parts.map((part, at) => (
        <i
          key={at}
          class={leak && at === parts.length - 1 ? "leak" : part.stage}
          style={{ left: `${place(part.from)}%`, width: `${Math.max(0.25, place(part.to) - place(part.from))}%` }}
        />
      ))}
    </span>
  );
}

function Axis({ start, end }: { start: number; end: number }) {
  const marks = [0, 0.25, 0.5, 0.75];
  return (
    <div class="axis" aria-hidden="true">
      <span />
      <div>
        {marks.map((part) => (
          <span key={part} style={{ left: `${100 * part}%` }}>
            {ago(start + (end - start) * part, end)} ago
          </span>
        ))}
      </div>
      <span>now</span>
    </div>
  );
}

/** One claim's life, in words. */
function Life({ claim, gone, now }: { claim: Claim; gone: string[]; now: number }) {
  const raw = claim.raw;
  const owner = list(raw.metadata.ownerReferences)[0];
  const steps: [number, string][] = [[claim.created, owner ? `made for ${owner.kind} ${owner.name}` : "created"]];
  if (claim.allocatedAt > 0) steps.push([claim.allocatedAt, `allocated ${plural(devices(claim).length, "device")}`]);
  if (claim.reservedAt > 0) steps.push([claim.reservedAt, `reserved for ${claim.consumers.join(", ")}`]);
  for (const told of list(raw.status?.devices)) {
    for (const condition of list(told.conditions)) {
      const text = `${told.device}: ${condition.type} is ${condition.status} ${condition.message ?? ""}`;
      steps.push([time(condition.lastTransitionTime), text]);
    }
  }
  claim.seen.slice(1).forEach(({ stage, at }) => steps.push([at, `seen to become ${stage}`]));
  const deleted = time(raw.metadata.deletionTimestamp);
  if (deleted > 0) steps.push([deleted, "deletion asked for"]);
  if (claim.leakedSince > 0) steps.push([claim.leakedSince, "reserved for nobody"]);
  steps.sort(([a], [b]) => a - b);
  return (
    <div class="story">
      <ol>
        {steps.map(([at, text], index) => (
          <li key={index}>
            <time>{moment(at)}</time> {text} <span class="quiet">{at > 0 ? `${ago(at, now)} ago` : ""}</span>
          </li>
        ))}
      </ol>
      <ul class="names">
        {devices(claim)
          .slice(0, 32)
          .map((device) => (
            <li key={device}>
              <code>{device}</code> {gone.some((name) => device.endsWith(`/${name}`)) && <span class="warn">is in no slice any more</span>}
            </li>
          ))}
      </ul>
    </div>
  );
}
