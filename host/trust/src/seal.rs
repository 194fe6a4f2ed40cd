//! Makes and verifies seals, which prove to a host that a job was dispatched here and was not copied with a member's
//! directory.
//!
//! A seal is the HMAC-SHA-256 of the member's directory, the job's id and its plan. Its key is never in a member's
//! directory: it is `guild.seal` in the directory of `guild.toml`, 32 random bytes. The hosts that use that
//! `guild.toml` share it, so each can resume the jobs of the others. Hosts of a cluster use the cluster's key, and the
//! member's key in place of its directory.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use cap_std::fs::{Dir, MetadataExt as _};
use guild_config::directory_lock::DirectoryLock;
use guild_contract::{JobId, MemberKey, text::hex};
use guild_fs::durable::{if_there, open_directory, read_whole};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::process::geteuid;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::approval::directory_path;

/// The name of the key's file.
pub const FILE: &str = "guild.seal";
/// The bytes of the key.
const KEY_BYTES: usize = 32;
/// The mode of the key's file: only its owner may read and write it.
const MODE: u32 = 0o600;
/// The permission bits of other users.
const OTHERS: u32 = 0o077;

type Key = [u8; KEY_BYTES];

/// Makes and verifies seals.
#[derive(Debug)]
pub struct Seals {
    directory: Option<PathBuf>,
    /// The old and the new paths of directories of members.
    moved: Vec<(PathBuf, PathBuf)>,
    /// The cluster that the members belong to, if there is one.
    cluster: Option<String>,
    /// The key: `Some` after the first attempt to read or make it.
    key: Mutex<Option<Option<Key>>>,
}

impl Seals {
    /// Seals with the key in the directory of `guild.toml`.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, moved: Vec::new(), cluster: None, key: Mutex::default() }
    }

    /// Seals of the cluster of that name, with its key.
    pub fn of_cluster(name: &str, key: [u8; 32]) -> Self {
        Self { directory: None, moved: Vec::new(), cluster: Some(name.to_owned()), key: Mutex::new(Some(Some(key))) }
    }

    /// The place of a member that seals are bound to.
    fn place(&self, key: &MemberKey, member: &Dir) -> Result<PathBuf, String> {
        match &self.cluster {
            Some(cluster) => Ok(["cluster", cluster, key.as_str()].iter().collect()),
            None => directory_path(member).map(PathBuf::from),
        }
    }

    /// Also accepts seals of members below `to` that were made when that directory was `from`.
    #[must_use]
    pub fn moved(mut self, from: &Path, to: &Path) -> Self {
        self.moved.push((from.to_owned(), to.to_owned()));
        self
    }

    /// The seal of a job with that plan, of the member `key` in the directory `member`, in hexadecimal. The first seal
    /// makes the key. `None` if there is no key and none can be made, which is logged once. It blocks.
    pub fn seal(&self, key: &MemberKey, member: &Dir, job: &JobId, plan: &[u8]) -> Option<String> {
        let place = self.place(key, member);
        let place = place.inspect_err(|why| tracing::warn!(%job, "the job cannot be sealed: {why}")).ok()?;
        sealed(&self.key(true)?, &place, job, plan)
    }

    /// Whether `seal` is the seal of this job. It blocks.
    pub fn is_seal(&self, seal: &str, key: &MemberKey, member: &Dir, job: &JobId, plan: &[u8]) -> bool {
        let (Ok(directory), Some(key)) = (self.place(key, member), self.key(false)) else { return false };
        let before = self.moved.iter().filter_map(|(from, to)| Some(from.join(directory.strip_prefix(to).ok()?)));
        let own = std::iter::once(directory.clone()).chain(before).filter_map(|at| sealed(&key, &at, job, plan));
        own.fold(false, |is_one, own| is_one | bool::from(own.as_bytes().ct_eq(seal.as_bytes())))
    }

    /// The key. If there is none and `make` is set, makes it.
    fn key(&self, make: bool) -> Option<Key> {
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let key = match self.read() {
                Ok(None) if make => self.make().map(Some),
                read => read,
            };
            match key {
                Ok(None) => {}
                Ok(key) => *known = Some(key),
                Err(e) => {
                    tracing::warn!(
                        "jobs that a stop of this host interrupts will not be resumed: {FILE} beside guild.toml: {e}"
                    );
                    *known = Some(None);
                }
            }
        }
        known.flatten()
    }

    fn read(&self) -> io::Result<Option<Key>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let Some(dir) = if_there(open_directory(directory))? else { return Ok(None) };
        read(&dir)
    }

    fn make(&self) -> io::Result<Key> {
        let nowhere = || io::Error::other("there is no configuration directory; set HOME, or name a guild.toml");
        let held = DirectoryLock::acquire(self.directory.as_deref().ok_or_else(nowhere)?)?;
        // Another host may have made the key in the meantime.
        if let Some(key) = read(held.dir())? {
            return Ok(key);
        }
        let mut key = Key::default();
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        held.replace(FILE, &key, MODE)?;
        Ok(key)
    }
}

/// Reads the key in a directory.
fn read(dir: &Dir) -> io::Result<Option<Key>> {
    let Some(found) = if_there(dir.symlink_metadata(FILE))? else { return Ok(None) };
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.mode() & OTHERS != 0 {
        return Err(io::Error::other("other users may read or write it; remove it, and the host makes a new one"));
    }
    if !(found.uid() == 0 || found.uid() == geteuid().as_raw()) {
        return Err(io::Error::other("it belongs to another user, who could have made it; `chown` it, or remove it"));
    }
    let Some((bytes, _)) = read_whole(dir, FILE, KEY_BYTES as u64)? else { return Ok(None) };
    let unsound =
        |_| io::Error::other(format!("it does not have {KEY_BYTES} bytes; remove it, and the host makes a new one"));
    bytes.try_into().map(Some).map_err(unsound)
}

fn sealed(key: &Key, directory: &Path, job: &JobId, plan: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in [directory.as_os_str().as_encoded_bytes(), job.as_str().as_bytes(), plan] {
        // Each part has its length before it, so that no part can be taken for another.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    Some(hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, thread};

    use super::*;

    fn key() -> MemberKey {
        "m".parse().unwrap()
    }

    #[test]
    fn the_seals_of_a_cluster_are_bound_to_its_name_and_to_the_member_and_to_no_directory() {
        let [one, other] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = [one.path(), other.path()].map(|path| open_directory(path).unwrap());
        let (acme, job) = (Seals::of_cluster("acme", [1; 32]), "a".parse().unwrap());
        let seal = acme.seal(&key(), &one, &job, b"plan").unwrap();
        assert!(acme.is_seal(&seal, &key(), &other, &job, b"plan"));
        assert!(!acme.is_seal(&seal, &"n".parse().unwrap(), &one, &job, b"plan"));
        assert!(!Seals::of_cluster("ajax", [1; 32]).is_seal(&seal, &key(), &one, &job, b"plan"));
        assert!(!Seals::of_cluster("acme", [2; 32]).is_seal(&seal, &key(), &one, &job, b"plan"));
    }

    #[test]
    fn hosts_that_start_at_once_have_one_key_and_know_each_others_jobs() {
        let temp = tempfile::tempdir().unwrap();
        let (member, job) = (open_directory(temp.path()).unwrap(), "a".parse().unwrap());
        let new = || Seals::new(Some(temp.path().join("guild")));
        assert!(!new().is_seal("", &key(), &member, &job, b"plan") && !temp.path().join("guild").exists());
        let seals: Vec<String> = thread::scope(|scope| {
            let seal = || new().seal(&key(), &member, &job, b"plan").unwrap();
            let hosts: Vec<_> = (0..4).map(|_| scope.spawn(seal)).collect();
            hosts.into_iter().map(|host| host.join().unwrap()).collect()
        });
        assert!(seals.iter().all(|seal| new().is_seal(seal, &key(), &member, &job, b"plan")), "{seals:?}");
        assert!(!new().is_seal(&seals[0], &key(), &member, &"b".parse().unwrap(), b"plan"));
        assert!(!new().is_seal(&seals[0], &key(), &member, &job, b"plans"));
        let mode = fs::metadata(temp.path().join("guild").join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
    }

    #[test]
    fn a_key_that_another_user_could_have_made_is_not_used() {
        let spoil: [fn(&std::path::Path); 3] = [
            |key| fs::set_permissions(key, fs::Permissions::from_mode(0o640)).unwrap(),
            |key| fs::write(key, "short").unwrap(),
            |key| {
                fs::rename(key, key.with_extension("away")).unwrap();
                std::os::unix::fs::symlink(key.with_extension("away"), key).unwrap();
            },
        ];
        for spoil in spoil {
            let temp = tempfile::tempdir().unwrap();
            let (member, job) = (open_directory(temp.path()).unwrap(), "a".parse().unwrap());
            let new = || Seals::new(Some(temp.path().to_owned()));
            let seal = new().seal(&key(), &member, &job, b"plan").unwrap();
            spoil(&temp.path().join(FILE));
            assert_eq!(new().seal(&key(), &member, &job, b"plan"), None);
            assert!(!new().is_seal(&seal, &key(), &member, &job, b"plan"));
        }
    }
}
