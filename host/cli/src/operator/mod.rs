//! Commands for operators: they serve, examine, back up and restore a host, and make its tokens and certificates.

pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod doctor;
pub(crate) mod health;
pub(crate) mod serve;
pub(crate) mod tls;
pub(crate) mod token;
