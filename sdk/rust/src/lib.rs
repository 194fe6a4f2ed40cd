//! Guild Hall workers and toolboxes in Rust.
//!
//! A worker is a type that implements [`Worker`] (the host runs its sessions) or also [`AutonomousWorker`] (it carries
//! its jobs out itself), and one line that exports it:
//!
//! ```
//! use guild_plugin_sdk::{Activation, Plan, Refusal, Worker, export_worker, prompt, session_plan};
//!
//! struct Reviewer;
//!
//! impl Worker for Reviewer {
//!     fn activate(activation: Activation) -> Result<Plan, Refusal> {
//!         let request = guild_plugin_sdk::commission(&activation)?;
//!         let system_prompt = prompt::system_prompt(&activation, &request.task);
//!         Ok(Plan::Session(session_plan(&activation, &request.task, system_prompt, &["Read", "Grep", "Glob"])))
//!     }
//! }
//!
//! export_worker!(Reviewer);
//! ```
//!
//! Tools, for agent sessions and for callers, are in [`toolbox`] (the feature of that name). A component that is both exports
//! both.
//!
//! The types and functions are those of the WIT package `guild:worker`, under the same names; its texts say what each
//! does. A component imports only what its code calls, so a worker that calls nothing asks for nothing.

pub mod bindings;
pub mod config;
mod executor;
#[cfg(not(target_family = "wasm"))]
mod native;
pub mod prompt;
mod session;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
#[cfg(feature = "toolbox")]
pub mod toolbox;

pub use bindings::worker::guild::worker::types;
#[cfg(target_family = "wasm")]
pub use bindings::worker::guild::worker::{agent, files, hall, job_tools, log, manager, memory, status, web};
pub use executor::block_on;
#[cfg(not(target_family = "wasm"))]
pub use native::{agent, files, hall, job_tools, log, manager, memory, status, web};
pub use session::{Session, explain, outcome, session_options};
pub use types::{
    Activation, Bounds, Context, Decision, HostError, MemoryNote, Plan, Refusal, Request, Scope, SessionPlan,
    ToolDefinition,
};

/// A worker: it checks dispatches and plans them (`guild:worker/dispatch`).
pub trait Worker {
    /// Checks a dispatch, and plans its job. No job exists yet.
    fn activate(activation: Activation) -> Result<Plan, Refusal>;
}

/// A worker that carries its jobs out itself (`guild:worker/run`). Its [`Worker::activate`] answers [`Plan::OwnRun`].
///
/// Its sessions are [`Session`]s: futures, of which many can be under way at once.
///
/// ```
/// # use guild_plugin_sdk::{
/// #     Activation, AutonomousWorker, Plan, Refusal, Session, Worker, explain, outcome, session_options,
/// # };
/// # struct Asker;
/// # impl Worker for Asker {
/// #     fn activate(activation: Activation) -> Result<Plan, Refusal> {
/// #         Ok(Plan::OwnRun(activation.bounds))
/// #     }
/// # }
/// use futures_util::future::join_all;
///
/// impl AutonomousWorker for Asker {
///     async fn run(activation: Activation) -> Result<String, String> {
///         let ask = async |question: &str| {
///             let session = Session::start(&session_options(&activation, question, &["Read", "Grep", "Glob"]));
///             outcome(session.map_err(explain)?.finish(async |_| Err("no such tool".to_owned())).await)
///         };
///         let answers = join_all([ask("What is it?"), ask("What is it for?")]).await;
///         answers.into_iter().collect()
///     }
/// }
/// # guild_plugin_sdk::export_autonomous_worker!(Asker);
/// ```
pub trait AutonomousWorker: Worker {
    /// Carries the job out. The text is the result; an empty one stands for a result that was submitted before.
    ///
    /// It is written as `async fn run(activation: Activation) -> Result<String, String>`, and run by [`block_on`].
    fn run(activation: Activation) -> impl Future<Output = Result<String, String>>;
}

/// The plan of a meeting's session; `None` in a commission. Call it before [`commission`] in a worker that also holds
/// meetings.
pub fn meeting_plan(activation: &Activation, wanted: &[&str]) -> Option<Plan> {
    let Context::Meeting(meeting) = &activation.context else { return None };
    let system_prompt = prompt::background(activation, &format!("The agenda of a meeting: {}", meeting.agenda));
    Some(Plan::Session(session_plan(activation, &meeting.agenda, system_prompt, wanted)))
}

/// The request, if the worker is activated for a commission. In a meeting it refuses; see [`meeting_plan`].
pub fn commission(activation: &Activation) -> Result<&Request, Refusal> {
    match &activation.context {
        Context::Commission(commission) => Ok(&commission.request),
        Context::Meeting(_) => Err(Refusal::Unsupported("this worker takes commissions, not meetings".to_owned())),
    }
}

/// A session with those of `wanted` built-in tools that were granted, all toolbox tools, and the job's own bounds.
/// Narrow it by changing fields of the plan.
pub fn session_plan(activation: &Activation, prompt: &str, system_prompt: String, wanted: &[&str]) -> SessionPlan {
    SessionPlan {
        system_prompt,
        prompt: prompt.to_owned(),
        tools: session::granted(activation, wanted),
        toolbox_tools: activation.toolbox_tools.iter().map(|tool| tool.name.clone()).collect(),
        model: None,
        bounds: activation.bounds,
    }
}

/// The smaller value of each bound; a bound that only one side sets applies.
pub fn smaller(a: Bounds, b: Bounds) -> Bounds {
    fn min<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b < a { b } else { a }),
            (a, b) => a.or(b),
        }
    }
    Bounds {
        max_turns: min(a.max_turns, b.max_turns),
        max_budget_usd: min(a.max_budget_usd, b.max_budget_usd),
        deadline_seconds: min(a.deadline_seconds, b.deadline_seconds),
    }
}

/// Exports a type that implements [`Worker`] as this component's world `worker`.
///
/// On another target than WebAssembly it only checks the type, so that a worker's tests run anywhere: a native linker
/// does not take the names of a component's exports.
#[macro_export]
macro_rules! export_worker {
    ($worker:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::bindings::worker::exports::guild::worker::dispatch::Guest for Component {
                fn activate(activation: $crate::Activation) -> ::core::result::Result<$crate::Plan, $crate::Refusal> {
                    <$worker as $crate::Worker>::activate(activation)
                }
            }

    $crate::bindings::worker::export!(Component with_types_in $crate::bindings::worker);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: fn($crate::Activation) -> ::core::result::Result<$crate::Plan, $crate::Refusal> =
            <$worker as $crate::Worker>::activate;
    };
}

/// Exports a type that implements [`AutonomousWorker`] as this component's world `autonomous-worker`, in the same way
/// as [`export_worker!`].
#[macro_export]
macro_rules! export_autonomous_worker {
    ($worker:ty) => {
        $crate::export_worker!($worker);

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::bindings::runner::exports::guild::worker::run::Guest for Component {
                fn run(
                    activation: $crate::Activation,
                ) -> ::core::result::Result<::std::string::String, ::std::string::String> {
                    $crate::block_on(<$worker as $crate::AutonomousWorker>::run(activation))
                }
            }

    $crate::bindings::runner::export_run!(Component with_types_in $crate::bindings::runner);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: () = {
            const fn is_autonomous<W: $crate::AutonomousWorker>() {}
            is_autonomous::<$worker>();
        };
    };
}

/// Exports a type that implements [`Toolbox`](toolbox::Toolbox) as this component's interface `toolbox`, in the same
/// way as [`export_worker!`]. Alone it makes the world `toolbox-plugin`, and beside [`export_worker!`] the world
/// `worker-toolbox`.
#[cfg(feature = "toolbox")]
#[macro_export]
macro_rules! export_toolbox {
    ($toolbox:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            impl $crate::bindings::tools::exports::guild::worker::toolbox::Guest for Component {
                fn list_tools() -> ::std::vec::Vec<$crate::ToolDefinition> {
                    $crate::toolbox::list::<$toolbox>()
                }

                fn call_tool(
                    name: ::std::string::String,
                    input: ::std::string::String,
                ) -> ::core::result::Result<::std::string::String, $crate::toolbox::ToolError> {
                    $crate::toolbox::call::<$toolbox>(&name, &input)
                }
            }

    $crate::bindings::tools::export_tools!(Component with_types_in $crate::bindings::tools);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: fn() -> ::std::vec::Vec<$crate::ToolDefinition> = $crate::toolbox::list::<$toolbox>;
    };
}

/// The tutorial's examples are compiled with the crate's own.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorials/rust.md")]
struct Tutorial;
