//! The node agent: plugin manager, claim cache, pod loop and container runtimes.
