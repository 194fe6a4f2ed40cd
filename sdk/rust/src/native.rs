//! Replaces the host's functions on targets other than WebAssembly, where a worker's tests run. Each function asks the
//! [`Host`] of the thread; without one it returns `unavailable` with a text that names it. The types are those of the
//! bindings.

use std::{cell::RefCell, fmt, io::Write as _, rc::Rc};

use crate::{
    Decision, HostError, Scope,
    bindings::worker::guild::worker::{
        self,
        files::Passage,
        hall::{CommissionInfo, MeetingInfo, Worker},
        log::Level,
        manager::{Dispatched, NewCommission},
        memory::Entry,
        status::Snapshot,
        web::Hit,
    },
};

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Runs a native test with this host: the functions of the host that are called meanwhile, on this thread, ask it.
pub fn with_host<T>(host: impl Host + 'static, test: impl FnOnce() -> T) -> T {
    /// Puts the host of an outer test back, also after a panic.
    struct Restore(Option<Rc<dyn Host>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            HOST.set(self.0.take());
        }
    }

    let _restore = Restore(HOST.replace(Some(Rc::new(host))));
    test()
}

/// Asks the host of the thread.
fn ask<T>(answer: impl FnOnce(&dyn Host) -> T) -> T {
    let host = HOST.with_borrow(Clone::clone);
    answer(host.as_deref().unwrap_or(&NoHost))
}

/// No host: nothing can be reached.
struct NoHost;

impl Host for NoHost {}

fn no_host<T>(function: fmt::Arguments<'_>) -> Result<T, HostError> {
    let why = format!(
        "`{function}` is a function of the host, which this native test does not have: give it one with \
         `testing::with_host`, or try the component with `guild test`"
    );
    Err(HostError::Unavailable(why))
}

/// Defines the functions of each interface, by their names in WIT and in [`Host`].
macro_rules! functions {
    ($($(#[$text:meta])* $interface:ident {
        $($name:ident as $method:ident($($parameter:ident: $type:ty),*) -> $answer:ty;)*
    })*) => {
        /// The host of a native test. Each method is the function of the host of that name, and by default answers
        /// `unavailable`: implement those that the test needs.
        pub trait Host {
            $($(
                #[doc = concat!("`", stringify!($interface), "::", stringify!($name), "`.")]
                fn $method(&self, $($parameter: $type),*) -> Result<$answer, HostError> {
                    let _ = ($($parameter,)*);
                    no_host(format_args!("{}::{}", stringify!($interface), stringify!($name)))
                }
            )*)*

            /// `log::write`. By default it writes to standard error.
            fn log_write(&self, level: Level, message: &str) {
                let _ = writeln!(std::io::stderr(), "{level:?}: {message}");
            }
        }

        $(
            $(#[$text])*
            pub mod $interface {
                use super::ask;
                pub use super::worker::$interface::*;

                $(
                    #[doc = "Asks the host of the native test."]
                    pub fn $name($($parameter: $type),*) -> Result<$answer, HostError> {
                        ask(|host| host.$method($($parameter),*))
                    }
                )*
            }
        )*
    };
}

functions! {
    /// Reads files under the granted roots.
    files {
        read as files_read(path: &str, offset: u32, limit: u32) -> String;
        grep as files_grep(pattern: &str, glob: Option<&str>, limit: u32) -> Vec<Passage>;
        glob as files_glob(pattern: &str, limit: u32) -> Vec<String>;
    }

    /// Reads the hall that the host serves.
    hall {
        workers as hall_workers() -> Vec<Worker>;
        commissions as hall_commissions(project: Option<&str>) -> Vec<CommissionInfo>;
        meetings as hall_meetings(project: Option<&str>) -> Vec<MeetingInfo>;
        commission as hall_commission(id: &str) -> Option<CommissionInfo>;
    }

    /// Calls the internal tools.
    job_tools {
        update_summary as update_summary(summary: &str) -> ();
        record_decision as record_decision(decision: &Decision) -> ();
        log_question as log_question(question: &str) -> ();
        write_artifact as write_artifact(path: &str, contents: &[u8]) -> ();
        submit_result as submit_result(output: &str) -> ();
    }

    /// Calls the manager's tools.
    manager {
        create_commission as create_commission(new: &NewCommission) -> Dispatched;
        dispatch_commission as dispatch_commission(id: &str) -> Dispatched;
        cancel_commission as cancel_commission(id: &str) -> ();
        abandon_commission as abandon_commission(id: &str, reason: &str) -> ();
        add_commission_note as add_commission_note(id: &str, content: &str) -> ();
        create_pr as create_pr(title: &str, body: &str) -> String;
        initiate_meeting as initiate_meeting(worker: &str, reason: &str, artifacts: &[String]) -> String;
    }

    /// Reads and writes the member's memory.
    memory {
        store as memory_store(scope: Scope, key: &str, content: &str) -> ();
        load as memory_load(scope: Scope, key: &str) -> Option<String>;
        list as memory_list(scope: Scope) -> Vec<Entry>;
        delete as memory_delete(scope: Scope, key: &str) -> bool;
    }

    /// Reads the job's own record.
    status {
        current as status_current() -> Snapshot;
    }

    /// Reaches the web through the host.
    web {
        search as web_search(query: &str, limit: u32) -> Vec<Hit>;
        fetch as web_fetch(url: &str) -> String;
    }
}

/// Starts agent sessions, which a native test does not have.
pub mod agent {
    use super::no_host;
    pub use super::worker::agent::*;

    /// Answers `unavailable`.
    pub fn query(_: &Options) -> Result<Session, HostError> {
        no_host(format_args!("agent::query"))
    }

    /// Waits for nothing: natively there is no session.
    pub fn wait(_: &[&Session]) -> Vec<u32> {
        Vec::new()
    }
}

/// Writes lines to the log.
pub mod log {
    pub use super::worker::log::*;

    /// Tells the host of the native test.
    pub fn write(level: Level, message: &str) {
        super::ask(|host| host.log_write(level, message));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{Scope, Session, block_on};

    /// A host with one page, which counts what is asked of it.
    #[derive(Clone, Default)]
    struct OnePage(Rc<RefCell<Vec<String>>>);

    impl Host for OnePage {
        fn web_fetch(&self, url: &str) -> Result<String, HostError> {
            self.0.borrow_mut().push(url.to_owned());
            Ok("the page".to_owned())
        }
    }

    #[test]
    fn a_test_gives_its_thread_a_host_and_takes_it_back() {
        let host = OnePage::default();
        let page = with_host(host.clone(), || {
            assert!(files::glob("*", 1).is_err());
            web::fetch("https://example.org/")
        });
        assert_eq!(
            (page.ok().as_deref(), host.0.take().as_slice()),
            (Some("the page"), &["https://example.org/".to_owned()][..])
        );
        assert!(web::fetch("https://example.org/").is_err());
    }

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
        let by_hand = ["query", "wait", "write"];
        for interface in ["agent", "files", "hall", "job-tools", "log", "manager", "memory", "status", "web"] {
            let text = fs::read_to_string(wit.join(format!("{interface}.wit"))).unwrap();
            // Methods of a session are indented deeper: natively there is none to call them on.
            let functions = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": func("));
            let names: Vec<_> = functions.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
            assert!(!names.is_empty(), "{interface}");
            for name in names {
                let name = name.trim_start_matches('%').replace('-', "_");
                let defined = format!("        {name} as ");
                assert!(own.contains(&defined) || by_hand.contains(&name.as_str()), "{interface}: {name}");
            }
        }
    }
}
