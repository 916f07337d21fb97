import type { Unit } from "../model/device";

/** A group of tiles on the map, in units of a tile. */
export interface Box {
  title: string;
  x: number;
  y: number;
  w: number;
  h: number;
  columns: number;
  /** The tiles of it, in the order of the map. */
  from: number;
  to: number;
}

/** Boxes of the same row. */
export interface Shelf {
  y: number;
  h: number;
  from: number;
  to: number;
}

/** Where everything is. Rows are sorted by y and boxes of a row by x, so that what is visible is found by search. */
export interface Layout {
  units: Unit[];
  boxes: Box[];
  shelves: Shelf[];
  width: number;
  height: number;
}

/** Space for the title of a box, and around its tiles. */
export const TITLE = 0.75;
export const PAD = 0.16;
const GAP = 0.34;

const collator = new Intl.Collator("en", { numeric: true });

/** Places tiles by group, in an area of this ratio of width to height. */
export function layout(units: readonly Unit[], groupsOf: (unit: Unit) => readonly string[], ratio: number): Layout {
  const groups = new Map<string, Unit[]>();
  for (const unit of units) {
    for (const title of groupsOf(unit)) {
      const group = groups.get(title);
      if (group) group.push(unit);
      else groups.set(title, [unit]);
    }
  }
  const titles = [...groups.keys()].sort(collator.compare);
  const placed: Unit[] = [];
  const boxes: Box[] = [];
  for (const title of titles) {
    const group = groups.get(title) ?? [];
    const columns = columnsFor(group.length);
    const rows = Math.ceil(group.length / columns);
    const from = placed.length;
    for (const unit of group) placed.push(unit);
    const w = Math.max(columns, 2) + 2 * PAD;
    boxes.push({ title, x: 0, y: 0, w, h: rows + TITLE + 2 * PAD, columns, from, to: placed.length });
  }
  const area = boxes.reduce((sum, box) => sum + (box.w + GAP) * (box.h + GAP), 0);
  const widest = boxes.reduce((most, box) => Math.max(most, box.w), 0);
  let best: { shelves: Shelf[]; width: number; height: number } | null = null;
  // Shelves leave gaps, so that a few widths are tried.
  for (const stretch of [0.9, 1, 1.08, 1.18, 1.32]) {
    const tried = shelve(boxes, Math.max(widest, Math.sqrt(area * ratio) * stretch));
    const scale = (t: { width: number; height: number }) => Math.min(ratio / t.width, 1 / t.height);
    if (!best || scale(tried) > scale(best)) best = tried;
  }
  const found = best ?? { shelves: [], width: 1, height: 1 };
  place(boxes, found.shelves);
  return { units: placed, boxes, ...found };
}

function columnsFor(count: number): number {
  if (count <= 2) return Math.max(1, count);
  if (count <= 4) return 2;
  if (count <= 8) return 4;
  return Math.ceil(Math.sqrt(count * 1.7));
}

function shelve(boxes: readonly Box[], width: number): { shelves: Shelf[]; width: number; height: number } {
  const shelves: Shelf[] = [];
  let [x, y, h, from, used] = [0, 0, 0, 0, 0];
  boxes.forEach((box, at) => {
    if (x > 0 && x + box.w > width) {
      shelves.push({ y, h, from, to: at });
      y += h + GAP;
      [x, h, from] = [0, 0, at];
    }
    x += box.w + GAP;
    h = Math.max(h, box.h);
    used = Math.max(used, x - GAP);
  });
  if (boxes.length > from) shelves.push({ y, h, from, to: boxes.length });
  return { shelves, width: Math.max(used, 1), height: Math.max(y + h, 1) };
}

function place(boxes: readonly Box[], shelves: readonly Shelf[]): void {
  for (const shelf of shelves) {
    let x = 0;
    for (const box of boxes.slice(shelf.from, shelf.to)) {
      [box.x, box.y] = [x, shelf.y];
      x += box.w + GAP;
    }
  }
}

/** The first place where `before` is not so any more. */
function search(from: number, to: number, before: (at: number) => boolean): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (before(middle)) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Calls for each box that is in an area. */
export function inArea(map: Layout, x0: number, y0: number, x1: number, y1: number, each: (box: Box) => void): void {
  const { shelves, boxes } = map;
  const first = search(0, shelves.length, (at) => (shelves[at]?.y ?? 0) + (shelves[at]?.h ?? 0) < y0);
  for (let row = first; row < shelves.length; row++) {
    const shelf = shelves[row];
    if (!shelf || shelf.y > y1) return;
    const left = search(shelf.from, shelf.to, (at) => (boxes[at]?.x ?? 0) + (boxes[at]?.w ?? 0) < x0);
    for (let at = left; at < shelf.to; at++) {
      const box = boxes[at];
      if (!box || box.x > x1) break;
      each(box);
    }
  }
}

/** The number of the tile at a point, or -1. */
export function tileAt(map: Layout, x: number, y: number): number {
  let found = -1;
  inArea(map, x, y, x, y, (box) => {
    const column = Math.floor(x - box.x - PAD);
    const row = Math.floor(y - box.y - TITLE - PAD);
    if (column < 0 || column >= box.columns || row < 0) return;
    const at = box.from + row * box.columns + column;
    if (at < box.to) found = at;
  });
  return found;
}

/** The box of a tile. */
export function boxOf(map: Layout, tile: number): Box | undefined {
  const at = search(0, map.boxes.length, (at) => (map.boxes[at]?.to ?? 0) <= tile);
  return map.boxes[at];
}

/** Where a tile is. */
export function placeOf(box: Box, tile: number): [number, number] {
  const at = tile - box.from;
  return [box.x + PAD + (at % box.columns), box.y + PAD + TITLE + Math.floor(at / box.columns)];
}
