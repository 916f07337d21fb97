import { list } from "./types";
import type { RawClaim } from "./types";

/** Where a claim is in its life. */
export type Stage = "pending" | "allocated" | "reserved" | "deleting";

/** A claim, with what the page has seen of its life. */
export class Claim {
  /** When the page saw it change from one stage to another. */
  readonly seen: { stage: Stage; at: number }[] = [];

  constructor(
    readonly key: string,
    public raw: RawClaim,
  ) {}

  get stage(): Stage {
    const status = this.raw.status;
    if (this.raw.metadata.deletionTimestamp) return "deleting";
    if (!status?.allocation) return "pending";
    return list(status.reservedFor).length > 0 ? "reserved" : "allocated";
  }

  get created(): number {
    return time(this.raw.metadata.creationTimestamp);
  }

  /** When it got its devices: as the scheduler wrote it, or else when the field was written. 0: not known. */
  get allocatedAt(): number {
    const allocation = this.raw.status?.allocation;
    if (!allocation) return 0;
    return time(allocation.allocationTimestamp) || time(this.raw.written?.allocation) || this.sawAt("allocated");
  }

  /** When it last had a consumer; 0 if not known. */
  get reservedAt(): number {
    if (list(this.raw.status?.reservedFor).length === 0) return 0;
    return time(this.raw.written?.reservedFor) || this.sawAt("reserved") || this.allocatedAt;
  }

  /** Since when it is allocated without a consumer; 0 if it is not. */
  get leakedSince(): number {
    if (this.stage !== "allocated") return 0;
    // Reserving was the last write before it was removed.
    return this.sawAt("allocated") || time(this.raw.written?.reservedFor) || this.allocatedAt || this.created;
  }

  /** Those for whom it is reserved, as text. */
  get consumers(): string[] {
    return list(this.raw.status?.reservedFor).map((c) => (c.resource === "pods" ? c.name : `${c.resource}/${c.name}`));
  }

  private sawAt(stage: Stage): number {
    // The first one is the state when the page was opened.
    for (let at = this.seen.length - 1; at > 0; at--) {
      const seen = this.seen[at];
      if (seen?.stage === stage) return seen.at;
    }
    return 0;
  }
}

/** Milliseconds of a time of the API; 0 where there is none. */
export function time(text: string | null | undefined): number {
  const found = text ? Date.parse(text) : 0;
  return Number.isFinite(found) ? found : 0;
}
