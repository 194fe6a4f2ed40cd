//! `guild health`: asks a running host whether it answers, for supervisors of containers.

use std::time::Duration;

use guild_client::Options;

use crate::{args::operator::Health, client::default_url, failure::Failure, output::print};

/// `guild health`.
pub(crate) async fn health(args: Health) -> Result<(), Failure> {
    let Health { url, access, timeout_seconds } = args;
    let url = url.unwrap_or_else(default_url);
    let options = Options { timeout: Duration::from_secs(timeout_seconds.into()), ..access.options(&url)? };
    guild_client::health(&url, &options).await?;
    print(|out| writeln!(out, "the host at {url} answers"))?;
    Ok(())
}
