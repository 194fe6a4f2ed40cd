//! Generates the host's bindings from `wit/`.
//!
//! One world serves all members: it imports the whole of `guild:worker`, and a component's exports are looked up by
//! interface ([`super::exports`]).

wasmtime::component::bindgen!({
    path: "../../wit",
    inline: "
        package guild:host;
        world all {
            include guild:worker/autonomous-worker@0.1.0;
            include guild:worker/toolbox-plugin@0.1.0;
        }
    ",
    world: "guild:host/all",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "guild:worker/agent.session": crate::versions::component_session::SessionState,
    },
});
