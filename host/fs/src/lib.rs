//! Files of the host: written atomically, locked, walked, compared, kept from other users, and stamped with the time.
//!
//! Everything here blocks on the file system: call it where blocking is allowed.

pub mod clock;
pub mod durable;
pub mod file_lock;
pub mod fingerprint;
pub mod own_directory;
pub mod regular_file;
pub mod tree;
