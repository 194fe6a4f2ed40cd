//! Reads `guild.toml` again while a host runs.
//!
//! The file is read as a whole, and its directories are opened, before anything changes; then all of it takes effect at
//! once. After an error, nothing changes. Keys that take effect only at a start are logged.

use std::{fmt, sync::Arc};

use guild_auth::audit_log::{Event, Outcome};
use guild_config::{Change, Config, KeySource, SearchOptions, changes};
use guild_session::task::TaskError;
use tokio::{sync::Notify, task::spawn_blocking};

use crate::{Host, NOTICE, members::opener::Prepared};

/// The trigger and the function for reading `guild.toml` again.
#[derive(Clone)]
pub struct Reloads {
    /// Notified when the file is to be read.
    pub asked: Arc<Notify>,
    /// Reads the file, and applies the options of the command line.
    pub read: Arc<dyn Fn() -> Result<Config, String> + Send + Sync>,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").finish_non_exhaustive()
    }
}

impl Reloads {
    /// Reads the file at each request, between calls of `begin` and `end`.
    pub async fn run(&self, host: &Arc<Host>, begin: impl Fn(), end: impl Fn()) {
        let started = host.config();
        loop {
            self.asked.notified().await;
            begin();
            let outcome = self.once(host, &started).await;
            let detail = match &outcome {
                Ok(changed) => {
                    tracing::info!(target: NOTICE, "guild.toml was read again: {changed}");
                    changed.clone()
                }
                Err(why) => {
                    tracing::error!("guild.toml was read again, and what it said before stays in service: {why}");
                    String::new()
                }
            };
            host.ingress().record(&Event {
                event: "config-read",
                outcome: if outcome.is_ok() { Outcome::Ok } else { Outcome::Failed },
                detail: outcome.is_ok().then_some(detail.into()),
                ..Event::default()
            });
            end();
        }
    }

    /// Reads the file once, for a host that was started with `started`. Returns the number of changes, and of keys that
    /// wait for a restart.
    async fn once(&self, host: &Arc<Host>, started: &Config) -> Result<String, String> {
        let (read, reads) = (self.read.clone(), host.clone());
        let prepared = spawn_blocking(move || prepare(&*read, &reads)).await;
        let prepared = prepared.map_err(|e| TaskError::from(e).to_string())??;
        let (old, new) = (host.config(), prepared.context.config.clone());
        let has_other_certificate = prepared.rules.has_other_certificate(&host.ingress().rules());
        host.renew(prepared).await?;
        let mut waiting = changes(&started.written, &new.written);
        waiting.retain(|change| change.at_start);
        let changes = changes(&old.written, &new.written);
        let mut count = changes.len();
        for Change { key, text, .. } in changes {
            if !waiting.iter().any(|waits| waits.key == key) {
                tracing::info!(target: NOTICE, "guild.toml: {key}: {text}");
            }
        }
        // Each time, since it is not in effect as long as the host runs.
        for Change { key, text, .. } in &waiting {
            tracing::warn!(target: NOTICE, "guild.toml: {key}: {text}; it takes effect at the next start of the host");
        }
        if has_other_certificate {
            count += 1;
            tracing::info!(target: NOTICE, "the certificate was read again, and is another one");
        }
        let changed = match count {
            0 => "nothing has changed".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        Ok(match waiting.len() {
            0 => changed,
            1 => format!("{changed}; 1 key waits for the next start of the host"),
            keys => format!("{changed}; {keys} keys wait for the next start of the host"),
        })
    }
}

fn prepare(read: &(dyn Fn() -> Result<Config, String> + Send + Sync), host: &Host) -> Result<Prepared, String> {
    let (new, old) = (read()?, host.config());
    if let (Some(file), None) = (&old.file, &new.file) {
        return Err(format!(
            "{} is not there any more; put it back, or start the host again without it",
            file.display()
        ));
    }
    check_keys(&old, &new)?;
    host.prepare(new)
}

/// Reads the files that keys of providers are in, and the variables that were not named before: a running process is
/// given no others.
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
