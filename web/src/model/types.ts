// Objects of the API as the server passes them on, as far as the page reads them. Every field may be missing: the
// objects come from drivers and users.

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string | null;
}

export interface Taint {
  key: string;
  value?: string;
  effect: string;
  timeAdded?: string;
}

export type Attribute = Record<string, unknown>;

export interface Consumption {
  counterSet: string;
  counters?: Record<string, { value: string }>;
}

export interface RawDevice {
  name: string;
  attributes?: Record<string, Attribute>;
  capacity?: Record<string, { value: string }>;
  taints?: Taint[];
  nodeName?: string;
  allNodes?: boolean;
  consumesCounters?: Consumption[];
  allowMultipleAllocations?: boolean;
  /** Before v1beta2 the content was in a field of its own. */
  basic?: Omit<RawDevice, "name" | "basic">;
}

export interface RawSlice {
  metadata: Metadata;
  spec: {
    driver: string;
    pool: { name: string; generation?: number; resourceSliceCount?: number };
    nodeName?: string;
    allNodes?: boolean;
    nodeSelector?: unknown;
    devices?: RawDevice[];
    sharedCounters?: { name: string; counters?: Record<string, { value: string }> }[];
  };
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Result {
  request: string;
  driver: string;
  pool: string;
  device: string;
  adminAccess?: boolean;
  consumedCapacity?: Record<string, string>;
}

export interface RawClaim {
  metadata: Metadata & { ownerReferences?: { kind: string; name: string }[] };
  spec?: { devices?: { requests?: unknown[] } };
  status?: {
    allocation?: { devices?: { results?: Result[] }; allocationTimestamp?: string };
    reservedFor?: { resource: string; name: string; uid?: string; apiGroup?: string }[];
    devices?: { driver: string; pool: string; device: string; conditions?: Condition[] }[];
  };
  /** When parts of the status were last written, as the API server tracked it. */
  written?: { allocation?: string | null; reservedFor?: string | null; devices?: string | null };
}

export interface RawRule {
  metadata: Metadata;
  spec?: { deviceSelector?: { driver?: string; pool?: string; device?: string }; taint?: Taint };
}

export interface RawPod {
  metadata: Metadata;
  spec: {
    nodeName?: string | null;
    schedulerName?: string | null;
    resourceClaims?: { name: string; resourceClaimName?: string; resourceClaimTemplateName?: string }[] | null;
  };
  status: {
    phase?: string | null;
    conditions?: Condition[] | null;
    startTime?: string | null;
    extendedResourceClaimStatus?: unknown;
  };
  containers?: {
    name: string;
    startedAt?: string | null;
    resources?: { name: string; resources?: { resourceID: string; health?: string }[] }[] | null;
  }[];
}

/** An array, whatever was sent. */
export function list<T>(value: readonly T[] | null | undefined): readonly T[] {
  return Array.isArray(value) ? value : [];
}

/** The entries of an object, whatever was sent. */
export function entries<T>(value: Record<string, T> | null | undefined): [string, T][] {
  return value !== null && typeof value === "object" ? Object.entries(value) : [];
}
