//! Replaces the host's functions on targets other than WebAssembly, where a worker's tests run. Each function returns
//! `unavailable` with a text that names it; logged lines go to standard error. The types are those of the bindings.

use std::fmt;

use crate::{HostError, bindings::worker::guild::worker};

fn no_host<T>(function: fmt::Arguments<'_>) -> Result<T, HostError> {
    let why = format!(
        "`{function}` is a function of the host, which a native test does not have: keep what you test apart from it, or try \
         the component with `guild run`"
    );
    Err(HostError::Unavailable(why))
}

/// Defines functions with their parameters in WIT, and the types that they return.
macro_rules! functions {
    ($interface:ident: $($name:ident($($parameter:ty),*) -> $answer:ty;)*) => {$(
        #[doc = "Answers `unavailable`."]
        pub fn $name($(_: $parameter),*) -> Result<$answer, HostError> {
            no_host(format_args!("{}::{}", stringify!($interface), stringify!($name)))
        }
    )*};
}

/// Starts agent sessions.
pub mod agent {
    use super::no_host;
    pub use super::worker::agent::*;

    functions! { agent: query(&Options) -> Session; }

    /// Waits for nothing: natively there is no session.
    pub fn wait(_: &[&Session]) -> Vec<u32> {
        Vec::new()
    }
}

/// Reads files under the granted roots.
pub mod files {
    use super::no_host;
    pub use super::worker::files::*;

    functions! { files:
        read(&str, u32, u32) -> String;
        grep(&str, Option<&str>, u32) -> Vec<Passage>;
        glob(&str, u32) -> Vec<String>;
    }
}

/// Reads the hall that the host serves.
pub mod hall {
    use super::no_host;
    pub use super::worker::hall::*;

    functions! { hall:
        workers() -> Vec<Worker>;
        commissions(Option<&str>) -> Vec<CommissionInfo>;
        meetings(Option<&str>) -> Vec<MeetingInfo>;
        commission(&str) -> Option<CommissionInfo>;
    }
}

/// Calls the internal tools.
pub mod job_tools {
    use super::no_host;
    pub use super::worker::job_tools::*;

    functions! { job_tools:
        update_summary(&str) -> ();
        record_decision(&Decision) -> ();
        log_question(&str) -> ();
        write_artifact(&str, &[u8]) -> ();
        submit_result(&str) -> ();
    }
}

/// Writes lines to the log.
pub mod log {
    use std::io::Write as _;

    pub use super::worker::log::*;

    /// Writes a line to standard error.
    pub fn write(level: Level, message: &str) {
        let _ = writeln!(std::io::stderr(), "{level:?}: {message}");
    }
}

/// Calls the manager's tools.
pub mod manager {
    use super::no_host;
    pub use super::worker::manager::*;

    functions! { manager:
        create_commission(&NewCommission) -> Dispatched;
        dispatch_commission(&str) -> Dispatched;
        cancel_commission(&str) -> ();
        abandon_commission(&str, &str) -> ();
        add_commission_note(&str, &str) -> ();
        create_pr(&str, &str) -> String;
        initiate_meeting(&str, &str, &[String]) -> String;
    }
}

/// Reads and writes the member's memory.
pub mod memory {
    use super::no_host;
    pub use super::worker::memory::*;

    functions! { memory:
        store(Scope, &str, &str) -> ();
        load(Scope, &str) -> Option<String>;
        list(Scope) -> Vec<Entry>;
        delete(Scope, &str) -> bool;
    }
}

/// Reads the job's own record.
pub mod status {
    use super::no_host;
    pub use super::worker::status::*;

    functions! { status: current() -> Snapshot; }
}

/// Reaches the web through the host.
pub mod web {
    use super::no_host;
    pub use super::worker::web::*;

    functions! { web:
        search(&str, u32) -> Vec<Hit>;
        fetch(&str) -> String;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{Scope, Session, block_on};

    #[test]
    fn a_function_of_the_host_fails_with_a_text_that_names_it() {
        let why = |error: HostError| match error {
            HostError::Unavailable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(files::glob("*", 1).unwrap_err()).starts_with("`files::glob` is a function of the host"));
        assert!(why(memory::load(Scope::Worker, "a").unwrap_err()).starts_with("`memory::load`"));
        assert!(why(job_tools::submit_result("a").unwrap_err()).starts_with("`job_tools::submit_result`"));
        log::write(log::Level::Info, "seen");
        let options = agent::Options {
            system_prompt: String::new(),
            prompt: String::new(),
            tools: Vec::new(),
            job_tools: false,
            own_tools: Vec::new(),
            model: None,
            bounds: crate::Bounds { max_turns: None, max_budget_usd: None, deadline_seconds: None },
        };
        let session = block_on(async { Session::start(&options) });
        assert!(why(session.err().unwrap()).starts_with("`agent::query`"));
    }

    /// One that is not here would be that of the bindings, which ends the process.
    #[test]
    fn every_function_that_a_component_can_import_is_here() {
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        let own = include_str!("native.rs");
        for interface in ["agent", "files", "hall", "job-tools", "log", "manager", "memory", "status", "web"] {
            let text = fs::read_to_string(wit.join(format!("{interface}.wit"))).unwrap();
            // Methods of a session are indented deeper: natively there is none to call them on.
            let functions = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": func("));
            let names: Vec<_> = functions.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
            assert!(!names.is_empty(), "{interface}");
            for name in names {
                let name = format!("{}(", name.trim_start_matches('%').replace('-', "_"));
                assert!(
                    own.contains(&format!("        {name}")) || own.contains(&format!(" {name}")),
                    "{interface}: {name}"
                );
            }
        }
    }
}
