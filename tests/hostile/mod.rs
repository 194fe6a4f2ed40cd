//! What a plugin, a caller or a document may try, each through a running host.
//!
//! Every test here goes through [`harness`]: whatever is tried, the host stays up, healthy jobs that run meanwhile end
//! as they should and in time, what was tried ends with its stable reason, and what was taken is given back.

mod callers;
mod cases;
mod compile;
mod cpu;
mod documents;
mod files;
mod harness;
mod load;
mod members;
mod memory;
mod neighbours;
mod output;
mod schemas;
