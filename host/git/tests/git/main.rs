//! The real git, on real repositories in temporary directories.

mod attempts;
mod crashes;
mod hostile;
mod integration;
mod merges;
mod program;
mod repository;
mod support;
