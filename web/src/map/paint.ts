import { BLOCKED, INCOMPLETE, PARTLY, STATES, UNHEALTHY } from "../model/device";
import type { Unit } from "../model/device";
import { PAD, TITLE, boxOf, inArea, placeOf } from "./layout";
import type { Box, Layout } from "./layout";
import { pixel } from "./palette";
import type { Palette } from "./palette";

/** What part of the map is shown: a unit has `scale` pixels, and the corner of the canvas is at `x`, `y`. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

/** Below this size, tiles are filled pixel by pixel: ten times faster than shapes. */
const SMALL = 12;
/** From this size on, tiles have round corners and partitions. */
const ROUND = 15;
/** From this size on, tiles have names. */
const NAMED = 46;
/** A change of state is seen for so long. */
export const FLASH = 1600;

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export interface Scene {
  map: Layout;
  camera: Camera;
  palette: Palette;
  /** Numbers of tiles; -1 where there is none. */
  selected: number;
  hovered: number;
  now: number;
}

/** Paints the visible part; returns whether something moves, so that it has to be painted again. */
export function paint(context: CanvasRenderingContext2D, scene: Scene): boolean {
  const { map, camera, palette } = scene;
  const { width, height } = context.canvas;
  const visible: Box[] = [];
  const right = camera.x + width / camera.scale;
  const bottom = camera.y + height / camera.scale;
  inArea(map, camera.x, camera.y, right, bottom, (box) => visible.push(box));
  const size = camera.scale;
  if (size < SMALL) pixels(context, scene, visible);
  else {
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, width, height);
    shapes(context, scene, visible);
  }
  titles(context, scene, visible);
  const moves = flashes(context, scene, visible);
  ring(context, scene, scene.hovered, 1);
  ring(context, scene, scene.selected, 2.5);
  return moves;
}

let image: ImageData | null = null;
let words = new Uint32Array(0);

/** Small tiles: plain rectangles in memory. */
function pixels(context: CanvasRenderingContext2D, { map, camera, palette }: Scene, visible: readonly Box[]): void {
  const { width, height } = context.canvas;
  if (!image || image.width !== width || image.height !== height) {
    image = new ImageData(width, height);
    words = new Uint32Array(image.data.buffer);
  }
  words.fill(pixel(palette.ground));
  const colours = palette.states.map(pixel);
  const [boxColour, free] = [pixel(palette.box), colours[0] ?? 0];
  const { scale } = camera;
  const rectangle = (x0: number, y0: number, x1: number, y1: number, colour: number) => {
    const [left, right] = [Math.max(0, x0), Math.min(width, x1)];
    if (left >= right) return;
    for (let y = Math.max(0, y0), end = Math.min(height, y1); y < end; y++) {
      words.fill(colour, y * width + left, y * width + right);
    }
  };
  const gap = scale >= 3 ? 1 : 0;
  for (const box of visible) {
    const [bx, by] = [(box.x - camera.x) * scale, (box.y - camera.y) * scale];
    rectangle(Math.round(bx), Math.round(by), Math.round(bx + box.w * scale), Math.round(by + box.h * scale), boxColour);
    const [left, top] = [bx + PAD * scale, by + (PAD + TITLE) * scale];
    for (let at = box.from; at < box.to; at++) {
      const unit = map.units[at] as Unit;
      const place = at - box.from;
      const column = place % box.columns;
      const row = (place - column) / box.columns;
      const [x0, y0] = [Math.round(left + column * scale), Math.round(top + row * scale)];
      const x1 = Math.max(x0 + 1, Math.round(left + (column + 1) * scale) - gap);
      const y1 = Math.max(y0 + 1, Math.round(top + (row + 1) * scale) - gap);
      const colour = colours[unit.state] ?? 0;
      if (unit.state === PARTLY && y1 - y0 >= 4) {
        const level = y1 - Math.max(1, Math.round((y1 - y0) * unit.share));
        rectangle(x0, y0, x1, level, free);
        rectangle(x0, level, x1, y1, colour);
      } else rectangle(x0, y0, x1, y1, colour);
    }
  }
  context.putImageData(image, 0, 0);
}

/** Large tiles: a path for each colour, and what is inside of them. */
function shapes(context: CanvasRenderingContext2D, scene: Scene, visible: readonly Box[]): void {
  const { map, camera, palette } = scene;
  const { scale } = camera;
  const { width, height } = context.canvas;
  context.beginPath();
  for (const box of visible) {
    const [x, y] = [(box.x - camera.x) * scale, (box.y - camera.y) * scale];
    context.roundRect(x, y, box.w * scale, box.h * scale, Math.min(10, scale * 0.2));
  }
  context.fillStyle = palette.box;
  context.fill();
  context.strokeStyle = palette.edge;
  context.lineWidth = 1;
  context.stroke();
  const size = scale * 0.88;
  const radius = Math.min(8, scale * 0.14);
  const byState: [Unit, number, number][][] = STATES.map(() => []);
  for (const box of visible) {
    for (let at = box.from; at < box.to; at++) {
      const unit = map.units[at] as Unit;
      const [ux, uy] = placeOf(box, at);
      const [x, y] = [(ux - camera.x) * scale, (uy - camera.y) * scale];
      if (x > width || y > height || x + scale < 0 || y + scale < 0) continue;
      byState[unit.state]?.push([unit, x, y]);
    }
  }
  byState.forEach((tiles, state) => {
    if (tiles.length === 0) return;
    context.beginPath();
    for (const [, x, y] of tiles) {
      if (scale < ROUND) context.rect(x, y, size, size);
      else context.roundRect(x, y, size, size, radius);
    }
    // The used part of a shared device is drawn as a level.
    context.fillStyle = palette.states[state === PARTLY ? 0 : state] ?? "";
    context.fill();
    if (state === INCOMPLETE && scale >= ROUND) {
      context.save();
      context.setLineDash([4, 3]);
      context.strokeStyle = palette.ink[INCOMPLETE] ?? "";
      context.stroke();
      context.restore();
    }
    if (state === PARTLY) levels(context, tiles, size, radius, palette);
  });
  if (scale < ROUND) return;
  for (const tiles of byState) {
    for (const [unit, x, y] of tiles) {
      if (unit.partitioned) partitions(context, unit, x, y, size, scale >= NAMED, palette);
      if (scale >= NAMED) name(context, unit, x, y, size, palette);
      else if (unit.state === UNHEALTHY) mark(context, "!", x, y, size, palette);
    }
  }
}

function levels(
  context: CanvasRenderingContext2D, tiles: readonly [Unit, number, number][], size: number, radius: number,
  palette: Palette,
): void {
  context.beginPath();
  for (const [unit, x, y] of tiles) {
    if (unit.partitioned && size >= ROUND) continue;
    const level = size * Math.max(0.08, unit.share);
    context.roundRect(x, y + size - level, size, level, [0, 0, radius, radius]);
  }
  context.fillStyle = palette.states[PARTLY] ?? "";
  context.fill();
}

/** Partitions of a device, small inside of it, with a bar for what is used of the whole, below its name if it is drawn. */
function partitions(
  context: CanvasRenderingContext2D, unit: Unit, x: number, y: number, size: number, named: boolean, palette: Palette,
): void {
  const count = unit.devices.length;
  const inset = size * 0.1;
  const top = named ? Math.min(18, size * 0.3 + 2) : inset;
  const bar = Math.max(2, size * 0.07);
  const [w, h] = [size - 2 * inset, size - top - inset - bar - 2];
  const columns = Math.max(1, Math.ceil(Math.sqrt((count * w) / Math.max(1, h))));
  const rows = Math.ceil(count / columns);
  const [cw, ch] = [w / columns, h / rows];
  context.fillStyle = palette.box;
  context.fillRect(x + inset - 1, y + top - 1, w + 2, h + 2);
  unit.devices.forEach((device, at) => {
    context.fillStyle = palette.states[device.state] ?? "";
    const [px, py] = [x + inset + (at % columns) * cw, y + top + Math.floor(at / columns) * ch];
    context.fillRect(px + 0.5, py + 0.5, Math.max(1, cw - 1), Math.max(1, ch - 1));
    if (device.state === BLOCKED && cw > 7) {
      context.fillStyle = palette.title;
      context.fillRect(px + cw * 0.3, py + ch / 2 - 0.5, cw * 0.4, 1);
    }
  });
  context.fillStyle = palette.box;
  context.fillRect(x + inset, y + size - inset - bar + 1, w, bar);
  context.fillStyle = palette.states[PARTLY] ?? "";
  context.fillRect(x + inset, y + size - inset - bar + 1, w * unit.share, bar);
}

function name(
  context: CanvasRenderingContext2D, unit: Unit, x: number, y: number, size: number, palette: Palette,
): void {
  const height = Math.min(13, size * 0.2);
  context.font = `600 ${height}px ${FONT}`;
  context.textBaseline = "top";
  // Above the used part, a tile has the colour of a free one.
  const onFree = unit.state === PARTLY && (unit.partitioned || unit.share < 0.9);
  context.fillStyle = palette.ink[onFree ? 0 : unit.state] ?? "";
  const room = size - 10;
  context.fillText(fitting(unit.label, room, height), x + 5, y + 4);
  if (unit.partitioned || size < 64) return;
  const holder = unit.devices[0]?.holders()[0];
  const detail = holder ? (holder.claim.consumers[0] ?? holder.claim.raw.metadata.name) : (STATES[unit.state]?.name ?? "");
  context.font = `${height * 0.86}px ${FONT}`;
  context.fillText(fitting(detail, room, height * 0.86), x + 5, y + 6 + height * 1.2);
}

function mark(
  context: CanvasRenderingContext2D, text: string, x: number, y: number, size: number, palette: Palette,
): void {
  context.font = `700 ${size * 0.6}px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.fillStyle = palette.ink[UNHEALTHY] ?? "";
  context.fillText(text, x + size / 2, y + size / 2);
  context.textAlign = "left";
}

/** As much of a text as has space; estimated, because measuring thousands of texts is slow. */
function fitting(text: string, room: number, height: number): string {
  const most = Math.floor(room / (height * 0.6));
  if (text.length <= most) return text;
  // Names with equal beginnings differ in their ends.
  return most < 5 ? text.slice(-Math.max(0, most)) : `${text.slice(0, most - 5)}…${text.slice(-4)}`;
}

function titles(context: CanvasRenderingContext2D, { camera, palette }: Scene, visible: readonly Box[]): void {
  const { scale } = camera;
  const ratio = devicePixelRatio || 1;
  const height = Math.min(13 * ratio, TITLE * scale * 0.72);
  // The titles of small boxes would not be readable; those of large ones are drawn over their
  // corner.
  const over = height < 9;
  context.textBaseline = "middle";
  for (const box of visible) {
    const [x, y, w] = [(box.x - camera.x) * scale, (box.y - camera.y) * scale, box.w * scale];
    if (over && w < 130 * ratio) continue;
    const size = over ? 12 * ratio : height;
    context.font = `600 ${size}px ${FONT}`;
    const text = fitting(box.title, w - 12, size);
    const middle = y + Math.max(size * 0.75, ((TITLE + PAD) * scale) / 2);
    if (over) {
      context.fillStyle = palette.box;
      context.fillRect(x, middle - size * 0.75, Math.min(w, text.length * size * 0.6 + 12), size * 1.5);
    }
    context.fillStyle = palette.title;
    context.fillText(text, x + Math.max(5, PAD * scale), middle);
  }
}

/** A ring that grows and fades where a state has just changed. */
function flashes(context: CanvasRenderingContext2D, scene: Scene, visible: readonly Box[]): boolean {
  const { map, camera, palette, now } = scene;
  let moves = false;
  for (const box of visible) {
    for (let at = box.from; at < box.to; at++) {
      const unit = map.units[at] as Unit;
      const age = now - unit.changed;
      if (age > FLASH) continue;
      moves = true;
      const [x, y] = placeOf(box, at);
      const part = Math.max(0, age / FLASH);
      const grow = part * Math.max(3, camera.scale * 0.25);
      context.globalAlpha = 1 - part;
      context.strokeStyle = palette.states[unit.state] ?? palette.ring;
      context.lineWidth = 2;
      context.strokeRect(
        (x - camera.x) * camera.scale - grow, (y - camera.y) * camera.scale - grow,
        camera.scale * 0.88 + 2 * grow, camera.scale * 0.88 + 2 * grow,
      );
    }
  }
  context.globalAlpha = 1;
  return moves;
}

function ring(context: CanvasRenderingContext2D, { map, camera, palette }: Scene, tile: number, width: number): void {
  const box = tile >= 0 ? boxOf(map, tile) : undefined;
  if (!box) return;
  const [x, y] = placeOf(box, tile);
  const size = Math.max(4, camera.scale * 0.88);
  context.strokeStyle = palette.ring;
  context.lineWidth = width * (devicePixelRatio || 1);
  context.strokeRect((x - camera.x) * camera.scale - 1, (y - camera.y) * camera.scale - 1, size + 2, size + 2);
}
