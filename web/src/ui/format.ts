/** How long ago, in short. */
export function ago(at: number, now = Date.now()): string {
  if (at <= 0) return "unknown";
  return duration(Math.max(0, now - at));
}

/** A duration, with the two largest units. */
export function duration(milliseconds: number): string {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes < 10 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** A time of day, or a date where it is another day. */
export function moment(at: number): string {
  if (at <= 0) return "unknown";
  const date = new Date(at);
  const same = date.toDateString() === new Date().toDateString();
  const time = date.toLocaleTimeString(undefined, { hour12: false });
  return same ? time : `${date.toLocaleDateString()} ${time}`;
}

export const number = new Intl.NumberFormat("en");

/** A part of a whole, without pretending that almost all is all. */
export function percent(part: number, whole: number): string {
  if (whole === 0) return "–";
  const exact = (100 * part) / whole;
  if (exact > 99 && exact < 100) return "99%";
  if (exact > 0 && exact < 1) return "<1%";
  return `${Math.round(exact)}%`;
}

export function plural(count: number, what: string): string {
  return `${number.format(count)} ${what}${count === 1 ? "" : "s"}`;
}
