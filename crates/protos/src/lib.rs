//! gRPC services of the kubelet plugin world: DRA, registration, health, PodResources, CRI.

#![forbid(unsafe_code)]
