import { Failed, get, places, stream } from "./api";
import type { Session } from "./api";
import { KINDS } from "./model/fleet";
import type { Fleet, Kind } from "./model/fleet";
import type { Metadata } from "./model/types";

/** Objects of a page. */
const PAGE = "500";
/** Changes are worked out together so often. */
const SETTLE = 200;
/** Nothing for so long, not even an empty line: the connection is dead. */
const SILENCE = 45_000;
/** What is refused is asked for again after so long. */
const AGAIN = 60_000;
/** Classes are asked for again this long after devices have changed. */
const CLASSES = 2_000;

interface Listed {
  items: { metadata: Metadata }[];
  resourceVersion: string;
  continue: string;
  remaining: number;
}

interface Line {
  kind: Kind;
  type: string;
  object?: { metadata: Metadata };
  code?: number;
  message?: string;
}

/** What is wrong with a kind. */
export interface Trouble {
  kind: Kind;
  message: string;
  /** The one namespace that is shown. */
  namespace?: string;
}

/** Keeps a fleet as the cluster is: lists, then watches. */
export class Live {
  /** How far the first lists are, between 0 and 1. */
  progress = 0;
  connected = false;
  troubles = new Map<Kind, Trouble>();
  classErrors = new Map<string, string>();
  private readonly marks = new Map<Kind, string>();
  private readonly namespaces = new Map<Kind, string>();
  private stopped = false;
  private watching: AbortController | null = null;
  private heard = 0;
  private classified = "";
  private classTimer = 0;

  constructor(
    readonly fleet: Fleet,
    readonly session: Session,
    private readonly changed: () => void,
    /** The server does not know the reader any more. */
    private readonly signedOut: () => void,
  ) {}

  async run(): Promise<void> {
    const settle = setInterval(() => {
      // Objects of the first lists have not changed.
      if (this.fleet.settle(this.progress < 1 ? 0 : Date.now())) this.changed();
      this.classify();
      if (this.watching && performance.now() - this.heard > SILENCE) this.watching.abort();
    }, SETTLE);
    for (const [at, kind] of KINDS.entries()) {
      await this.list(kind, (part) => {
        this.progress = (at + part) / KINDS.length;
        this.changed();
      });
    }
    // What came last is settled as part of the first lists.
    this.fleet.settle(0);
    this.progress = 1;
    this.changed();
    let pause = 500;
    while (!this.stopped) {
      const begun = performance.now();
      await this.watch();
      this.connected = false;
      this.changed();
      pause = performance.now() - begun > 5_000 ? 500 : Math.min(pause * 2, 15_000);
      await new Promise((go) => setTimeout(go, pause));
    }
    clearInterval(settle);
  }

  stop(): void {
    this.stopped = true;
    this.watching?.abort();
  }

  private async list(kind: Kind, progress: (part: number) => void): Promise<void> {
    const all: { metadata: Metadata }[] = [];
    let next = "";
    try {
      do {
        const parameters: [string, string][] = [["kind", kind], ["limit", PAGE]];
        const namespace = this.namespaces.get(kind);
        if (namespace) parameters.push(["namespace", namespace]);
        if (next !== "") parameters.push(["continue", next]);
        const page = await get<Listed>("list", parameters);
        // The map fills while it is read.
        if (this.progress < 1) for (const object of page.items) this.fleet.apply(kind, false, object);
        all.push(...page.items);
        next = page.continue;
        this.marks.set(kind, page.resourceVersion);
        progress(all.length / Math.max(1, all.length + (page.remaining || 0)));
      } while (next !== "" && !this.stopped);
      this.fleet.replace(kind, all);
      if (!this.namespaces.has(kind)) this.troubles.delete(kind);
    } catch (error) {
      await this.refused(kind, error, progress);
    }
  }

  private async refused(kind: Kind, error: unknown, progress: (part: number) => void): Promise<void> {
    if (!(error instanceof Failed)) throw error;
    if (error.code === 401) {
      this.stop();
      this.signedOut();
      return;
    }
    const { namespace } = this.session;
    const namespaced = kind === "claims" || kind === "pods";
    if (error.code === 403 && namespaced && namespace !== "" && !this.namespaces.has(kind)) {
      this.namespaces.set(kind, namespace);
      this.troubles.set(kind, { kind, message: error.message, namespace });
      return this.list(kind, progress);
    }
    this.marks.delete(kind);
    // Older servers, and those with the feature disabled, have no rules.
    if (error.code === 404 && kind === "rules") return;
    this.troubles.set(kind, { kind, message: error.message });
    setTimeout(() => {
      this.namespaces.delete(kind);
      if (!this.stopped) void this.list(kind, () => {}).then(() => this.watching?.abort());
    }, AGAIN);
  }

  /** Watches all kinds until the stream ends. */
  private async watch(): Promise<void> {
    const parameters: [string, string][] = [];
    for (const [kind, mark] of this.marks) {
      parameters.push([kind, mark]);
      const namespace = this.namespaces.get(kind);
      if (namespace) parameters.push([`${kind}.namespace`, namespace]);
    }
    this.watching = new AbortController();
    const beat = () => {
      this.heard = performance.now();
      if (!this.connected) {
        this.connected = true;
        this.changed();
      }
    };
    this.heard = performance.now();
    const stale: Kind[] = [];
    try {
      if (parameters.length === 0) return;
      const each = (line: unknown) => this.take(line as Line, stale);
      await stream("watch", parameters, this.watching.signal, each, beat);
    } catch (error) {
      if (error instanceof Failed && error.code === 401) {
        this.stop();
        this.signedOut();
      }
    } finally {
      this.watching = null;
    }
    for (const kind of stale) await this.list(kind, () => {});
  }

  private take(line: Line, stale: Kind[]): void {
    if (line.type === "ERROR") {
      // Missed changes are in a new list.
      stale.push(line.kind);
      this.watching?.abort();
      return;
    }
    const metadata = line.object?.metadata;
    if (!line.object || !metadata) return;
    if (metadata.resourceVersion) this.marks.set(line.kind, metadata.resourceVersion);
    if (line.type === "BOOKMARK") return;
    this.fleet.apply(line.kind, line.type === "DELETED", line.object);
  }

  /** Devices, claims and classes are known: what is counted from now on is true. */
  get known(): boolean {
    return this.classified !== "";
  }

  /** Asks which devices are in which class, some time after either has changed. */
  private classify(): void {
    const version = this.version();
    if (this.classified === version || this.classTimer !== 0 || this.progress < 1) return;
    this.classTimer = window.setTimeout(() => {
      void this.askClasses().finally(() => (this.classTimer = 0));
    }, this.classified === "" ? 0 : CLASSES);
  }

  private async askClasses(): Promise<void> {
    interface Class {
      name: string;
      error?: string;
      selected?: { slices: Record<string, string>; error: string | null };
    }
    try {
      const answer = await get<{ classes: Class[] }>("classes");
      this.classErrors.clear();
      const found = new Map<string, Map<string, Set<number>>>();
      for (const { name, error, selected } of answer.classes) {
        found.set(name, places(selected?.slices ?? {}));
        const problem = error ?? selected?.error;
        if (problem) this.classErrors.set(name, problem);
      }
      this.fleet.classify(found);
    } catch {
      // Grouping by class shows none; the error of listing classes is shown.
    }
    this.classified = this.version();
    this.changed();
  }

  /** What membership in classes depends on. */
  private version(): string {
    return `${this.fleet.published}/${this.fleet.classVersion}`;
  }
}
