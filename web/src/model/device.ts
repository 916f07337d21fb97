import { quantity } from "./quantity";
import type { Claim } from "./claim";
import { entries, list } from "./types";
import type { Attribute, RawDevice, Result, Taint } from "./types";

/** What can be done with a device. The numbers index colours and counts. */
export const FREE = 0;
export const IN_USE = 1;
export const PARTLY = 2;
export const TAINTED = 3;
export const UNHEALTHY = 4;
export const INCOMPLETE = 5;
export const BLOCKED = 6;
export type State = 0 | 1 | 2 | 3 | 4 | 5 | 6;

/** States by number: name, and what it means. */
export const STATES: readonly { name: string; meaning: string }[] = [
  { name: "Free", meaning: "A claim can have it" },
  { name: "In use", meaning: "A claim has it" },
  { name: "Partly used", meaning: "Claims have parts of it, and others can have the rest" },
  { name: "Tainted", meaning: "Only claims that tolerate its taint can have it" },
  { name: "Unhealthy", meaning: "A taint evicts its users, or its driver says that it is not ready" },
  { name: "Incomplete pool", meaning: "Its pool is not published completely, so nobody can have it yet" },
  { name: "Blocked", meaning: "Others have used up what it is made of" },
];

/** A claim that has a device, or looks at it. */
export interface Held {
  claim: Claim;
  result: Result;
}

/** What a driver publishes under one name: all slices of the newest generation. */
export interface Pool {
  key: string;
  driver: string;
  name: string;
  generation: number;
  expected: number;
  slices: Set<string>;
  units: Unit[];
  complete: boolean;
}

/** A device of a slice. */
export class Device {
  held: Held[] = [];
  taints: Taint[] = [];
  state: State = FREE;
  /** How much of it is used, between 0 and 1. */
  share = 0;
  /** What its driver says is wrong with it. */
  fault = "";
  classes: readonly string[] = [];
  /** The tile that it is, or is in. */
  unit: Unit | null = null;

  constructor(
    readonly key: string,
    readonly pool: Pool,
    readonly slice: string,
    /** Its place in the slice. */
    readonly place: number,
    readonly name: string,
    readonly node: string,
    readonly raw: Omit<RawDevice, "name" | "basic">,
  ) {}

  /** Claims that keep others away. */
  holders(): Held[] {
    return this.held.filter((held) => held.result.adminAccess !== true);
  }
}

/** A tile: a device, or what the partitions of a device share (a set of counters). */
export class Unit {
  state: State = FREE;
  share = 0;
  /** When its state changed, for a flash; 0 before it was seen to change. */
  changed = 0;
  private words = "";

  constructor(
    readonly key: string,
    readonly label: string,
    readonly node: string,
    readonly pool: Pool,
    readonly devices: Device[],
    /** The counters that partitions share, with their whole. */
    readonly counters: Map<string, number> | null,
  ) {}

  get partitioned(): boolean {
    return this.counters !== null;
  }

  /** What a text is looked for in, without what changes. */
  text(): string {
    if (this.words === "") {
      const parts = [this.node, this.pool.driver, this.pool.name, this.label];
      for (const device of this.devices) {
        parts.push(device.name);
        for (const [name, attribute] of entries(device.raw.attributes)) parts.push(`${name}=${value(attribute)}`);
      }
      this.words = parts.join(" ").toLowerCase();
    }
    return this.words;
  }
}

/** The value of an attribute as text. */
export function value(attribute: Attribute | undefined): string {
  for (const [kind, content] of entries(attribute)) {
    if (Array.isArray(content)) return content.map(String).join(", ");
    if (kind === "version" || typeof content !== "object") return String(content);
  }
  return "";
}

/** Works out the states of a tile and its devices. */
export function restate(unit: Unit): void {
  const free = unit.counters === null ? null : remaining(unit);
  for (const device of unit.devices) {
    device.share = share(device);
    device.state = state(device, free);
  }
  if (unit.counters === null || free === null) {
    const device = unit.devices[0];
    unit.state = device?.state ?? FREE;
    unit.share = device?.share ?? 0;
    return;
  }
  unit.share = 0;
  for (const [name, whole] of unit.counters) {
    if (whole > 0) unit.share = Math.max(unit.share, 1 - (free.get(name) ?? 0) / whole);
  }
  const has = (wanted: State) => unit.devices.some((device) => device.state === wanted);
  const used = has(IN_USE) || has(PARTLY);
  if (has(UNHEALTHY)) unit.state = UNHEALTHY;
  else if (used) unit.state = has(FREE) ? PARTLY : IN_USE;
  else if (has(INCOMPLETE)) unit.state = INCOMPLETE;
  else if (has(FREE)) unit.state = FREE;
  else unit.state = has(TAINTED) ? TAINTED : BLOCKED;
}

/** What holders have left of the counters. */
function remaining(unit: Unit): Map<string, number> {
  const free = new Map(unit.counters);
  for (const device of unit.devices) {
    if (device.holders().length === 0) continue;
    for (const [name, amount] of consumption(unit, device)) free.set(name, (free.get(name) ?? 0) - amount);
  }
  return free;
}

/** What a device takes of the counters of its tile. */
export function consumption(unit: Unit, device: Device): [string, number][] {
  const own = list(device.raw.consumesCounters).filter((set) => set.counterSet === unit.label);
  return own.flatMap((set) => entries(set.counters).map(([name, c]): [string, number] => [name, quantity(c?.value)]));
}

function share(device: Device): number {
  const holders = device.holders();
  if (holders.length === 0) return 0;
  if (device.raw.allowMultipleAllocations !== true) return 1;
  let most = 0;
  for (const [name, capacity] of entries(device.raw.capacity)) {
    const whole = quantity(capacity?.value);
    const used = holders.reduce((sum, held) => sum + quantity(held.result.consumedCapacity?.[name] ?? 0), 0);
    if (whole > 0) most = Math.max(most, used / whole);
  }
  return Math.min(1, most);
}

function state(device: Device, counters: Map<string, number> | null): State {
  const has = (effect: string) => device.taints.some((taint) => taint.effect === effect);
  if (device.fault !== "" || has("NoExecute")) return UNHEALTHY;
  if (device.holders().length > 0) {
    return device.raw.allowMultipleAllocations === true && device.share < 1 ? PARTLY : IN_USE;
  }
  if (!device.pool.complete) return INCOMPLETE;
  for (const set of list(device.raw.consumesCounters)) {
    for (const [name, counter] of entries(set.counters)) {
      const left = counters?.get(name);
      if (left !== undefined && quantity(counter?.value) > left) return BLOCKED;
    }
  }
  return has("NoSchedule") ? TAINTED : FREE;
}
