import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failed, get, signIn } from "./api";
import type { Session } from "./api";
import { ClaimsView } from "./claims/view";
import { History } from "./history/ring";
import { HistoryView } from "./history/view";
import { Live } from "./live";
import { MapView } from "./map/view";
import { Fleet } from "./model/fleet";
import { PendingView, waiting } from "./pending/view";

const TABS = [
  { id: "map", name: "Devices" },
  { id: "pending", name: "Pending" },
  { id: "claims", name: "Claims" },
  { id: "history", name: "History" },
] as const;
type Tab = (typeof TABS)[number]["id"];

function App() {
  const [session, setSession] = useState<Session | null>(null);
  const [problem, setProblem] = useState("");
  const [wantsToken, setWantsToken] = useState(false);
  const enter = () => {
    get<Session>("session").then(
      (found) => {
        setSession(found);
        setWantsToken(false);
        setProblem("");
      },
      (error: unknown) => {
        const refused = error instanceof Failed && error.code === 401;
        const link = error instanceof Failed && error.message.includes("allot dashboard");
        setWantsToken(refused && !link);
        setProblem(error instanceof Failed ? error.message : String(error));
      },
    );
  };
  useEffect(enter, []);
  const leave = () => {
    signIn("");
    setSession(null);
    setWantsToken(true);
    setProblem("the token is not good any more");
  };
  if (session) return <Dashboard session={session} leave={leave} />;
  if (wantsToken) return <SignIn problem={problem} enter={enter} />;
  return (
    <main class="gate">
      <Brand />
      <p role="status">{problem === "" ? "Connecting…" : problem}</p>
      {problem !== "" && (
        <button type="button" onClick={enter}>
          Try again
        </button>
      )}
    </main>
  );
}

function Brand() {
  return (
    <span class="brand">
      <i aria-hidden="true">
        <b />
        <b />
        <b />
        <b />
      </i>
      allot
    </span>
  );
}

/** Asks for a token of the cluster, which stays in this page's memory. */
function SignIn({ problem, enter }: { problem: string; enter: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: Event) => {
    event.preventDefault();
    signIn(field.current?.value.trim() ?? "");
    if (field.current) field.current.value = "";
    enter();
  };
  return (
    <main class="gate">
      <Brand />
      <form onSubmit={submit}>
        <h1>Sign in</h1>
        <p class="quiet">
          With a bearer token of the cluster. What you see is what it may read. It stays in this page and is forgotten with it.
        </p>
        <label for="token">Token</label>
        <input id="token" ref={field} type="password" autocomplete="off" required />
        <button type="submit">Sign in</button>
        {problem !== "" && !problem.startsWith("a bearer token") && <p class="warn">{problem}</p>}
      </form>
    </main>
  );
}

function tabOf(hash: string): Tab {
  return TABS.find((tab) => `#${tab.id}` === hash)?.id ?? "map";
}

function Dashboard({ session, leave }: { session: Session; leave: () => void }) {
  const [tab, setTab] = useState<Tab>(tabOf(location.hash));
  const [, redraw] = useState(0);
  const [fleet] = useState(() => new Fleet());
  const [history] = useState(() => new History());
  const live = useRef<Live | null>(null);

  useEffect(() => {
    const changed = () => {
      if (live.current?.known) history.sample(fleet, Date.now());
      redraw((count) => count + 1);
    };
    const running = (live.current = new Live(fleet, session, changed, leave));
    void running.run();
    // Relative times must be updated, and samples taken, also without changes.
    const clock = setInterval(changed, 5_000);
    const move = () => setTab(tabOf(location.hash));
    addEventListener("hashchange", move);
    // It may have changed after the first render, before this ran.
    move();
    return () => {
      running.stop();
      clearInterval(clock);
      removeEventListener("hashchange", move);
    };
  }, []);

  const { version } = fleet;
  const pending = waiting(fleet).length;
  return (
    <>
      <header class="top">
        <Brand />
        <nav aria-label="Views">
          {TABS.map(({ id, name }) => (
            <a key={id} href={`#${id}`} aria-current={id === tab ? "page" : undefined}>
              {name}
              {id === "pending" && pending > 0 && <span class="badge">{pending}</span>}
            </a>
          ))}
        </nav>
        <span class="cluster" title="The cluster">
          {session.cluster}
        </span>
        <Status live={live.current} />
      </header>
      <Troubles live={live.current} session={session} />
      <main>
        {tab === "map" && <MapView fleet={fleet} version={version} />}
        {tab === "pending" && <PendingView fleet={fleet} version={version} />}
        {tab === "claims" && <ClaimsView fleet={fleet} version={version} />}
        {tab === "history" && <HistoryView history={history} version={version} />}
      </main>
    </>
  );
}

function Status({ live }: { live: Live | null }) {
  const loading = !live || live.progress < 1;
  const state = loading ? "loading" : live.connected ? "live" : "lost";
  const text = loading ? `Reading ${Math.round(100 * (live?.progress ?? 0))}%` : live.connected ? "Live" : "Connecting";
  return (
    <span class={`status ${state}`} role="status">
      <i aria-hidden="true" />
      {text}
    </span>
  );
}

/** What is not shown, and why. */
function Troubles({ live, session }: { live: Live | null; session: Session }) {
  const troubles = [...(live?.troubles.values() ?? [])];
  const classes = [...(live?.classErrors ?? [])];
  if (troubles.length === 0 && classes.length === 0 && session.served.length > 0) return null;
  return (
    <ul class="troubles" aria-label="What is not shown">
      {session.served.length === 0 && <li>The API server does not serve resource.k8s.io: it has no devices to show.</li>}
      {troubles.map(({ kind, message, namespace }) => (
        <li key={kind}>{namespace ? `Only ${kind} of namespace ${namespace} are shown: ${message}` : `${kind}: ${message}`}</li>
      ))}
      {classes.slice(0, 4).map(([name, error]) => (
        <li key={name}>
          class {name}: {error}
        </li>
      ))}
    </ul>
  );
}

const app = document.getElementById("app");
if (app) render(<App />, app);
