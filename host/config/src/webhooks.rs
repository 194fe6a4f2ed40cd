//! Reads `[[webhook]]`: the addresses that a host tells of the ends and questions of jobs.

use std::path::{Path, PathBuf};

use guild_contract::capability::grants::Pattern;
use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};
use toml::Spanned;
use url::{Host, Url};

use crate::{
    key_source::KeySource,
    value::{Wrong, key_source},
};

/// An address that is told of events, signed as Standard Webhooks says. Each has its own table.
#[derive(Deserialize)]
pub(crate) struct WrittenWebhook {
    /// The address. It has `https`, or `http` if it is a loopback address.
    url: Spanned<String>,
    /// The environment variable with the secret that signs the messages: `whsec_` and 24 to 64 bytes in base64.
    key_env: Option<Spanned<String>>,
    /// A file with the secret, in place of `key_env`.
    key_file: Option<Spanned<PathBuf>>,
    /// The events: `"job.completed"`, `"job.failed"`, `"job.cancelled"`, `"job.question"`. Default: all of them.
    events: Option<Vec<Spanned<String>>>,
    /// The members whose events are sent: keys, or patterns such as `"team/*"`. Default: all of them.
    members: Option<Vec<Pattern>>,
}

/// An entry of `[[webhook]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The address.
    pub url: Url,
    /// The source of the secret.
    pub key: KeySource,
    /// The events that are sent.
    pub events: Vec<WebhookEvent>,
    /// The members whose events are sent.
    pub members: Vec<Pattern>,
}

/// An event that a webhook is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
pub enum WebhookEvent {
    /// A job ended with a result.
    #[strum(serialize = "job.completed")]
    Completed,
    /// A job ended without a result.
    #[strum(serialize = "job.failed")]
    Failed,
    /// A caller cancelled a job.
    #[strum(serialize = "job.cancelled")]
    Cancelled,
    /// A worker has a question for a person.
    #[strum(serialize = "job.question")]
    Question,
}

impl WebhookEvent {
    /// All events.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The word in `guild.toml` and in messages.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Webhook {
    /// Whether it is told of an event of a member.
    pub fn wants(&self, event: WebhookEvent, member: &str) -> bool {
        self.events.contains(&event) && self.members.iter().any(|pattern| pattern.matches(member))
    }
}

impl WrittenWebhook {
    pub(crate) fn read(self, base: &Path) -> Result<Webhook, Wrong> {
        let span = self.url.span();
        let wrong = |why: &str| Wrong::at(span.clone(), format!("webhook.url: {:?} {why}", self.url.get_ref()));
        let url: Url = self.url.get_ref().parse().map_err(|_| wrong("is not a URL"))?;
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if !(url.scheme() == "https" || url.scheme() == "http" && is_here) {
            return Err(wrong("must begin with https:// (http:// is for loopback addresses)"));
        }
        let key = key_source("webhook", self.key_env, self.key_file, base)?;
        let key = key.ok_or_else(|| wrong("needs a secret: name it in `key_env` or `key_file`"))?;
        let events = match self.events {
            None => WebhookEvent::ALL.to_vec(),
            Some(events) => events.iter().map(event).collect::<Result<_, _>>()?,
        };
        let all = || "*".parse().into_iter().chain("*/*".parse()).collect();
        Ok(Webhook { url, key, events, members: self.members.unwrap_or_else(all) })
    }
}

fn event(written: &Spanned<String>) -> Result<WebhookEvent, Wrong> {
    let names = || WebhookEvent::ALL.iter().map(|event| event.as_str()).collect::<Vec<_>>().join(", ");
    let why = || format!("webhook.events: {:?} is not an event; the events are {}", written.get_ref(), names());
    written.get_ref().parse().map_err(|_| Wrong::at(written.span(), why()))
}
