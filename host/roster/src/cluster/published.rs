//! Puts the members that are published in the cluster in place on this host.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::Dir;
use guild_cluster::{
    blobs::Blob,
    buckets::members::{Change, Members, Publications, Published},
};
use guild_config::Config;
use guild_contract::MemberKey;
use guild_fs::durable::{Survives, open_dir, open_directory, read_whole, replace};
use guild_registry::{MemberFiles, Part, Unpacked, write_over};
use guild_trust::{Approval, How, Standing, Trusted};
use tokio::task::block_in_place;

use super::Cluster;
use crate::discovery::{FoundMember, granted::Granted, single};

/// The part of the host's own directory with the members that are being put in place.
const STAGING: &str = "members";
/// The file in the host's own directory with the last edition of each member that it has seen.
const EDITIONS: &str = "published.json";
/// The greatest size of that file.
const EDITIONS_BYTES: u64 = 1024 * 1024;

/// The members that are published, on this host.
pub(crate) struct PublishedMembers {
    publications: Publications,
    places: Places,
}

/// The places of published members on this host.
struct Places {
    members: Members,
    /// The host's own directory.
    own: Dir,
    /// The directory of members: absolute, without symlinks.
    directory: PathBuf,
    /// The files of members that are being put in place, by key. A member whose files are there was replaced in part.
    staging: PathBuf,
}

impl Cluster {
    /// The published members, for a directory of members.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be read.
    pub(crate) fn published(&self, directory: &Path) -> io::Result<PublishedMembers> {
        let members = Members::new(self.link.clone(), self.seal_key());
        let (directory, staging) = (directory.canonicalize()?, self.directory.join(STAGING));
        let own = open_directory(&self.directory).and_then(|dir| open_dir(&dir, "."))?;
        Ok(PublishedMembers { publications: members.follow(), places: Places { members, own, directory, staging } })
    }
}

impl PublishedMembers {
    /// Puts the published members in place, until all that are published now are there.
    pub(crate) async fn catch_up(&mut self, config: &Config, approval: &Approval) {
        while let Some(change) = self.publications.next().await {
            self.places.apply(change, config, approval).await;
        }
    }

    /// Puts members in place as they are published, as long as the host runs.
    pub(crate) async fn follow(mut self, now: impl Fn() -> (Arc<Config>, Arc<Approval>)) {
        loop {
            if let Some(change) = self.publications.next().await {
                let (config, approval) = now();
                self.places.apply(change, &config, &approval).await;
            }
        }
    }
}

impl Places {
    async fn apply(&self, change: Change, config: &Config, approval: &Approval) {
        let (member, applied) = match change {
            Change::Published(published) => {
                (published.member.to_string(), self.follow(&published, config, approval).await)
            }
            Change::Unsealed(member) => {
                let why = "its publication has no seal of this cluster's key, so somebody else has written it";
                (member, Err(why.to_owned()))
            }
        };
        match applied {
            Ok(None) => {}
            Ok(Some(done)) => tracing::info!(member, "the member is {done}"),
            Err(why) => tracing::error!(member, "the published member is not put in place: {why}"),
        }
    }

    /// Puts a member in place or removes it, unless this host has seen a later publication of it.
    async fn follow(
        &self,
        published: &Published,
        config: &Config,
        approval: &Approval,
    ) -> Result<Option<&'static str>, String> {
        let failed = |e: io::Error| format!("{}: {e}", self.directory.join(EDITIONS).display());
        let mut editions = self.editions().map_err(failed)?;
        let last = editions.entry(published.member.clone()).or_default();
        if published.edition < *last {
            return Err("a later publication was seen here, so somebody has repeated this one".to_owned());
        }
        let is_new = std::mem::replace(last, published.edition) < published.edition;
        let done = match published.is_withdrawn() {
            true => block_in_place(|| self.withdraw(&published.member, config, approval))?,
            false => self.put(published, config, approval).await?,
        };
        if is_new {
            let text = serde_json::to_vec_pretty(&editions).map_err(io::Error::from);
            text.and_then(|text| replace(&self.own, EDITIONS, &text, Survives::PowerCut)).map_err(failed)?;
        }
        Ok(done)
    }

    /// The last edition of each member that was put in place here, or removed.
    fn editions(&self) -> io::Result<BTreeMap<MemberKey, u64>> {
        let found = read_whole(&self.own, EDITIONS, EDITIONS_BYTES)?;
        found.map_or_else(|| Ok(BTreeMap::new()), |(text, _)| Ok(serde_json::from_slice(&text)?))
    }

    /// Puts a member in place, unless it is there.
    async fn put(
        &self,
        published: &Published,
        config: &Config,
        approval: &Approval,
    ) -> Result<Option<&'static str>, String> {
        let key = &published.member;
        let staged = self.staging.join(key.as_str());
        if let Some(here) = block_in_place(|| self.here(key, config, approval))? {
            if here.has(published) {
                if !here.is_published {
                    approval.published(&here.standing).map_err(|e| e.to_string())?;
                }
                return Ok(None);
            }
            if !here.is_published && !staged.exists() {
                return Err(format!(
                    "{} has other files, which were not published; publish them, or remove the directory",
                    here.standing.directory
                ));
            }
        }
        let failed = |e: io::Error| format!("{}: {e}", staged.display());
        if staged.exists() {
            fs::remove_dir_all(&staged).map_err(failed)?;
        }
        fs::create_dir_all(&staged).map_err(failed)?;
        let into = open_directory(&staged).and_then(|dir| open_dir(&dir, ".")).map_err(failed)?;
        self.members.fetch(published, &into).await.map_err(|e| e.to_string())?;
        let files = MemberFiles::read(&into, &config.limits).map_err(|e| e.to_string())?;
        block_in_place(|| self.place(key, &files, config, approval))?;
        fs::remove_dir_all(&staged).map_err(failed)?;
        Ok(Some("put in place as it was published"))
    }

    /// The member that is in the place of this key; `None` if there are no files of a member.
    fn here(&self, key: &MemberKey, config: &Config, approval: &Approval) -> Result<Option<Here>, String> {
        let directory = self.directory.join(key.as_str());
        let Ok(dir) = open_directory(&directory) else { return Ok(None) };
        if MemberFiles::names_in(&dir, &config.limits).map_err(|e| e.to_string())?.is_empty() {
            return Ok(None);
        }
        let files = MemberFiles::read(&dir, &config.limits).map_err(|e| e.to_string())?;
        let found = single(&directory, Some(&self.directory), config)?;
        let standing = standing(&found, &directory, config, approval)?;
        let is_published = matches!(&standing.trusted, Trusted::Pinned(pin) if pin.how == How::Published);
        Ok(Some(Here { files, standing, is_published }))
    }

    /// Puts the files of a member in the place of its key, and trusts them.
    fn place(&self, key: &MemberKey, files: &MemberFiles, config: &Config, approval: &Approval) -> Result<(), String> {
        let directory = self.directory.join(key.as_str());
        let failed = |e: io::Error| format!("{}: {e}", directory.display());
        let unpacked = Unpacked::create(&self.directory, key.as_str(), files).map_err(failed)?;
        let found = single(&unpacked.directory(), Some(unpacked.members()), config)?;
        let standing = standing(&found, &directory, config, approval)?;
        approval.check_signature(&standing).map_err(|e| e.to_string())?;
        let trust = || approval.published(&standing).map_err(|e| e.to_string());
        match open_directory(&directory) {
            Ok(dir) => {
                drop(unpacked);
                // The pin comes last: a member that is written in part differs from its pin, and is not loaded.
                write_over(&dir, files, &config.limits, |_| false).map_err(failed)?;
                trust()
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // The host loads the member as soon as it is in place, so its pin comes first.
                trust()?;
                unpacked.place().map_err(failed)
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Removes the files of a member that was put in place here. Its jobs and notes stay.
    fn withdraw(&self, key: &MemberKey, config: &Config, approval: &Approval) -> Result<Option<&'static str>, String> {
        let Some(here) = self.here(key, config, approval)?.filter(|here| here.is_published) else { return Ok(None) };
        let directory = self.directory.join(key.as_str());
        let removed = open_directory(&directory).and_then(|dir| {
            MemberFiles::names_in(&dir, &config.limits)?.iter().try_for_each(|name| dir.remove_file(name))
        });
        removed.map_err(|e| format!("{}: {e}", directory.display()))?;
        approval.forget(&here.standing.directory).map_err(|e| e.to_string())?;
        Ok(Some("withdrawn"))
    }
}

/// A member that is in the place of a published one.
struct Here {
    files: MemberFiles,
    standing: Standing,
    /// Whether its files are those that were put in place here.
    is_published: bool,
}

impl Here {
    /// Whether its files are the published ones.
    fn has(&self, published: &Published) -> bool {
        let count = self.files.files().count();
        let is_published =
            |(_, name, bytes): (Part, String, &[u8])| published.files.get(&name) == Some(&Blob::of(bytes));
        count == published.files.len() && self.files.files().all(is_published)
    }
}

/// The trust in a member, as one in this directory.
fn standing(found: &FoundMember, directory: &Path, config: &Config, approval: &Approval) -> Result<Standing, String> {
    let spec = found.manifest.component.as_ref().ok_or("it has no `component`")?;
    let max = Granted::of(found, spec, config, approval)?.limits.limits.component_bytes;
    let directory = directory.to_str().ok_or("the path of the directory of members is not UTF-8")?.to_owned();
    approval
        .look_for(&found.key, &found.dir, spec, max, directory)
        .map(|(_, standing)| standing)
        .map_err(|e| e.to_string())
}
