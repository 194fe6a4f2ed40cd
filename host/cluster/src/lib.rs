//! Cluster.
pub mod blobs;
pub mod error;
pub mod link;
pub mod log;
pub mod record;
pub mod rules;
pub mod streams;
pub mod writer;
