//! Revision log with group commit, watch and compaction.

#![forbid(unsafe_code)]
