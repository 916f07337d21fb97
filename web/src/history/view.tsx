import { ago, duration, moment, number, percent } from "../ui/format";
import { ALL } from "./ring";
import type { History, Sample } from "./ring";

const [WIDTH, HEIGHT] = [600, 120];

export function HistoryView({ history }: { history: History; version: number }) {
  const names = [...history.series.keys()].sort((a, b) => (a === ALL ? -1 : b === ALL ? 1 : a.localeCompare(b)));
  return (
    <div class="view page">
      <header class="head">
        <div>
          <h1>History</h1>
          <p class="quiet">
            Since {moment(history.since)}, when this page was opened ({ago(history.since)}); a sample every {duration(history.interval)}
          </p>
        </div>
        <p class="keys">
          <span>
            <i class="swatch s1" aria-hidden="true" /> in use
          </span>
          <span>
            <i class="swatch s3" aria-hidden="true" /> fragmentation
          </span>
        </p>
      </header>
      {names.length === 0 && <p class="quiet">The first sample is taken when devices are known.</p>}
      <div class="charts">
        {names.map((name) => (
          <Chart key={name} name={name} series={history.series.get(name) ?? []} />
        ))}
      </div>
      <p class="quiet small">
        Fragmentation is how much smaller the largest request is that one node can serve than it could be with as many free devices in the best
        places: 0% means that nothing is lost, 75% that a node has two free devices where it could have eight.
      </p>
    </div>
  );
}

function Chart({ name, series }: { name: string; series: Sample[] }) {
  const last = series.at(-1);
  const first = series[0];
  if (!last || !first) return null;
  const span = Math.max(60_000, last.at - first.at);
  const x = (sample: Sample) => WIDTH - (WIDTH * (last.at - sample.at)) / span;
  const line = (part: (sample: Sample) => number) =>
    series.map((sample) => `${x(sample).toFixed(1)},${(HEIGHT - 2 - (HEIGHT - 4) * part(sample)).toFixed(1)}`).join(" ");
  const used = (sample: Sample) => (sample.total > 0 ? sample.used / sample.total : 0);
  const usage = line(used);
  const text = `${name}: ${percent(last.used, last.total)} in use, ${percent(last.fragmentation, 1)} fragmentation, largest request ${last.largest}`;
  return (
    <article class="card chart" aria-label={name}>
      <header>
        <h2>{name}</h2>
        <span class="quiet">{number.format(last.total)} devices</span>
      </header>
      <div class="now">
        <span>
          <strong>{percent(last.used, last.total)}</strong> in use
        </span>
        <span>
          <strong>{percent(last.fragmentation, 1)}</strong> fragmentation
        </span>
        <span>
          <strong>{number.format(last.free)}</strong> free
        </span>
        <span>
          <strong>{number.format(last.largest)}</strong> largest request
        </span>
      </div>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text}>
        {[0.25, 0.5, 0.75].map((part) => (
          <line key={part} class="grid" x1="0" x2={WIDTH} y1={HEIGHT * part} y2={HEIGHT * part} />
        ))}
        <polygon class="area" points={`${x(first)},${HEIGHT} ${usage} ${WIDTH},${HEIGHT}`} />
        <polyline class="used" points={usage} />
        <polyline class="lost" points={line((sample) => sample.fragmentation)} />
      </svg>
    </article>
  );
}
