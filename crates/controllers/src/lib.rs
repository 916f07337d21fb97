//! Control loops: claims, taint eviction, workloads, garbage collection and more.

#![forbid(unsafe_code)]
