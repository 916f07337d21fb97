// The answer of `allot explain -o json` with nodes grouped by verdict, from the server.

export interface Rejected {
  plugin: string;
  reason: string;
}

export interface Stage {
  kind: string;
  detail?: string;
  left: number;
}

export interface Request {
  claim: string;
  request: string;
  needs: number;
  funnel: Stage[];
  inUse?: { device: string; by: string[] }[];
  nearest?: { device: string; reason: string };
}

export interface Group {
  count: number;
  nodes: string[];
  rejected?: Rejected;
  /** Claims that are allocated for other nodes. */
  unavailable?: string[];
  explanation?: { line: string; requests: Request[]; unusablePools?: { driver: string; pool: string; reason: string }[] };
}

/** Nodes on which a pod has no place, those with the same reason together. */
export interface Places {
  nodeCount?: number;
  groups?: Group[];
  groupsLeftOut?: number;
}

/** The pods that are placed together with the pod, or not at all. */
export interface Gang {
  group: string;
  minCount: number;
  pods: number;
  placed: number;
  fits: boolean;
  reason?: string;
  /** Pods that would have to leave first. */
  mustGo?: string[];
  members?: { pod: string; placed: boolean; node?: string; reason?: string }[];
  /** The pod that has no place beside the others. */
  leftOut?: Places & { pod: string; reason: string };
}

export interface Report extends Places {
  pod: string;
  error?: string;
  node?: string;
  fits?: boolean;
  hidden?: string[];
  rejected?: Rejected;
  advice?: string;
  expected?: unknown;
  gang?: Gang;
  /** What keeps it from being bound, or from starting on its node. */
  problems?: string[];
  /** The quota that rejects it or its claims. */
  quota?: string;
  wouldGoTo?: { node: string };
  fitting?: { count: number; nodes: string[] };
}

/** On how many nodes it can go now: on none while something besides the nodes holds it back. */
export function fitting(report: Report): number {
  const { fits, quota, problems = [], gang } = report;
  const held = fits === false || quota !== undefined || problems.length > 0 || gang?.fits === false;
  return held ? 0 : (report.fitting?.count ?? 0);
}

const CHECKS: Record<string, string> = {
  seen: "published",
  class: "in the class",
  selector: "match the selector",
  node: "reachable from the node",
  taints: "without a taint",
  inUse: "not in use",
  capacity: "with enough capacity",
  counters: "with enough counters",
  constraint: "together under the constraint",
};

/** What a check asks, in words. */
export function check(stage: Stage): string {
  return CHECKS[stage.kind] ?? stage.kind;
}
