/** Colours of the map. Those of states are in the order of their numbers. */
export interface Palette {
  states: readonly string[];
  ground: string;
  box: string;
  edge: string;
  title: string;
  /** Text on a tile of each state. */
  ink: readonly string[];
  ring: string;
}

export const DARK: Palette = {
  states: ["#44607c", "#2fd6a8", "#35a8e0", "#f0b840", "#ff5d73", "#a98bff", "#2c3a49"],
  ground: "#090d12",
  box: "#111921",
  edge: "#1d2833",
  title: "#9db0c3",
  ink: ["#f2f7fb", "#04241b", "#03202f", "#2c1f00", "#2f0007", "#160838", "#b7c6d4"],
  ring: "#ffffff",
};

export const LIGHT: Palette = {
  states: ["#b4c5d6", "#0f9f7b", "#2787c4", "#e0a100", "#dc3350", "#7a5be0", "#dbe2e9"],
  ground: "#eef1f5",
  box: "#ffffff",
  edge: "#d9e0e8",
  title: "#4a5b6c",
  ink: ["#16222e", "#ffffff", "#ffffff", "#241a00", "#ffffff", "#ffffff", "#425364"],
  ring: "#0c141c",
};

const darkness = matchMedia("(prefers-color-scheme: light)");

export function palette(): Palette {
  return darkness.matches ? LIGHT : DARK;
}

export function onPaletteChange(then: () => void): () => void {
  darkness.addEventListener("change", then);
  return () => darkness.removeEventListener("change", then);
}

/** A colour as canvas pixels hold it on machines with the usual order of bytes. */
export function pixel(colour: string): number {
  const number = Number.parseInt(colour.slice(1), 16);
  return (0xff000000 | ((number & 0xff) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}
