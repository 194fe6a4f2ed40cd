//! Holds the bindings that `wit-bindgen` generates from `wit/`: every import, and one module for each export. A
//! component's world is the union of the worlds that its macros export, without the imports that it does not call.

#![allow(missing_docs, reason = "generated: the documentation is in wit/")]
#![allow(unsafe_code, reason = "generated: the canonical ABI")]
#![allow(clippy::allow_attributes_without_reason, reason = "generated")]

/// All imports, and the export `dispatch`.
pub mod worker {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package guild:plugin-sdk;

            world plans {
                import guild:worker/log@0.1.0;
                import guild:worker/memory@0.1.0;
                import guild:worker/files@0.1.0;
                import guild:worker/web@0.1.0;
                import guild:worker/job-tools@0.1.0;
                import guild:worker/status@0.1.0;
                import guild:worker/agent@0.1.0;
                import guild:worker/hall@0.1.0;
                import guild:worker/manager@0.1.0;
                export guild:worker/dispatch@0.1.0;
            }
        ",
        generate_all,
        additional_derives: [Clone, PartialEq],
        additional_derives_ignore: ["session"],
        pub_export_macro: true,
    });
}

/// The export `run`.
pub mod runner {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package guild:plugin-sdk;

            world runs {
                export guild:worker/run@0.1.0;
            }
        ",
        with: { "guild:worker/types@0.1.0": super::worker::guild::worker::types },
        pub_export_macro: true,
        export_macro_name: "export_run",
    });
}

/// The export `toolbox`.
#[cfg(feature = "toolbox")]
pub mod tools {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package guild:plugin-sdk;

            world offers {
                export guild:worker/toolbox@0.1.0;
            }
        ",
        with: { "guild:worker/types@0.1.0": super::worker::guild::worker::types },
        additional_derives: [Clone, PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_tools",
    });
}
