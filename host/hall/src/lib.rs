//! The hall: projects of the user's, the commissions that workers carry out on them, and the meetings in which a user talks
//! with a worker (REQ-WKR-1 to REQ-WKR-28).
//!
//! This crate knows neither components nor HTTP. A commission is a record; each attempt of it is a job of a member, which
//! the roster carries out.

mod blocking;
pub mod commissions;
mod core;
pub mod documents;
mod files;
mod frontmatter;
pub mod hall;
mod home;
mod look;
pub mod manager;
pub mod meetings;
pub mod memory;
pub mod operations;
pub mod page;
mod project_list;
pub mod projects;
mod protected;
mod records;
mod register;
mod requester;
mod settings;
mod text;
mod tidy;
mod token_scope;
pub mod tools;
pub mod workers;

/// What can be asked of a project's git, and what is answered.
pub mod git {
    pub use guild_git::{
        BranchOptions, BranchView, CommitView, DiffOptions, LogOptions, ShowOptions, ShowView, ShownDiff, StatusView,
    };
}

pub use commissions::{Commissions, commission};
pub use documents::{Documents, artifact};
pub use hall::{Hall, HallOptions};
pub use home::{Home, PACKAGES, PID, SETTINGS, SOCKET, host_of};
pub use look::{Looked, look_at};
pub use meetings::{Meetings, meeting};
pub use project_list::{Permit, check_name, find_git};
pub use projects::Projects;
pub use register::{
    NewProject, Registered, add_project, list_commissions, list_meetings, list_projects, remove_project,
};
pub use requester::Requester;
pub use settings::Settings;
pub use tidy::{Tidied, Tidying, tidy};
pub use token_scope::with_token;
pub use workers::{Activity, Attempt, NO_RESULT, NoSession, NotBegun, Outcome, Worker, WorkerJobs, Workers};
