//! The controllers against the real API server code, in process.

mod e2e {
    mod claims;
    mod collect;
    mod eviction;
    mod harness;
    mod policies;
    mod roles;
    mod rules;
    mod untainted;
    mod workloads;
}
