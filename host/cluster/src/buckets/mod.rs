//! What hosts share besides jobs: the last message of a subject is its value, and each change has the condition that the
//! value is still the one that it was made from.

pub mod keys;
pub mod members;
pub mod memory;
