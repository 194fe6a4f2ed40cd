//! Collects the figures of a host for Prometheus (`GET /metrics`), and sends its traces to OpenTelemetry ([`trace`]).
//!
//! [`record`] counts and times what happens, in this process as a whole; [`State`] has what is true when Prometheus
//! asks. Both list all metrics with their help. The number of time series is bounded: labels are members, words of the
//! host's own, and a bounded number of models.

mod process;
pub mod record;
mod state;
pub mod trace;

pub use process::begin;
pub use state::{ClusterFigures, MemberFigures, Queue, State};

/// The content type of the text form of OpenMetrics, which Prometheus reads.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
