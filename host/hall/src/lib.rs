//! The hall: projects of the user's, the commissions that workers carry out on them, and the meetings in which a user talks
//! with a worker (REQ-WKR-1 to REQ-WKR-28).
//!
//! This crate knows neither components nor HTTP. A commission is a record; each attempt of it is a job of a member, which
//! the roster carries out.

pub mod artifact;
pub mod commission;
mod files;
mod frontmatter;
pub mod hall;
mod heartbeat;
mod home;
mod look;
pub mod manager;
pub mod meeting;
pub mod memory;
pub mod operations;
mod project;
mod protected;
mod register;
mod requester;
mod settings;
mod store;
mod tidy;
mod token_scope;
pub mod tools;
pub mod view;
pub mod workers;

/// What can be asked of a project's git, and what is answered.
pub mod git {
    pub use guild_git::{
        BranchOptions, BranchView, CommitView, DiffOptions, LogOptions, ShowOptions, ShowView, ShownDiff, StatusView,
    };
}

pub use hall::{Hall, HallOptions};
pub use home::{Home, PACKAGES, PID, SETTINGS, SOCKET, host_of};
pub use look::{Looked, look_at};
pub use project::{Permit, check_name, find_git};
pub use register::{
    NewProject, Registered, add_project, list_commissions, list_meetings, list_projects, remove_project,
};
pub use requester::Requester;
pub use settings::Settings;
pub use tidy::{Tidied, Tidying, tidy};
pub use token_scope::with_token;
pub use workers::{Activity, Attempt, NO_RESULT, NoSession, NotBegun, Outcome, Worker, WorkerJobs, Workers};
