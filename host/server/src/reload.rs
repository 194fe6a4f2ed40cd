//! Reading `guild.toml` again while a host runs.
//!
//! All of it is read, and what it names is opened, before anything changes; then all of it holds at once. Where something
//! is wrong, nothing changes. What a host is made for at its start stays as it is, and is told.

use std::{fmt, sync::Arc};

use guild_jobs::secret::KeySource;
use guild_web::SearchOptions;
use tokio::{sync::Notify, task::spawn_blocking};

use crate::{
    Host,
    config::{Config, changes},
    door::{
        Door, Rules,
        audit_log::{Event, Outcome},
    },
    host::Prepared,
};

/// What a host is told that it is to log even where it logs only warnings: by this target the log finds it.
pub const TOLD: &str = "guild_server::told";

/// Characters of a text of others that the log repeats.
pub(crate) const LOGGED_CHARS: usize = 300;

/// How a host reads its `guild.toml` again.
#[derive(Clone)]
pub struct Reloads {
    /// Notified when it is to.
    pub asked: Arc<Notify>,
    /// Reads it, and applies what the command line says.
    pub read: Arc<dyn Fn() -> Result<Config, String> + Send + Sync>,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}

impl Reloads {
    /// Reads it whenever that is asked for.
    pub(crate) async fn run(&self, host: &Arc<Host>, door: &Arc<Door>) {
        loop {
            self.asked.notified().await;
            let outcome = self.once(host, door).await;
            let detail = match &outcome {
                Ok(0) => {
                    tracing::info!(target: TOLD, "guild.toml was read again: nothing has changed");
                    "nothing has changed".to_owned()
                }
                Ok(count) => {
                    let changes = if *count == 1 { "change" } else { "changes" };
                    tracing::info!(target: TOLD, "guild.toml was read again: {count} {changes}");
                    format!("{count} {changes}")
                }
                Err(why) => {
                    tracing::error!("guild.toml was read again, and what it said before stays in service: {why}");
                    String::new()
                }
            };
            door.record(&Event {
                event: "config-read",
                outcome: if outcome.is_ok() { Outcome::Ok } else { Outcome::Failed },
                detail: outcome.is_ok().then_some(detail.into()),
                ..Event::default()
            });
        }
    }

    /// How many changes there were.
    async fn once(&self, host: &Arc<Host>, door: &Arc<Door>) -> Result<usize, String> {
        let (read, reads, at) = (self.read.clone(), host.clone(), door.clone());
        let prepared = spawn_blocking(move || prepare(&*read, &reads, &at)).await;
        let Ready { prepared, rules, old } = prepared.map_err(|_| "the host is stopping".to_owned())??;
        let new = prepared.means.config.clone();
        host.renew(prepared).await?;
        let has_other_certificate = door.renew(rules);
        let mut count = 0;
        for change in changes(&old.written, &new.written) {
            count += 1;
            if change.at_start {
                let (key, text) = (&change.key, &change.text);
                tracing::warn!(target: TOLD, "guild.toml: {key}: {text}; it takes effect at the next start of the host");
            } else {
                tracing::info!(target: TOLD, "guild.toml: {}: {}", change.key, change.text);
            }
        }
        if has_other_certificate {
            count += 1;
            tracing::info!(target: TOLD, "the certificate was read again, and is another one");
        }
        Ok(count)
    }
}

/// All that is to be in service.
struct Ready {
    prepared: Prepared,
    rules: Rules,
    /// What is in service until then.
    old: Arc<Config>,
}

fn prepare(
    read: &(dyn Fn() -> Result<Config, String> + Send + Sync),
    host: &Host,
    door: &Door,
) -> Result<Ready, String> {
    let (new, old) = (read()?, host.config());
    if let (Some(file), None) = (&old.file, &new.file) {
        return Err(format!(
            "{} is not there any more; put it back, or start the host again without it",
            file.display()
        ));
    }
    check_keys(&old, &new)?;
    let rules = door.prepare(&new).map_err(|e| e.to_string())?;
    Ok(Ready { prepared: host.prepare(new)?, rules, old })
}

/// Reads the files that keys of providers are in, and the variables that were not named before: a running process is given
/// no others.
fn check_keys(old: &Config, new: &Config) -> Result<(), String> {
    let before: Vec<_> = keys(old).collect();
    for (table, key) in keys(new) {
        if matches!(key, KeySource::File(_)) || !before.contains(&(table, key)) {
            key.read().map_err(|why| format!("[{table}] of guild.toml: {why}"))?;
        }
    }
    Ok(())
}

fn keys(config: &Config) -> impl Iterator<Item = (&'static str, &KeySource)> {
    let search = config.web.as_ref().and_then(|web| web.search.as_ref()).and_then(|search| match search {
        SearchOptions::Brave { key, .. } => Some(("web.search", key)),
        SearchOptions::SearXng { .. } => None,
    });
    config.api.options.key.as_ref().map(|key| ("api", key)).into_iter().chain(search)
}
