//! The server from outside: raw HTTP over sockets, members and jobs in temporary directories.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "clippy allows these in tests, but not in what tests share"
)]

mod discovery;
mod hall;
mod hall_port;
mod hall_routes;
mod harness;
mod http;
mod listen;
mod rpc;
mod takeover;
mod worker;
