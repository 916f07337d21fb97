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
  explanation?: { line: string; requests: Request[]; unusablePools?: { driver: string; pool: string; reason: string }[] };
}

export interface Report {
  pod: string;
  error?: string;
  node?: string;
  fits?: boolean;
  hidden?: string[];
  rejected?: Rejected;
  advice?: string;
  expected?: unknown;
  gang?: unknown;
  wouldGoTo?: { node: string };
  nodeCount?: number;
  fitting?: { count: number; nodes: string[] };
  groups?: Group[];
  groupsLeftOut?: number;
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
