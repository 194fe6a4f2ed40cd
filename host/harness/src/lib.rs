//! Tests plugins: a component in the real sandbox, under the limits of a host, with everything around it scripted.
//!
//! A [`Scenario`](scenario::Scenario) is plain data: what is asked, what can be reached, and what the model does. A
//! [`Harness`] plays it and gives back a [`Recording`](recording::Recording). Test files have scenarios with what is
//! expected of them ([`suite`]); [`report`] shows what came, and [`snapshot`] writes it into the files.

pub mod expect;
mod job;
mod observed;
mod play;
pub mod record;
pub mod recording;
pub mod rehearse;
pub mod report;
pub mod scenario;
pub mod snapshot;
pub mod suite;
mod surroundings;

pub use play::{Extent, Harness};
