//! Tests plugins: a component in the real sandbox, under the limits of a host, with everything around it scripted.
//!
//! A [`Scenario`](scenario::Scenario) is plain data: the request, the resources, and the turns of the model. A
//! [`Harness`] plays it and returns a [`Recording`](recording::Recording). Test files have scenarios with their expected
//! outcomes ([`suite`]); [`report`] shows the differences, and [`snapshot`] writes the actual outcomes into the files.

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
