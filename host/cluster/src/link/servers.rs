//! The settings of NATS servers, as their monitoring tells them.

use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

use super::{CONNECT, Link, MINIMUM};
use crate::error::StoreError;

/// A server, as its monitoring tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The difference of its clock from this machine's, in milliseconds. It is exact to the time that the answer took.
    pub ahead_milliseconds: i64,
}

#[derive(Deserialize)]
struct Variables {
    #[serde(default)]
    server_name: String,
    version: String,
    now: Timestamp,
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Default, Deserialize)]
struct JetStream {
    config: Option<JetStreamConfig>,
}

#[derive(Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

impl Link {
    /// Checks that the servers with these monitoring addresses keep what they acknowledge. `authority` is the file with the
    /// certificate of the authority that signed theirs.
    ///
    /// # Errors
    ///
    /// Returns an error that names the server, also when it cannot be reached.
    pub async fn check_servers(monitors: &[String], authority: Option<&Path>) -> Result<(), StoreError> {
        for monitor in monitors {
            Self::check_server(monitor, authority).await?;
        }
        Ok(())
    }

    /// Checks a server's version, and that each write is on its disk before it is acknowledged.
    ///
    /// # Errors
    ///
    /// Returns an error that names the server, also when it cannot be reached.
    pub async fn check_server(monitor: &str, authority: Option<&Path>) -> Result<Server, StoreError> {
        let unfit = |reason: String| StoreError::Unfit { server: monitor.to_owned(), reason };
        let unreachable = |why: String| {
            unfit(format!(
                "cannot be asked about its settings: {why}; start it, or correct `monitor` and `ca` in [cluster] of guild.toml"
            ))
        };
        let failed = |e: reqwest::Error| {
            // The address is in the error already, and the reason is the last of its causes.
            let causes = std::iter::successors(Some(&e as &dyn std::error::Error), |e| e.source());
            unreachable(causes.last().map_or_else(String::new, ToString::to_string))
        };
        let mut client = reqwest::Client::builder().timeout(CONNECT);
        if let Some(file) = authority {
            let pem = std::fs::read(file).map_err(|e| unreachable(format!("{}: {e}", file.display())))?;
            client = client.add_root_certificate(reqwest::Certificate::from_pem(&pem).map_err(failed)?);
        }
        let client = client.build().map_err(failed)?;
        let asked = Timestamp::now();
        let answer = client.get(format!("{}/varz", monitor.trim_end_matches('/'))).send().await;
        let found: Variables = answer.map_err(failed)?.json().await.map_err(failed)?;
        let took = Timestamp::now().duration_since(asked);
        let ahead = found.now.duration_since(asked) - took / 2;
        let mut numbers = found.version.split(['.', '-']).map(|number| number.parse::<u64>().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < MINIMUM {
            let (major, minor) = MINIMUM;
            return Err(unfit(format!("is of version {}; {major}.{minor} or later is needed", found.version)));
        }
        match found.jetstream.config {
            None => Err(unfit("has no JetStream; add `jetstream: {}` to its configuration".to_owned())),
            Some(config) if !config.sync_always => Err(unfit(
                "acknowledges writes before they are on the disk; set `sync_interval: always` in `jetstream` of its \
                 configuration, and restart it"
                    .to_owned(),
            )),
            Some(_) => {
                let ahead_milliseconds = i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX);
                Ok(Server { name: found.server_name, version: found.version, ahead_milliseconds })
            }
        }
    }
}
