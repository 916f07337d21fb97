import { useEffect, useRef } from "preact/hooks";
import { STATES } from "../model/device";
import type { Unit } from "../model/device";
import { boxOf, placeOf, tileAt } from "./layout";
import type { Layout } from "./layout";
import { paint } from "./paint";
import type { Camera } from "./paint";
import { onPaletteChange, palette } from "./palette";

/** What the canvas can be told from outside. */
export interface MapControl {
  fit(): void;
  zoom(factor: number): void;
}

interface Props {
  map: Layout;
  /** Grows when states change. */
  version: number;
  selected: Unit | null;
  select: (unit: Unit | null) => void;
  summary: string;
  control: { current: MapControl | null };
}

/** Pixels that the pointer may move in a click. */
const SLACK = 4;
const LARGEST = 160;

/** Everything that moves, outside of what is rendered: sixty times a second nothing is compared. */
class Stage {
  map: Layout;
  camera: Camera = { x: 0, y: 0, scale: 1 };
  selected = -1;
  hovered = -1;
  private pending = 0;
  /** The reader has chosen the part that is shown. */
  private moved = false;

  constructor(
    readonly canvas: HTMLCanvasElement,
    map: Layout,
  ) {
    this.map = map;
  }

  get ratio(): number {
    return devicePixelRatio || 1;
  }

  request(): void {
    if (this.pending === 0) this.pending = requestAnimationFrame(() => this.frame());
  }

  private frame(): void {
    this.pending = 0;
    const context = this.canvas.getContext("2d", { alpha: false });
    if (!context || this.canvas.width === 0) return;
    const { map, camera, selected, hovered } = this;
    if (paint(context, { map, camera, palette: palette(), selected, hovered, now: Date.now() })) this.request();
  }

  resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    if (!this.moved) this.fit();
    this.request();
  }

  show(map: Layout): void {
    this.map = map;
    if (!this.moved) this.fit();
    this.request();
  }

  private get smallest(): number {
    const { width, height } = this.canvas;
    return Math.min(width / (this.map.width + 0.6), height / (this.map.height + 0.6), 84 * this.ratio);
  }

  fit(): void {
    const { width, height } = this.canvas;
    const scale = Math.max(this.smallest, 0.01);
    this.camera = { scale, x: (this.map.width - width / scale) / 2, y: (this.map.height - height / scale) / 2 };
    this.moved = false;
    this.request();
  }

  /** Zooms, so that what is at a point of the canvas stays there. */
  zoom(factor: number, px = this.canvas.width / 2, py = this.canvas.height / 2): void {
    const { x, y, scale } = this.camera;
    const next = Math.min(Math.max(scale * factor, this.smallest * 0.6), LARGEST * this.ratio);
    this.camera = { scale: next, x: x + px / scale - px / next, y: y + py / scale - py / next };
    this.moved = true;
    this.request();
  }

  pan(dx: number, dy: number): void {
    const { scale } = this.camera;
    // A part of the map stays visible.
    const hold = (at: number, size: number, whole: number) => Math.min(Math.max(at, -size * 0.9), whole - size * 0.1);
    this.camera.x = hold(this.camera.x - dx / scale, this.canvas.width / scale, this.map.width);
    this.camera.y = hold(this.camera.y - dy / scale, this.canvas.height / scale, this.map.height);
    this.moved = true;
    this.request();
  }

  at(event: MouseEvent): number {
    const area = this.canvas.getBoundingClientRect();
    const { x, y, scale } = this.camera;
    const [px, py] = [(event.clientX - area.left) * this.ratio, (event.clientY - area.top) * this.ratio];
    return tileAt(this.map, x + px / scale, y + py / scale);
  }

  /** Brings a tile into sight. */
  reveal(tile: number): void {
    const box = boxOf(this.map, tile);
    if (!box) return;
    const { width, height } = this.canvas;
    const [x, y] = placeOf(box, tile);
    if (this.camera.scale < 14 * this.ratio) this.zoom((26 * this.ratio) / this.camera.scale);
    const { scale } = this.camera;
    const inside = (at: number, from: number, size: number) => at > from + 1 && at < from + size - 2;
    if (inside(x, this.camera.x, width / scale) && inside(y, this.camera.y, height / scale)) return;
    this.camera = { scale, x: x - width / scale / 2, y: y - height / scale / 2 };
    this.moved = true;
    this.request();
  }

  /** The tile beside another one; boxes are crossed. */
  beside(tile: number, key: string): number {
    const box = boxOf(this.map, tile);
    if (!box || tile < 0) return 0;
    if (key === "ArrowLeft") return Math.max(0, tile - 1);
    if (key === "ArrowRight") return Math.min(this.map.units.length - 1, tile + 1);
    const [x, y] = placeOf(box, tile);
    const down = key === "ArrowDown";
    // The target may be beyond the edge of the box: in a box below or above, or in the next row of
    // this one.
    for (let step = 1; step < 6; step += 0.5) {
      const found = tileAt(this.map, x + 0.5, y + 0.5 + (down ? step : -step));
      if (found >= 0 && found !== tile) return found;
    }
    return tile;
  }
}

export function MapCanvas({ map, version, selected, select, summary, control }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const stage = useRef<Stage | null>(null);
  const choose = useRef(select);
  choose.current = select;

  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const s = (stage.current = new Stage(element, map));
    control.current = { fit: () => s.fit(), zoom: (factor) => s.zoom(factor) };
    const sizes = new ResizeObserver(() => s.resize());
    sizes.observe(element);
    const theme = onPaletteChange(() => s.request());
    const unlisten = listen(s, tip.current, (unit) => choose.current(unit));
    return () => {
      sizes.disconnect();
      theme();
      unlisten();
      control.current = null;
    };
  }, []);

  useEffect(() => stage.current?.show(map), [map]);
  useEffect(() => {
    const s = stage.current;
    if (!s) return;
    s.selected = selected === null ? -1 : s.map.units.findIndex((unit) => unit.key === selected.key);
    s.request();
  }, [selected, map, version]);

  return (
    <div class="canvas">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="device map"
        aria-label={`${summary}. Arrow keys go from device to device, plus and minus zoom, 0 shows all, Escape leaves. The table shows the same.`}
      />
      <div ref={tip} class="tip" hidden />
    </div>
  );
}

/** Pointer, wheel and keys. */
function listen(s: Stage, tip: HTMLElement | null, select: (unit: Unit | null) => void): () => void {
  const { canvas } = s;
  const stop = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(type: K, then: (event: HTMLElementEventMap[K]) => void) =>
    canvas.addEventListener(type, then, { signal: stop.signal, passive: false });
  let drag: { x: number; y: number; moved: boolean } | null = null;
  const hover = (tile: number, event?: MouseEvent) => {
    if (tile !== s.hovered) {
      s.hovered = tile;
      s.request();
    }
    const unit = s.map.units[tile];
    if (!tip) return;
    tip.hidden = !unit || !event;
    if (!unit || !event) return;
    const area = canvas.getBoundingClientRect();
    const who = unit.devices.flatMap((device) => device.holders().map((held) => held.claim.key));
    const lines = [`${unit.label} on ${unit.node}`, STATES[unit.state]?.name ?? "", ...new Set(who.slice(0, 3))];
    tip.textContent = lines.join("\n");
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    tip.style.left = `${Math.min(x + 14, area.width - 240)}px`;
    tip.style.top = `${Math.min(y + 14, area.height - 80)}px`;
  };
  on("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  on("pointermove", (event) => {
    if (!drag) return hover(s.at(event), event);
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < SLACK) return;
    hover(-1);
    s.pan(dx * s.ratio, dy * s.ratio);
    drag = { x: event.clientX, y: event.clientY, moved: true };
  });
  on("pointerup", (event) => {
    if (drag && !drag.moved) select(s.map.units[s.at(event)] ?? null);
    drag = null;
  });
  on("pointercancel", () => (drag = null));
  on("pointerleave", () => hover(-1));
  on("wheel", (event) => {
    event.preventDefault();
    const area = canvas.getBoundingClientRect();
    const [px, py] = [(event.clientX - area.left) * s.ratio, (event.clientY - area.top) * s.ratio];
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    s.zoom(Math.exp(-event.deltaY * lines * 0.0016), px, py);
  });
  on("dblclick", (event) => {
    const area = canvas.getBoundingClientRect();
    s.zoom(2.2, (event.clientX - area.left) * s.ratio, (event.clientY - area.top) * s.ratio);
  });
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) {
      const tile = s.beside(s.selected, event.key);
      const unit = s.map.units[tile];
      if (unit) {
        s.selected = tile;
        s.reveal(tile);
        select(unit);
      }
    } else if (event.key === "+" || event.key === "=") s.zoom(1.4);
    else if (event.key === "-") s.zoom(1 / 1.4);
    else if (event.key === "0") s.fit();
    else if (event.key === "Escape") select(null);
    else return;
    event.preventDefault();
  });
  return () => stop.abort();
}
