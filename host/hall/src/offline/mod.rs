//! A home without its hall: the commands that work on a home whether a host serves it or not.

pub(crate) mod look;
pub(crate) mod register;
pub(crate) mod tidy;
