//! The GPU example driver (gpu.example.com), built on the allot-driver SDK.

#![forbid(unsafe_code)]
