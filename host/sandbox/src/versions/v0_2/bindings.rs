//! The host's side of `wit/v0_2/`, generated from it.
//!
//! One world serves all members: what it imports is the whole of `guild:worker`, and a component's exports are
//! looked up by interface ([`super::exports`]).

wasmtime::component::bindgen!({
    path: ["../../wit/deps/io", "../../wit/v0_2"],
    inline: "
        package guild:host;
        world all {
            include guild:worker/autonomous-worker@0.2.0;
            include guild:worker/toolbox-plugin@0.2.0;
        }
    ",
    world: "guild:host/all",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
        "guild:worker/agent.session": crate::versions::v0_2::agent::SessionState,
    },
});
