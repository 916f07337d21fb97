import { Claim } from "./claim";
import { Device, Unit, restate } from "./device";
import type { Held, Pool } from "./device";
import { quantity } from "./quantity";
import { entries, list } from "./types";
import type { Metadata, RawClaim, RawDevice, RawPod, RawRule, RawSlice, Taint } from "./types";

export type Kind = "slices" | "claims" | "rules" | "pods" | "classes";
export const KINDS: readonly Kind[] = ["slices", "claims", "rules", "pods", "classes"];

/** So many changes of a claim are remembered. */
const CHANGES = 32;

/** Everything that the page knows of a cluster. Changes are taken one by one, and worked out together. */
export class Fleet {
  readonly slices = new Map<string, RawSlice>();
  readonly pools = new Map<string, Pool>();
  readonly devices = new Map<string, Device>();
  readonly claims = new Map<string, Claim>();
  readonly pods = new Map<string, RawPod>();
  readonly rules = new Map<string, RawRule>();
  readonly classNames = new Set<string>();
  /** Tiles, by pool. */
  units: Unit[] = [];
  /** Grows when tiles come or go. */
  shape = 0;
  /** Grows when drivers publish something else. */
  published = 0;
  /** Grows when classes change. */
  classVersion = 0;
  /** Grows when anything changes. */
  version = 0;

  private classes = new Map<string, Map<string, Set<number>>>();
  private readonly holdings = new Map<string, Held[]>();
  private readonly stalePools = new Set<string>();
  private readonly staleDevices = new Set<string>();
  private staleRules = false;
  private changed = false;

  /** Takes an object that is there now, or that has gone. */
  apply(kind: Kind, gone: boolean, object: { metadata: Metadata }): void {
    const { name, namespace } = object.metadata ?? {};
    if (typeof name !== "string") return;
    const key = namespace ? `${namespace}/${name}` : name;
    this.changed = true;
    if (kind === "slices") this.applySlice(name, gone ? null : (object as RawSlice));
    else if (kind === "claims") this.applyClaim(key, gone ? null : (object as RawClaim));
    else if (kind === "pods") put(this.pods, key, gone ? null : (object as RawPod));
    else if (kind === "rules") {
      put(this.rules, name, gone ? null : (object as RawRule));
      this.staleRules = true;
    } else {
      this.classVersion++;
      if (gone) this.classNames.delete(name);
      else this.classNames.add(name);
    }
  }

  /** Takes a whole list of a kind: what is not in it has gone. */
  replace(kind: Kind, objects: readonly { metadata: Metadata }[]): void {
    const key = (m: Metadata) => (m.namespace ? `${m.namespace}/${m.name}` : m.name);
    const there = new Set(objects.map((object) => key(object.metadata)));
    const known: Iterable<string> =
      kind === "slices" ? this.slices.keys()
      : kind === "claims" ? this.claims.keys()
      : kind === "pods" ? this.pods.keys()
      : kind === "rules" ? this.rules.keys()
      : this.classNames;
    for (const old of [...known]) {
      if (there.has(old)) continue;
      const [namespace, name] = old.includes("/") ? (old.split("/") as [string, string]) : [undefined, old];
      this.apply(kind, true, { metadata: { name, namespace } });
    }
    for (const object of objects) this.apply(kind, false, object);
  }

  /** Works out what has changed; `now` is when. Returns whether anything has. */
  settle(now: number): boolean {
    if (!this.changed) return false;
    this.changed = false;
    this.version++;
    const stale = new Set<Unit>();
    if (this.staleRules) {
      for (const unit of this.units) {
        for (const device of unit.devices) device.taints = this.taints(device);
        stale.add(unit);
      }
      this.staleRules = false;
    }
    const before = this.stalePools.size > 0 ? this.states(this.stalePools) : null;
    for (const key of this.stalePools) this.rebuild(key);
    for (const key of this.staleDevices) {
      const device = this.devices.get(key);
      if (!device) continue;
      this.hold(device);
      if (device.unit) stale.add(device.unit);
    }
    this.staleDevices.clear();
    for (const unit of stale) {
      const old = unit.state;
      restate(unit);
      if (unit.state !== old) unit.changed = now;
    }
    if (before) {
      this.stalePools.clear();
      this.shape++;
      this.published++;
      this.units = [];
      for (const pool of this.pools.values()) {
        for (const unit of pool.units) {
          this.units.push(unit);
          const old = before.get(unit.key);
          if (old !== undefined && old !== unit.state) unit.changed = now;
        }
      }
    }
    return true;
  }

  /** Says which devices belong to which class; per class the places of devices by slice. */
  classify(classes: Map<string, Map<string, Set<number>>>): void {
    this.classes = classes;
    for (const device of this.devices.values()) device.classes = this.classesOf(device);
    this.shape++;
    this.version++;
  }

  private classesOf(device: Device): string[] {
    const found: string[] = [];
    for (const [name, slices] of this.classes) {
      if (slices.get(device.slice)?.has(device.place)) found.push(name);
    }
    return found;
  }

  /** Claims that keep devices from others without any use. */
  leaks(now: number): { claim: Claim; why: string; since: number }[] {
    const found: { claim: Claim; why: string; since: number }[] = [];
    for (const claim of this.claims.values()) {
      // The claim controller takes a while to release unused claims.
      if (claim.leakedSince > 0 && now - claim.leakedSince > 60_000) {
        found.push({ claim, why: "allocated, and reserved for nobody", since: claim.leakedSince });
      }
      const gone = this.slices.size > 0 ? this.goneDevices(claim) : [];
      if (gone.length > 0) {
        found.push({ claim, why: `no slice has ${gone.join(", ")} any more`, since: claim.allocatedAt });
      }
    }
    return found;
  }

  /** Devices that a claim has and that no slice names. */
  goneDevices(claim: Claim): string[] {
    const results = list(claim.raw.status?.allocation?.devices?.results);
    const gone = results.filter((r) => !this.devices.has(`${r.driver}/${r.pool}/${r.device}`));
    return gone.map((r) => `${r.pool}/${r.device}`);
  }

  private applySlice(name: string, slice: RawSlice | null): void {
    const old = this.slices.get(name);
    if (old) this.pool(old).slices.delete(name);
    if (old) this.stalePools.add(poolKey(old));
    put(this.slices, name, slice && slice.spec?.pool ? slice : null);
    if (!slice?.spec?.pool) return;
    this.pool(slice).slices.add(name);
    this.stalePools.add(poolKey(slice));
  }

  private pool(slice: RawSlice): Pool {
    const key = poolKey(slice);
    let pool = this.pools.get(key);
    if (!pool) {
      const [driver, name] = [String(slice.spec.driver), String(slice.spec.pool.name)];
      pool = { key, driver, name, generation: 0, expected: 0, slices: new Set(), units: [], complete: true };
      this.pools.set(key, pool);
    }
    return pool;
  }

  private applyClaim(key: string, raw: RawClaim | null): void {
    let claim = this.claims.get(key);
    if (claim) this.release(claim);
    if (!raw) {
      this.claims.delete(key);
      return;
    }
    if (claim && claim.raw.metadata.uid === raw.metadata.uid) claim.raw = raw;
    else this.claims.set(key, (claim = new Claim(key, raw)));
    const stage = claim.stage;
    if (claim.seen.at(-1)?.stage !== stage) claim.seen.push({ stage, at: Date.now() });
    if (claim.seen.length > CHANGES) claim.seen.splice(1, 1);
    const of = claim;
    for (const result of list(raw.status?.allocation?.devices?.results)) {
      const device = `${result.driver}/${result.pool}/${result.device}`;
      const held = this.holdings.get(device) ?? [];
      this.holdings.set(device, [...held, { claim: of, result }]);
      this.staleDevices.add(device);
    }
  }

  private release(claim: Claim): void {
    for (const result of list(claim.raw.status?.allocation?.devices?.results)) {
      const device = `${result.driver}/${result.pool}/${result.device}`;
      const left = (this.holdings.get(device) ?? []).filter((held) => held.claim !== claim);
      if (left.length > 0) this.holdings.set(device, left);
      else this.holdings.delete(device);
      this.staleDevices.add(device);
    }
  }

  private states(pools: Set<string>): Map<string, number> {
    const states = new Map<string, number>();
    for (const key of pools) {
      for (const unit of this.pools.get(key)?.units ?? []) states.set(unit.key, unit.state);
    }
    return states;
  }

  /** Makes the devices and tiles of a pool anew. */
  private rebuild(key: string): void {
    const pool = this.pools.get(key);
    if (!pool) return;
    for (const unit of pool.units) for (const device of unit.devices) this.devices.delete(device.key);
    const all = [...pool.slices].flatMap((name) => this.slices.get(name) ?? []);
    if (all.length === 0) {
      this.pools.delete(key);
      return;
    }
    pool.generation = Math.max(...all.map((slice) => slice.spec.pool.generation ?? 0));
    const newest = all.filter((slice) => (slice.spec.pool.generation ?? 0) === pool.generation);
    pool.expected = newest[0]?.spec.pool.resourceSliceCount ?? newest.length;
    pool.complete = newest.length >= pool.expected;
    const counters = new Map<string, Map<string, number>>();
    for (const set of newest.flatMap((slice) => list(slice.spec.sharedCounters))) {
      counters.set(set.name, new Map(entries(set.counters).map(([name, c]) => [name, quantity(c?.value)])));
    }
    const sets = new Map<string, Unit>();
    pool.units = [];
    for (const slice of newest) {
      list(slice.spec.devices).forEach((raw, place) => {
        const device = this.device(pool, slice, raw, place);
        const set = list(device.raw.consumesCounters)[0]?.counterSet;
        const known = set === undefined ? undefined : counters.get(set);
        const shared = set === undefined ? undefined : sets.get(set);
        if (shared) {
          shared.devices.push(device);
          device.unit = shared;
          return;
        }
        const label = known && set !== undefined ? set : device.name;
        const unit = new Unit(`${pool.key}/${label}`, label, device.node, pool, [device], known ?? null);
        device.unit = unit;
        if (known && set !== undefined) sets.set(set, unit);
        pool.units.push(unit);
      });
    }
    pool.units.forEach(restate);
  }

  private device(pool: Pool, slice: RawSlice, raw: RawDevice, place: number): Device {
    const content = raw.basic ?? raw;
    const key = `${pool.key}/${raw.name}`;
    const all = slice.spec.allNodes === true || content.allNodes === true;
    const node = String(slice.spec.nodeName || content.nodeName || (all ? "all nodes" : "some nodes"));
    const device = new Device(key, pool, slice.metadata.name, place, String(raw.name), node, content);
    this.devices.set(key, device);
    device.taints = this.taints(device);
    device.classes = this.classesOf(device);
    this.hold(device);
    return device;
  }

  /** Who has a device, and what its driver says about it. */
  private hold(device: Device): void {
    device.held = this.holdings.get(device.key) ?? [];
    device.fault = "";
    for (const { claim } of device.held) {
      for (const told of list(claim.raw.status?.devices)) {
        if (`${told.driver}/${told.pool}/${told.device}` !== device.key) continue;
        const bad = list(told.conditions).find((c) => ["Ready", "Healthy"].includes(c.type) && c.status === "False");
        if (bad) device.fault = bad.message || bad.reason || `not ${bad.type}`;
      }
    }
  }

  private taints(device: Device): Taint[] {
    const found = [...list(device.raw.taints)];
    const is = (wanted: string | undefined, name: string) => wanted === undefined || wanted === name;
    for (const { spec } of this.rules.values()) {
      const by = spec?.deviceSelector;
      if (!by || !spec?.taint) continue;
      const { driver, name } = device.pool;
      if (is(by.driver, driver) && is(by.pool, name) && is(by.device, device.name)) found.push(spec.taint);
    }
    return found;
  }
}

function poolKey(slice: RawSlice): string {
  return `${slice.spec.driver}/${slice.spec.pool.name}`;
}

function put<T>(map: Map<string, T>, key: string, value: T | null): void {
  if (value === null) map.delete(key);
  else map.set(key, value);
}
