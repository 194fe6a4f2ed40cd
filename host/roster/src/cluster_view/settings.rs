//! The digests of a host's settings in its card, by which hosts are compared. They are keyed with the cluster's key, so that
//! who reads the card at NATS can guess no setting.

use std::{collections::BTreeMap, fs};

use guild_cluster::seal::Key;
use guild_config::{Config, ReadRoot};

/// Keys of guild.toml that differ between hosts by their nature.
const OWN: [&str; 8] = ["audit_log", "bind", "cluster", "home", "hosts", "members", "port", "tls"];
/// The operator's files beside guild.toml that are the same at all hosts.
const FILES: [&str; 2] = ["guild.tokens", "guild.trust"];

/// The digests of the settings of a configuration, by their names: keys and tables of guild.toml, and files beside it.
pub(crate) fn settings(config: &Config, key: &Key, roots: &[String]) -> BTreeMap<String, String> {
    let written = config.written.iter().filter(|(name, _)| !OWN.contains(&name.as_str()) && *name != "roots");
    let mut settings: BTreeMap<String, String> =
        written.map(|(name, value)| (name.clone(), key.digest(name, value.to_string().as_bytes()))).collect();
    let cluster = config.cluster.iter().flat_map(|cluster| {
        let (silent, stop) = (cluster.silent.as_secs(), cluster.stop.as_secs());
        [("silent_seconds", silent), ("stop_seconds", stop), ("queued_jobs", cluster.queued_jobs as u64)]
    });
    settings.extend(cluster.map(|(name, value)| {
        let name = format!("cluster.{name}");
        let digest = key.digest(&name, value.to_string().as_bytes());
        (name, digest)
    }));
    // Hosts may have the roots at other places; jobs need their names.
    settings.insert("roots".to_owned(), key.digest("roots", roots.join("\n").as_bytes()));
    for name in FILES {
        let content = config.directory.as_ref().and_then(|directory| fs::read(directory.join(name)).ok());
        if let Some(content) = content {
            settings.insert(name.to_owned(), key.digest(name, &content));
        }
    }
    settings
}

/// The names of the read roots of the configuration.
pub(crate) fn roots(config: &Config) -> Vec<String> {
    let name = |root: &ReadRoot| {
        let own = || Some(root.path.file_name()?.to_str()?.to_owned());
        root.name.clone().or_else(own)
    };
    config.roots.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, key: u8) -> BTreeMap<String, String> {
        let config = Config { written: text.parse().unwrap(), ..Config::default() };
        settings(&config, &Key::new([key; 32]), &["docs".to_owned()])
    }

    #[test]
    fn settings_differ_by_their_values_and_not_by_what_each_host_has_of_its_own() {
        let one = of("port = 1\nagent = \"api\"\n[limits]\nrunning_jobs = 3\n[cluster]\nhost = \"a\"", 1);
        let other = of("port = 2\nagent = \"api\"\n[limits]\nrunning_jobs = 4\n[cluster]\nhost = \"b\"", 1);
        assert_eq!(one.keys().collect::<Vec<_>>(), ["agent", "limits", "roots"]);
        assert_eq!(one["agent"], other["agent"]);
        assert_ne!(one["limits"], other["limits"]);
        assert_ne!(one["agent"], of("agent = \"api\"", 2)["agent"], "the digest depends on the cluster's key");
    }
}
