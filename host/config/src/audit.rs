//! Reads `[audit]`: what the operator knows that an audit cannot know.

use serde::Deserialize;
use toml::Spanned;

use crate::{host::pattern::HostPattern, value::Wrong};

/// What `guild audit`, `guild approve` and the page of a member go by, besides what they know.
#[derive(Default, Deserialize)]
pub(crate) struct WrittenAudit {
    /// Hosts that pass on what they are sent, such as a web archive, a proxy or a wiki that anybody reads: patterns as
    /// in `[web]`. A member that may ask one of them can reach anybody, as with the relays that an audit knows. Default:
    /// `[]`.
    #[serde(default)]
    relays: Vec<Spanned<String>>,
}

impl WrittenAudit {
    pub(crate) fn relays(self) -> Result<Vec<String>, Wrong> {
        let relay = |relay: Spanned<String>| match HostPattern::parse(relay.get_ref()) {
            Ok(_) => Ok(relay.into_inner()),
            Err(why) => Err(Wrong::at(relay.span(), format!("audit.relays: {why}"))),
        };
        self.relays.into_iter().map(relay).collect()
    }
}
