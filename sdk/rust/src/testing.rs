//! Helps native tests of a worker, with plain `cargo test`: an activation, and a host that the test makes up.
//!
//! ```
//! use guild_plugin_sdk::{Activation, HostError, files, testing};
//!
//! struct OneFile;
//!
//! impl testing::Host for OneFile {
//!     fn files_glob(&self, _: &str, _: u32) -> Result<Vec<String>, HostError> {
//!         Ok(vec!["docs/a.md".to_owned()])
//!     }
//! }
//!
//! let activation = Activation::for_test().with_task("Count the files");
//! let paths = testing::with_host(OneFile, || files::glob("**", 10));
//! assert_eq!(paths.ok(), Some(vec!["docs/a.md".to_owned()]));
//! ```
//!
//! `guild test` tests the component itself, in the sandbox of a host.

pub use crate::native::{Host, with_host};
use crate::{
    Activation, Bounds, Context, Request, Scope,
    types::{Commission, JobId},
};

/// The job of an activation for tests.
const JOB: &str = "01900000-0000-7000-8000-000000000000";

impl Activation {
    /// An activation for native tests: a dispatch of the task `test` with the configuration `{}`, to a worker without a
    /// posture and memories, which was granted all built-in tools. Change its fields as the test needs it.
    pub fn for_test() -> Self {
        let [description, task] = ["test"; 2].map(str::to_owned);
        let request = Request { description, task, config: "{}".to_owned() };
        Self {
            context: Context::Commission(Commission { job: JobId::from(JOB), request, attempt: None }),
            project: None,
            posture: String::new(),
            scopes: vec![Scope::Worker],
            memories: Vec::new(),
            granted_tools: ["Read", "Grep", "Glob", "WebSearch", "WebFetch"].map(str::to_owned).into(),
            toolbox_tools: Vec::new(),
            bounds: Bounds { max_turns: Some(150), max_budget_usd: Some(4.0), deadline_seconds: Some(3600) },
        }
    }

    /// The same activation with this task.
    #[must_use]
    pub fn with_task(mut self, task: &str) -> Self {
        if let Context::Commission(commission) = &mut self.context {
            task.clone_into(&mut commission.request.task);
        }
        self
    }

    /// The same activation with this configuration: a JSON object.
    #[must_use]
    pub fn with_config(mut self, config: &str) -> Self {
        if let Context::Commission(commission) = &mut self.context {
            config.clone_into(&mut commission.request.config);
        }
        self
    }
}
