//! Cluster.
pub mod rules;
