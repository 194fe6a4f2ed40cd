//! Reads `[spend]`: the caps on the dollars spent in a day.

use serde::Deserialize;
use toml::Spanned;

use crate::value::{Wrong, amount};

/// Caps on the US dollars that may be spent in a day of UTC. They count all runtimes, and all hosts
/// that use this `guild.toml`, and survive a restart. Unknown costs do not count.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenSpend {
    /// The most that all jobs, commissions and meetings may spend together. Without this key, there is no such cap.
    host_usd_per_day: Option<Spanned<f64>>,
    /// The most that the work of each token without its own `--usd-per-day` may spend. Without this key, there is no
    /// such cap.
    token_usd_per_day: Option<Spanned<f64>>,
}

/// The checked values of `[spend]`. A missing cap does not bound anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spend {
    /// `host_usd_per_day`.
    pub host_usd_per_day: Option<f64>,
    /// `token_usd_per_day`.
    pub token_usd_per_day: Option<f64>,
}

impl WrittenSpend {
    pub(crate) fn read(&self) -> Result<Spend, Wrong> {
        let cap = |name: &str, usd: &Option<Spanned<f64>>| {
            usd.as_ref().map(|usd| amount(&format!("spend.{name}"), usd)).transpose()
        };
        Ok(Spend {
            host_usd_per_day: cap("host_usd_per_day", &self.host_usd_per_day)?,
            token_usd_per_day: cap("token_usd_per_day", &self.token_usd_per_day)?,
        })
    }
}
