//! Reads `[retention]`: which ended jobs stay.

use std::time::Duration;

use guild_contract::Retention;
use serde::Deserialize;
use toml::Spanned;

use crate::value::Wrong;

/// Which ended jobs stay, for each member by itself. The host removes the others every ten minutes,
/// those that ended first before those that ended later. What they used still counts. Jobs that run
/// always stay.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenRetention {
    /// The number of days that a job stays after its end. Without this key, no job is removed for its age.
    days: Option<Spanned<u32>>,
    /// The most ended jobs. Without this key, no job is removed for their number.
    jobs: Option<Spanned<u32>>,
    /// The most bytes that the files of all ended jobs have. Without this key, no job is removed for its size.
    bytes: Option<Spanned<u64>>,
}

impl WrittenRetention {
    pub(crate) fn read(&self) -> Result<Retention, Wrong> {
        Ok(Retention {
            age: positive("days", &self.days)?.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600)),
            jobs: positive("jobs", &self.jobs)?,
            bytes: positive("bytes", &self.bytes)?,
        })
    }
}

/// A number that is not 0: a host that keeps nothing could not answer for its jobs.
fn positive<N: Copy + Default + PartialEq>(name: &str, written: &Option<Spanned<N>>) -> Result<Option<N>, Wrong> {
    match written {
        Some(zero) if *zero.get_ref() == N::default() => {
            let why =
                format!("retention.{name}: 0 would keep no ended job; write a larger number, or leave the key out");
            Err(Wrong::at(zero.span(), why))
        }
        written => Ok(written.as_ref().map(|number| *number.get_ref())),
    }
}
