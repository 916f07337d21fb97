import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Failed, places, post } from "../api";
import { STATES } from "../model/device";
import type { State, Unit } from "../model/device";
import type { Fleet } from "../model/fleet";
import { number, percent, plural } from "../ui/format";
import { MapCanvas } from "./canvas";
import type { MapControl } from "./canvas";
import { Details } from "./details";
import { groupings, groupsOf } from "./groups";
import { layout } from "./layout";
import { DeviceTable } from "./table";

/** Typing is waited for so long before an expression is evaluated. */
const TYPING = 350;

/** Which devices an expression selects. */
interface Selection {
  devices: Map<string, Set<number>>;
  count: number;
  note: string;
}

export function MapView({ fleet, version }: { fleet: Fleet; version: number }) {
  const [by, setBy] = useState("node");
  const [text, setText] = useState("");
  const [asCel, setAsCel] = useState(false);
  const [states, setStates] = useState<ReadonlySet<number>>(new Set());
  const [asTable, setAsTable] = useState(false);
  const [selectedKey, setSelectedKey] = useState("");
  const [selection, error] = useExpression(asCel ? text : "", fleet.published);
  const control = useRef<MapControl | null>(null);
  const stage = useRef<HTMLDivElement>(null);
  const ratio = useRatio(stage);

  const found = useMemo(
    () => fleet.units.filter((unit) => matches(unit, asCel ? "" : text, asCel ? selection : null)),
    // The text also matches holders, so with a text every change counts.
    [fleet.shape, text, asCel, selection, text !== "" ? version : 0],
  );
  const counts = STATES.map((_, state) => found.reduce((sum, unit) => sum + (unit.state === state ? 1 : 0), 0));
  const stateVersion = states.size > 0 || by === "state" ? version : 0;
  const shown = useMemo(
    () => (states.size === 0 ? found : found.filter((unit) => states.has(unit.state))),
    [found, states, stateVersion],
  );
  const ways = useMemo(() => groupings(fleet.units), [fleet.published]);
  const map = useMemo(
    () => layout(shown, (unit) => groupsOf(unit, by, STATES), ratio),
    [shown, by, ratio, by === "class" ? fleet.shape : 0, stateVersion],
  );
  const selected = useMemo(
    () => (selectedKey === "" ? null : (fleet.units.find((unit) => unit.key === selectedKey) ?? null)),
    [selectedKey, fleet.shape],
  );
  const select = (unit: Unit | null) => setSelectedKey(unit?.key ?? "");
  const toggle = (state: number) => {
    const next = new Set(states);
    if (!next.delete(state)) next.add(state);
    setStates(next);
  };
  const used = (counts[1] ?? 0) + found.reduce((sum, unit) => sum + (unit.state === 2 ? unit.share : 0), 0);
  const summary = `${plural(found.length, "device")}, ${STATES.map((s, at) => `${counts[at]} ${s.name.toLowerCase()}`).join(", ")}`;

  return (
    <div class="view map">
      <h1 class="sr">Device map</h1>
      <div class="figures">
        <div class="figure">
          <strong>{percent(used, found.length)}</strong>
          <span>in use</span>
        </div>
        <div class="figure">
          <strong>{number.format(found.length)}</strong>
          <span>{found.length === fleet.units.length ? "devices" : `of ${plural(fleet.units.length, "device")}`}</span>
        </div>
        <div class="figure">
          <strong>{number.format(map.boxes.length)}</strong>
          <span>{by === "node" ? "nodes" : "groups"}</span>
        </div>
        <Legend counts={counts} total={found.length} chosen={states} toggle={toggle} />
      </div>
      <form class="toolbar" onSubmit={(event) => event.preventDefault()}>
        <div class={`search ${error ? "bad" : ""}`}>
          <label class="sr" for="filter">
            {asCel ? "CEL expression" : "Filter"}
          </label>
          <input
            id="filter"
            type="search"
            spellcheck={false}
            autocomplete="off"
            maxLength={10_000}
            placeholder={asCel ? 'device.attributes["gpu.example.com"].model == "…"' : "Filter by node, device, attribute, claim or pod"}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            aria-invalid={error !== ""}
            aria-describedby={error ? "filter-error" : undefined}
          />
          <button type="button" aria-pressed={asCel} onClick={() => setAsCel(!asCel)} title="The filter is an expression, as in a DeviceClass">
            CEL
          </button>
        </div>
        <label class="choice">
          Group by
          <select value={by} onChange={(event) => setBy(event.currentTarget.value)}>
            {ways.map((way) => (
              <option key={way.id} value={way.id}>
                {way.name}
              </option>
            ))}
          </select>
        </label>
        <div class="buttons" role="group" aria-label="View">
          <button type="button" aria-pressed={!asTable} onClick={() => setAsTable(false)}>
            Map
          </button>
          <button type="button" aria-pressed={asTable} onClick={() => setAsTable(true)}>
            Table
          </button>
        </div>
        <div class="buttons" role="group" aria-label="Zoom">
          <button type="button" aria-label="Zoom out" disabled={asTable} onClick={() => control.current?.zoom(1 / 1.5)}>
            −
          </button>
          <button type="button" disabled={asTable} onClick={() => control.current?.fit()}>
            Fit
          </button>
          <button type="button" aria-label="Zoom in" disabled={asTable} onClick={() => control.current?.zoom(1.5)}>
            +
          </button>
        </div>
      </form>
      <p class={error ? "note bad" : "note"} id="filter-error" role="status">
        {error || selection?.note || ""}
      </p>
      <div class="stage" ref={stage}>
        {asTable ? (
          <DeviceTable units={map.units} selected={selected} select={select} />
        ) : (
          <MapCanvas map={map} version={version} selected={selected} select={select} summary={summary} control={control} />
        )}
        {fleet.units.length === 0 && <p class="empty">No driver has published a device.</p>}
        {selected && <Details unit={selected} close={() => select(null)} />}
        <p class="sr" aria-live="polite">
          {selected ? `${selected.label} on ${selected.node}: ${STATES[selected.state]?.name}` : ""}
        </p>
      </div>
    </div>
  );
}

/** The ratio of width to height of an element, roughly: what is shown does not move with each pixel of a window. */
function useRatio(of: { current: HTMLElement | null }): number {
  const [ratio, setRatio] = useState(1.9);
  useEffect(() => {
    if (!of.current) return;
    const sizes = new ResizeObserver(([entry]) => {
      const { width, height } = entry?.contentRect ?? { width: 0, height: 0 };
      if (width > 0 && height > 0) setRatio(Math.round((8 * width) / height) / 8);
    });
    sizes.observe(of.current);
    return () => sizes.disconnect();
  }, []);
  return ratio;
}

function Legend(props: { counts: number[]; total: number; chosen: ReadonlySet<number>; toggle: (state: number) => void }) {
  const { counts, total, chosen, toggle } = props;
  const there = STATES.map((state, at) => ({ ...state, at: at as State, count: counts[at] ?? 0 }));
  const shown = there.filter(({ at, count }) => count > 0 || at <= 1 || chosen.has(at));
  return (
    <div class="legend">
      <div class="bar" aria-hidden="true">
        {[1, 2, 3, 4, 5, 6, 0].map((at) => (
          <i key={at} class={`s${at}`} style={{ flexGrow: total > 0 ? (counts[at] ?? 0) / total : 0 }} />
        ))}
      </div>
      <div class="buttons" role="group" aria-label="Only devices in these states">
        {shown.map(({ at, name, meaning, count }) => (
          <button type="button" key={at} aria-pressed={chosen.has(at)} title={meaning} onClick={() => toggle(at)}>
            <i class={`swatch s${at}`} aria-hidden="true" />
            {name} <span class="count">{number.format(count)}</span>
          </button>
        ))}
      </div>
    </div>
  );
}

function matches(unit: Unit, text: string, selection: Selection | null): boolean {
  if (selection) return unit.devices.some((device) => selection.devices.get(device.slice)?.has(device.place));
  const words = text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return true;
  let all = unit.text();
  for (const device of unit.devices) {
    for (const held of device.held) all += ` ${held.claim.key} ${held.claim.consumers.join(" ")}`.toLowerCase();
  }
  return words.every((word) => all.includes(word));
}

/** The devices that an expression selects, evaluated by the server; again when devices change. */
function useExpression(expression: string, published: number): [Selection | null, string] {
  const [state, setState] = useState<[Selection | null, string]>([null, ""]);
  useEffect(() => {
    if (expression.trim() === "") {
      setState([null, ""]);
      return;
    }
    interface Answer {
      slices: Record<string, string>;
      count: number;
      errors: number;
      error: string | null;
    }
    const stop = new AbortController();
    const timer = setTimeout(() => {
      post<Answer>("filter", { expression }, stop.signal).then(
        ({ slices, count, errors, error }) => {
          const note = errors > 0 ? `no answer on ${plural(errors, "device")}: ${error}` : `selects ${plural(count, "device")}`;
          setState([{ devices: places(slices), count, note }, ""]);
        },
        (error: unknown) => {
          if (error instanceof Failed) setState([null, error.message]);
        },
      );
    }, TYPING);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [expression, published]);
  return state;
}
