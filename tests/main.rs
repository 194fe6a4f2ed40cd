//! Tests that cross crates: what callers, operators, plugin authors and reviewers see from outside.
//!
//! They are one program, since each would link the whole host. They belong to the package `guild`, whose
//! binary they start.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "clippy allows these in tests, but not in what tests share"
)]

mod approval;
mod attachments;
mod audit;
mod auth;
mod author_errors;
mod authors;
mod backup;
mod bridge;
mod browser;
mod chaos;
mod claude;
mod cli;
mod client;
mod cluster;
mod commission_commands;
mod commissions;
mod crash;
mod defaults;
mod digest;
mod doctor;
mod documents;
mod events;
mod grants;
mod guests;
mod hall_operator;
mod harness;
mod hostile;
mod isolation;
mod job_commands;
mod jobs;
mod large_component;
mod limits;
mod logging;
mod manager;
mod manifests;
mod mcp;
mod mcp_callers;
mod mcp_roster;
mod mcp_stdio;
mod mcp_tasks;
mod meeting_commands;
mod meetings;
mod member_states;
mod memory;
mod monitoring;
mod operations;
mod operator;
mod options;
mod packages;
mod page;
mod page_hall;
mod page_usage;
mod probe;
mod process;
mod project_commands;
mod pull_requests;
mod reference;
mod registry;
mod reload;
mod repeats;
mod resume;
mod review;
mod roster;
mod sandbox;
mod schema;
mod screenshots;
mod self_signed;
mod service_manager;
mod sessions;
mod soak;
mod sources;
mod spend;
mod support;
mod suspects;
mod template;
mod textkit;
mod tool_calls;
mod toolboxes;
mod traces;
mod truth;
mod wasi;
mod webhooks;
