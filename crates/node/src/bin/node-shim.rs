//! The container shim as a separate program, for agents that are not part of the `allot` binary, and for tests.

fn main() {
    allot_node::shim::main(std::env::args_os().skip(1))
}
