//! Reads `[spend]`: the caps on the dollars spent in a day.

use serde::Deserialize;
use toml::Spanned;

use crate::value::{Wrong, amount};

/// What may be spent in a day, of UTC, in US dollars. It is counted over all hosts that use this
/// `guild.toml`, on all runtimes, and survives a restart. A cost that is not known does not count.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenSpend {
    /// What all jobs, commissions and meetings may spend together. Without it, there is no such cap.
    host_usd_per_day: Option<Spanned<f64>>,
    /// What those of each token may spend that has no `--usd-per-day` of its own. Without it, there is no such cap.
    token_usd_per_day: Option<Spanned<f64>>,
}

/// `[spend]`, checked. A missing cap does not bound anything.
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
