const FACTORS: Record<string, number> = {
  "": 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** A quantity as a number: near enough to draw a part of a whole. 0 for what is no quantity. */
export function quantity(text: unknown): number {
  if (typeof text === "number") return text;
  const found = /^([+-]?[0-9.]+)(?:[eE]([+-]?\d+))?([A-Za-z]*)$/.exec(String(text ?? ""));
  if (!found) return 0;
  const value = Number(found[1]) * 10 ** Number(found[2] ?? 0) * (FACTORS[found[3] ?? ""] ?? 0);
  return Number.isFinite(value) ? value : 0;
}
