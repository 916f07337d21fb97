import { useEffect, useState } from "preact/hooks";
import type { Unit } from "../model/device";
import { Pager } from "../ui/pager";
import { StateChip } from "../ui/state";

const SIZE = 100;

/** The same tiles as a table: for screen readers, and for those who want to read. */
export function DeviceTable(props: { units: readonly Unit[]; selected: Unit | null; select: (unit: Unit) => void }) {
  const { units, selected, select } = props;
  const [page, setPage] = useState(0);
  const last = Math.max(0, Math.ceil(units.length / SIZE) - 1);
  useEffect(() => {
    if (page > last) setPage(last);
  }, [last]);
  const shown = units.slice(page * SIZE, (page + 1) * SIZE);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Devices as a table">
      <table>
        <caption class="sr">Devices</caption>
        <thead>
          <tr>
            <th scope="col">Device</th>
            <th scope="col">State</th>
            <th scope="col">Node</th>
            <th scope="col">Driver</th>
            <th scope="col">Pool</th>
            <th scope="col">Held by</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((unit) => (
            <tr key={unit.key} class={unit.key === selected?.key ? "chosen" : ""}>
              <th scope="row">
                <button type="button" class="link" onClick={() => select(unit)}>
                  {unit.label}
                </button>
              </th>
              <td>
                <StateChip state={unit.state} />
              </td>
              <td>{unit.node}</td>
              <td>{unit.pool.driver}</td>
              <td>{unit.pool.name}</td>
              <td>{holders(unit)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Pager page={Math.min(page, last)} size={SIZE} total={units.length} go={setPage} />
    </div>
  );
}

function holders(unit: Unit): string {
  const claims = new Set(unit.devices.flatMap((device) => device.holders().map((held) => held.claim.key)));
  const names = [...claims];
  return names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}
