import { value } from "../model/device";
import type { Unit } from "../model/device";
import { entries } from "../model/types";

/** A way to group tiles. */
export interface Grouping {
  id: string;
  name: string;
}

const PCIE = /(^|\/)pcieRoot$/i;
const NUMA = /(^|\/)numa(Node)?$/i;
const DOMAIN = /domain|clique|fabric|rack|island/i;

/** Attributes that are offered, at most. */
const ATTRIBUTES = 40;

/** The ways that make sense for these tiles. */
export function groupings(units: readonly Unit[]): Grouping[] {
  const found: Grouping[] = [
    { id: "node", name: "Node" },
    { id: "driver", name: "Driver" },
    { id: "class", name: "Device class" },
    { id: "pool", name: "Pool" },
    { id: "state", name: "State" },
  ];
  const attributes = new Map<string, number>();
  // Devices of a driver are alike: a part of them shows which attributes there are.
  const step = Math.max(1, Math.floor(units.length / 2000));
  for (let at = 0; at < units.length; at += step) {
    for (const [name] of entries(units[at]?.devices[0]?.raw.attributes)) {
      attributes.set(name, (attributes.get(name) ?? 0) + 1);
    }
  }
  const names = [...attributes.keys()].sort();
  const special: [string, RegExp][] = [["PCIe root", PCIE], ["NUMA node", NUMA], ["Domain", DOMAIN]];
  for (const [title, pattern] of special) {
    const name = names.find((name) => pattern.test(name));
    if (name !== undefined) found.push({ id: `attribute:${name}`, name: title });
  }
  for (const name of names.slice(0, ATTRIBUTES)) {
    if (!found.some((grouping) => grouping.id === `attribute:${name}`)) {
      found.push({ id: `attribute:${name}`, name: `Attribute ${name}` });
    }
  }
  return found;
}

/** The groups that a tile is in, by their titles. */
export function groupsOf(unit: Unit, id: string, states: readonly { name: string }[]): readonly string[] {
  const device = unit.devices[0];
  switch (id) {
    case "node":
      return [unit.node];
    case "driver":
      return [unit.pool.driver];
    case "pool":
      return [`${unit.pool.driver} · ${unit.pool.name}`];
    case "state":
      return [states[unit.state]?.name ?? ""];
    case "class": {
      const classes = unit.devices.length === 1 ? (device?.classes ?? []) : [...new Set(unit.devices.flatMap((d) => d.classes))];
      return classes.length > 0 ? classes : ["in no class"];
    }
    default: {
      const name = id.slice("attribute:".length);
      const attributes = device?.raw.attributes ?? {};
      if (!Object.hasOwn(attributes, name)) return ["without it"];
      const text = value(attributes[name]);
      // Roots and NUMA nodes are numbered on each node.
      return [PCIE.test(name) || NUMA.test(name) ? `${unit.node} · ${text}` : text];
    }
  }
}
