//! The container helper as a program of its own, for agents that are not part of the `allot` binary, and for tests.

fn main() {
    allot_node::shim::main(std::env::args_os().skip(1))
}
