//! The filter of a list of jobs.

use globset::GlobSet;
use guild_session::glob::{MAX_GLOB_BYTES, compile};

use crate::error::StoreError;

/// The filter of a list of jobs, which matches whole descriptions; `None` where there is none, or an empty one.
///
/// # Errors
/// What is wrong with it.
pub fn filter(filter: Option<&str>) -> Result<Option<GlobSet>, StoreError> {
    let Some(filter) = filter.filter(|filter| !filter.is_empty()) else { return Ok(None) };
    if filter.len() > MAX_GLOB_BYTES {
        return Err(StoreError::OverLimit(format!("filter has {} bytes; {MAX_GLOB_BYTES} are allowed", filter.len())));
    }
    let glob = compile(filter, false).map_err(|why| StoreError::Refused(format!("filter is not a glob: {why}")))?;
    Ok(Some(glob))
}
