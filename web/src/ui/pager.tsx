import { number } from "./format";

/** Steps through a long list. */
export function Pager(props: { page: number; size: number; total: number; go: (page: number) => void }) {
  const { page, size, total, go } = props;
  const last = Math.max(0, Math.ceil(total / size) - 1);
  if (last === 0) return null;
  const from = page * size + 1;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={page === 0} onClick={() => go(page - 1)}>
        Previous
      </button>
      <span>
        {number.format(from)}–{number.format(Math.min(total, from + size - 1))} of {number.format(total)}
      </span>
      <button type="button" disabled={page >= last} onClick={() => go(page + 1)}>
        Next
      </button>
    </nav>
  );
}
