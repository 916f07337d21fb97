import { FREE, PARTLY } from "../model/device";
import type { Fleet } from "../model/fleet";

/** The state of a class at a moment. */
export interface Sample {
  at: number;
  total: number;
  /** Devices in use; of those that are shared, the used part. */
  used: number;
  free: number;
  /** The most devices that one claim can get on one node. */
  largest: number;
  /** How much less that is than it could be with the same number of free devices, between 0 and 1. */
  fragmentation: number;
}

/** Samples that are kept for a class. When there are more, every second one goes, and they are taken half as often. */
const MOST = 720;
/** Classes that are remembered. */
const CLASSES = 64;

/** What was sampled since the page was opened: the whole time, in bounded memory. */
export class History {
  readonly series = new Map<string, Sample[]>();
  readonly since = Date.now();
  /** Milliseconds between samples. */
  interval = 5_000;
  private last = 0;

  /** Takes a sample, if it is time. */
  sample(fleet: Fleet, now: number): void {
    if (now - this.last < this.interval || fleet.units.length === 0) return;
    this.last = now;
    for (const [name, sample] of measure(fleet, now)) {
      const series = this.series.get(name) ?? [];
      if (series.length === 0 && this.series.size >= CLASSES) continue;
      series.push(sample);
      this.series.set(name, series);
    }
    if ([...this.series.values()].some((series) => series.length > MOST)) {
      for (const [name, series] of this.series) this.series.set(name, series.filter((_, at) => at % 2 === 0));
      this.interval *= 2;
    }
  }
}

/** The name under which devices of all classes are counted. */
export const ALL = "All devices";

/** How each class is used. */
export function measure(fleet: Fleet, now: number): Map<string, Sample> {
  interface Count {
    total: number;
    used: number;
    nodes: Map<string, { free: number; all: number }>;
  }
  const counts = new Map<string, Count>();
  const add = (name: string, node: string, used: number, free: boolean) => {
    let count = counts.get(name);
    if (!count) counts.set(name, (count = { total: 0, used: 0, nodes: new Map() }));
    let of = count.nodes.get(node);
    if (!of) count.nodes.set(node, (of = { free: 0, all: 0 }));
    count.total++;
    count.used += used;
    of.all++;
    if (free) of.free++;
  };
  for (const unit of fleet.units) {
    // A device that is cut in parts is one device, used as far as its counters are.
    const classes = new Set<string>();
    for (const device of unit.devices) for (const name of device.classes) classes.add(name);
    for (const name of [ALL, ...classes]) add(name, unit.node, unit.share, unit.state === FREE || unit.state === PARTLY);
  }
  const samples = new Map<string, Sample>();
  for (const [name, { total, used, nodes }] of counts) {
    let [free, largest, most] = [0, 0, 0];
    for (const node of nodes.values()) {
      free += node.free;
      largest = Math.max(largest, node.free);
      most = Math.max(most, node.all);
    }
    const ideal = Math.min(free, most);
    samples.set(name, { at: now, total, used, free, largest, fragmentation: ideal > 0 ? 1 - largest / ideal : 0 });
  }
  return samples;
}
