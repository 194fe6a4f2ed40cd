//! Implements the hall: the user's projects, the commissions that workers carry out on them, and the meetings in which
//! a user talks with a worker (REQ-WKR-1 to REQ-WKR-28).
//!
//! This crate does not depend on components or HTTP. A commission is a record; each attempt at it is a job of a member,
//! which the roster carries out.
//!
//! Each subject has a folder and a type, and uses the subjects before it: [`documents`], [`meetings`], [`commissions`],
//! [`projects`]. Below them, `records` stores commissions and meetings, `core` has the shared state, and `home` and
//! `files` access the disk. Above them, [`hall`] combines the subjects.

mod blocking;
pub mod commissions;
mod core;
pub mod documents;
mod files;
pub mod hall;
mod home;
pub mod manager;
pub mod meetings;
pub mod memory;
mod offline;
pub mod operations;
pub mod projects;
mod records;
pub mod tools;

pub use commissions::{Commissions, commission};
pub use core::{
    requester::Requester,
    token_scope::with_token,
    workers::{Activity, Attempt, NO_RESULT, NoSession, NotBegun, Outcome, Worker, WorkerJobs, Workers},
};
pub use documents::{Documents, artifact};
pub use hall::{BRIEF, Hall, HallOptions};
pub use home::{
    Home, PACKAGES, PID, SETTINGS, SOCKET, host_of,
    project_list::{Permit, check_name, find_git},
    settings::Settings,
};
pub use meetings::{Meetings, meeting};
pub use offline::{
    look::{Looked, look_at},
    register::{NewProject, Registered, add_project, list_commissions, list_meetings, list_projects, remove_project},
    tidy::{Tidied, Tidying, tidy},
};
pub use projects::{Projects, inspect as git};
