//! Works on a home without opening its hall: the commands work whether or not a host serves it.

pub(crate) mod look;
pub(crate) mod register;
pub(crate) mod tidy;
