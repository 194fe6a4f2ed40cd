//! The host's side of `wit/`, generated from it.
//!
//! One world serves all members: what it imports is the whole of `guild:worker`, and a component's exports are
//! looked up by interface ([`crate::plugin`]).

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "autonomous-worker",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
        "guild:worker/agent.session": crate::host::agent::SessionState,
    },
});
