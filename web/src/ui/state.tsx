import { STATES } from "../model/device";
import type { State } from "../model/device";

/** A state as a small tile beside its name; the name says what the colour says. */
export function StateChip({ state }: { state: State }) {
  return (
    <span class="chip">
      <i class={`swatch s${state}`} aria-hidden="true" />
      {STATES[state]?.name}
    </span>
  );
}
