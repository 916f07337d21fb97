import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failed, get } from "../api";
import { time } from "../model/claim";
import type { Fleet } from "../model/fleet";
import { list } from "../model/types";
import type { RawPod } from "../model/types";
import { ago, plural } from "../ui/format";
import { Pager } from "../ui/pager";
import { check, fitting } from "./report";
import type { Gang, Group, Places, Report, Request } from "./report";

/** Pods that are explained together: each time the whole cluster is read. */
const SIZE = 10;
/** What is older is asked for again, if something has changed. */
const STALE = 15_000;
/** Pods of a gang that are named. */
const MEMBERS = 6;

export function PendingView({ fleet, version }: { fleet: Fleet; version: number }) {
  const [page, setPage] = useState(0);
  const pods = useMemo(() => waiting(fleet), [version]);
  const shown = pods.slice(page * SIZE, (page + 1) * SIZE);
  const { reports, at, error, busy, refresh } = useReports(shown.map(key), version);
  return (
    <div class="view page">
      <header class="head">
        <div>
          <h1>{pods.length === 0 ? "No pod waits for devices" : `${plural(pods.length, "pod")} ${pods.length === 1 ? "waits" : "wait"} for devices`}</h1>
          <p class="quiet">
            {busy ? "Asking the scheduler's code…" : at > 0 ? `Explained ${ago(at)} ago, with your rights` : "Explained by the scheduler's own code"}
          </p>
        </div>
        <button type="button" disabled={busy || pods.length === 0} onClick={refresh}>
          Explain again
        </button>
      </header>
      {error !== "" && <p class="note bad">{error}</p>}
      {shown.map((pod) => (
        <Waiting key={key(pod)} pod={pod} report={reports.get(key(pod))} />
      ))}
      <Pager page={page} size={SIZE} total={pods.length} go={setPage} />
    </div>
  );
}

/** Pods that are on no node and need devices, those that wait longest first. */
export function waiting(fleet: Fleet): RawPod[] {
  const needs = (pod: RawPod) => list(pod.spec.resourceClaims).length > 0 || pod.status.extendedResourceClaimStatus;
  const ends = (pod: RawPod) => pod.spec.nodeName || pod.status.phase === "Succeeded" || pod.status.phase === "Failed";
  const pods = [...fleet.pods.values()].filter((pod) => needs(pod) && !ends(pod));
  return pods.sort((a, b) => time(a.metadata.creationTimestamp) - time(b.metadata.creationTimestamp));
}

function key(pod: RawPod): string {
  return `${pod.metadata.namespace}/${pod.metadata.name}`;
}

function useReports(pods: string[], version: number) {
  const [reports, setReports] = useState<Map<string, Report>>(new Map());
  const [at, setAt] = useState(0);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [turn, setTurn] = useState(0);
  const asked = useRef({ at: 0, of: "", turn: 0 });
  const of = pods.join(" ");
  useEffect(() => {
    const { current } = asked;
    if (of === "" || busy) return;
    const wait = current.of === of && current.turn === turn ? Math.max(0, current.at + STALE - Date.now()) : 0;
    const timer = setTimeout(() => {
      asked.current = { at: Date.now(), of, turn };
      setBusy(true);
      get<{ pods: Report[] }>("explain", pods.map((pod): [string, string] => ["pod", pod]))
        .then(
          (answer) => {
            setReports(new Map(answer.pods.map((report) => [report.pod, report])));
            setAt(Date.now());
            setError("");
          },
          (error: unknown) => setError(error instanceof Failed ? error.message : String(error)),
        )
        .finally(() => setBusy(false));
    }, wait);
    return () => clearTimeout(timer);
  }, [of, version, turn]);
  return { reports, at, error, busy, refresh: () => setTurn(turn + 1) };
}

function Waiting({ pod, report }: { pod: RawPod; report: Report | undefined }) {
  const { name, namespace, creationTimestamp } = pod.metadata;
  const condition = list(pod.status.conditions).find((c) => c.type === "PodScheduled" && c.status === "False");
  return (
    <article class="card" aria-label={`Pod ${namespace}/${name}`}>
      <header>
        <h2>{name}</h2>
        <span class="quiet">{namespace}</span>
        <span class="age">waits {ago(time(creationTimestamp))}</span>
      </header>
      {report ? <Explained report={report} /> : condition?.message && <p>{condition.message}</p>}
    </article>
  );
}

function Explained({ report }: { report: Report }) {
  if (report.error !== undefined) return <p class="warn">{report.error}</p>;
  const fits = fitting(report);
  return (
    <>
      {report.quota && <p class="reason">is not let in: {report.quota}</p>}
      {list(report.problems).map((problem) => (
        <p class="reason" key={problem}>
          {problem}
        </p>
      ))}
      {report.rejected && <p class="reason">{report.rejected.reason}</p>}
      {report.node && <p class="good">is on {report.node} now</p>}
      {fits > 0 && (
        <p class="good">
          fits on {plural(fits, "node")} of {report.nodeCount}
          {report.gang ? ", and so does its gang" : ""}
          {report.wouldGoTo ? `, would go to ${report.wouldGoTo.node}` : ""}
          {list(report.hidden).length > 0 ? `; not all is known of ${list(report.hidden).join(", ")}` : ""}
        </p>
      )}
      {report.advice && <p class="advice">{report.advice}</p>}
      {report.gang && <GangVerdict gang={report.gang} reason={report.rejected?.reason} />}
      <Reasons places={report} />
    </>
  );
}

function Reasons({ places }: { places: Places }) {
  const { nodeCount = 0, groupsLeftOut = 0 } = places;
  return (
    <>
      {list(places.groups).map((group, at) => (
        <Nodes key={at} group={group} total={nodeCount} />
      ))}
      {groupsLeftOut > 0 && <p class="quiet">{plural(groupsLeftOut, "more reason")}, each of nodes less near</p>}
    </>
  );
}

/** Whether the gang is placed, and which of its pods lacks what. `reason` is said already. */
function GangVerdict({ gang, reason }: { gang: Gang; reason: string | undefined }) {
  const { leftOut } = gang;
  const mustGo = list(gang.mustGo);
  const held = list(gang.members).filter((m) => m.node === undefined && m.reason !== undefined && m.pod !== leftOut?.pod && m.reason !== gang.reason);
  return (
    <section class="nodes">
      <p>
        <strong>gang {gang.group}</strong> needs {plural(gang.minCount, "pod")}, {gang.pods} there, {gang.placed} placed
      </p>
      {mustGo.length > 0 ? (
        <p class="reason">it fits when these have left: {some(mustGo)}</p>
      ) : (
        gang.reason !== undefined && gang.reason !== reason && <p class="reason">it waits: {gang.reason}</p>
      )}
      {held.slice(0, MEMBERS).map((member) => (
        <p class="small" key={member.pod}>
          {member.pod}: {member.reason}
        </p>
      ))}
      {held.length > MEMBERS && <p class="quiet small">and {plural(held.length - MEMBERS, "more pod")}</p>}
      {leftOut && (
        <>
          <p class="reason">
            {leftOut.pod} has no place beside the others: {leftOut.reason}
          </p>
          <Reasons places={leftOut} />
        </>
      )}
    </section>
  );
}

/** The first of many names, and how many more there are. */
function some(names: readonly string[]): string {
  const more = names.length - MEMBERS;
  return names.slice(0, MEMBERS).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function Nodes({ group, total }: { group: Group; total: number }) {
  const { nodes, count, rejected, explanation } = group;
  const more = count - nodes.length;
  return (
    <section class="nodes">
      <p>
        <strong>
          {count} of {plural(total, "node")}
        </strong>{" "}
        {rejected?.reason}
      </p>
      <p class="quiet small">
        {nodes.join(", ")}
        {more > 0 ? ` and ${more} more` : ""}
      </p>
      {list(group.unavailable).map((claim) => (
        <p class="warn" key={claim}>
          {claim}
        </p>
      ))}
      {list(explanation?.requests).map((request) => (
        <Funnel key={`${request.claim} ${request.request}`} request={request} />
      ))}
      {list(explanation?.unusablePools).map((pool) => (
        <p class="warn" key={`${pool.driver}/${pool.pool}`}>
          pool {pool.driver}/{pool.pool} cannot be used: {pool.reason}
        </p>
      ))}
    </section>
  );
}

/** How many devices each check leaves, as bars; a line where the request would be met. */
function Funnel({ request }: { request: Request }) {
  const stages = list(request.funnel);
  const widest = Math.max(1, request.needs, ...stages.map((stage) => stage.left));
  const empty = stages.findIndex((stage) => stage.left === 0);
  const told = empty < 0 ? stages : stages.slice(0, empty + 1);
  const first = told.findIndex((stage) => stage.left < request.needs);
  const inUse = list(request.inUse);
  const near = request.nearest;
  return (
    <figure class="funnel">
      <figcaption>
        claim <b>{request.claim}</b>, request <b>{request.request}</b> needs {plural(Math.max(1, request.needs), "device")}
      </figcaption>
      <ol>
        {told.map((stage, at) => (
          <li key={at} class={at === first ? "miss" : stage.left < request.needs ? "after" : ""}>
            <span class="what">
              {check(stage)}
              {stage.detail && <code title={stage.detail}>{stage.detail}</code>}
            </span>
            <span class="track">
              <i style={{ width: `${(100 * stage.left) / widest}%` }} />
              <u style={{ left: `${(100 * request.needs) / widest}%` }} />
            </span>
            <span class="left">{stage.left}</span>
          </li>
        ))}
      </ol>
      {inUse.length > 0 && (
        <p class="small">
          In use:{" "}
          {inUse
            .slice(0, 6)
            .map((d) => `${d.device} by ${d.by.join(" and ")}`)
            .join("; ")}
          {inUse.length > 6 ? ` and ${inUse.length - 6} more` : ""}
        </p>
      )}
      {near && !inUse.some((d) => d.device === near.device) && (
        <p class="small">
          Nearest: <b>{near.device}</b>: {near.reason}
        </p>
      )}
    </figure>
  );
}
