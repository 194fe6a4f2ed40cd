//! Opens the read roots of a host, and the readers of each member.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use guild_agent::{Broker, ReadRoots, RootError};
use guild_config::Config;
use guild_contract::{
    Grants, Limits, MemberKey,
    capability::grants::{Names, wildcard},
    manifest::ComponentSpec,
};
use guild_extractive::LocalSearch;
use guild_hall::Attempt;
use guild_jobs::ATTACHMENTS;
use guild_session::files::Files;
use serde::{Deserialize, Serialize};

use super::runtimes::Runtimes;

/// A read root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRoot {
    /// The name by which sessions see it.
    pub name: String,
    /// Where it is, without symlinks.
    pub path: PathBuf,
}

/// The directories that sessions may read: those of the configuration, and those that were named besides.
pub(crate) fn read_roots(config: &Config, sources: Vec<PathBuf>) -> Result<Option<ReadRoots>, RootError> {
    let roots = config.roots.iter().map(|root| (root.name.clone(), root.path.clone()));
    let roots: Vec<_> = roots.chain(sources.into_iter().map(|path| (None, path))).collect();
    if roots.is_empty() {
        return Ok(None);
    }
    Ok(Some(ReadRoots::open_named(roots)?.with_limits(&config.limits)))
}

/// The read roots of a host: opened once, and indexed once for those who read the same ones. Each member has readers of
/// its own, so that its searches wait for its own only.
pub(crate) struct Sources {
    roots: Option<ReadRoots>,
    readers: Mutex<BTreeMap<Reading, Reader>>,
}

/// Which member reads roots of which names; no member, where what it reads is only to be shown.
type Reading = (Option<MemberKey>, Vec<String>);

/// The readers of a member that share the same roots.
#[derive(Clone)]
pub(crate) struct Reader {
    /// The roots; none where there are none.
    pub(crate) files: Option<Arc<dyn Files>>,
    /// The read-only tools over them.
    pub(crate) broker: Broker,
    pub(crate) local: Option<Arc<LocalSearch>>,
}

impl Sources {
    pub(crate) fn new(roots: Option<ReadRoots>) -> Self {
        Self { roots, readers: Mutex::default() }
    }

    /// The names of all of them.
    pub(crate) fn names(&self) -> Vec<String> {
        self.roots.as_ref().map(Files::roots).unwrap_or_default()
    }

    /// The names of those that are granted.
    pub(crate) fn granted(&self, grants: &Grants) -> Vec<String> {
        let is_granted = |name: &String| grants.roots.as_ref().is_some_and(|roots| roots.grant(name, wildcard));
        self.names().into_iter().filter(is_granted).collect()
    }

    /// The granted roots with their paths.
    pub(crate) fn places(&self, grants: &Grants) -> Vec<ServedRoot> {
        let granted = self.granted(grants);
        let all = self.roots.iter().flat_map(ReadRoots::paths);
        all.filter(|(name, _)| granted.iter().any(|granted| granted == name))
            .map(|(name, path)| ServedRoot { name: name.to_owned(), path: path.to_owned() })
            .collect()
    }

    /// The names of exact roots that a manifest asks for, and that the host does not have.
    pub(crate) fn missing<'a>(&self, spec: &'a ComponentSpec) -> Vec<&'a str> {
        let known = self.names();
        let asked = spec.grants.files.iter().flat_map(|files| &files.roots);
        asked.filter(|name| !name.contains('*') && !known.contains(*name)).map(String::as_str).collect()
    }

    /// What the component and the sessions of one job read that has a worktree of its own besides the roots that its
    /// member is granted. Sessions read the worktree by their base toolbox. The hall's records there are no sources of
    /// its reports.
    ///
    /// # Errors
    ///
    /// Returns an error when a root cannot be opened, or when two roots have the same name.
    pub(crate) fn with(
        &self,
        attempt: &Attempt,
        grants: &Grants,
        runtimes: &Runtimes,
        limits: &Limits,
    ) -> Result<(Reader, Reader), String> {
        let names = self.granted(grants);
        let own = ReadRoots::open_worktree(attempt.roots())
            .map_err(|e| e.to_string())?
            .with_limits(limits)
            .without_sources(attempt.records())
            .without(attempt.absent());
        let reader = |may_read: Option<&Names>| {
            let read = |name: &String| may_read.is_some_and(|roots| roots.grant(name, wildcard));
            let own = own.only(&own.roots().into_iter().filter(read).collect::<Vec<_>>());
            let roots = match &self.roots {
                Some(roots) => roots.only(&names).and(&own).map_err(|e| e.to_string())?,
                None => own,
            };
            let files = (!roots.roots().is_empty()).then(|| Arc::new(roots) as Arc<dyn Files>);
            let local = files.as_ref().map(|files| Arc::new(runtimes.search(files)));
            Ok::<_, String>(Reader { broker: Broker::new(files.clone()), files, local })
        };
        let of_component = grants.roots.as_ref();
        Ok((reader(of_component)?, reader(grants.base.roots.as_ref().or(of_component))?))
    }

    /// The reader of the sessions of one job: its attachments in this directory, and the roots that its member is
    /// granted.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be opened, or when a root has its name.
    pub(crate) fn with_attachments(
        &self,
        directory: &Path,
        grants: &Grants,
        runtimes: &Runtimes,
        limits: &Limits,
    ) -> Result<Reader, String> {
        let own = ReadRoots::open_worktree([(ATTACHMENTS.to_owned(), directory)]).map_err(|e| e.to_string())?;
        let own = own.with_limits(limits);
        let roots = match &self.roots {
            Some(roots) => roots.only(&self.granted(grants)).and(&own).map_err(|e| e.to_string())?,
            None => own,
        };
        let files = Arc::new(roots) as Arc<dyn Files>;
        let local = Some(Arc::new(runtimes.search(&files)));
        Ok(Reader { broker: Broker::new(Some(files.clone())), files: Some(files), local })
    }

    /// The readers of a member over its granted roots.
    pub(crate) fn of(&self, member: Option<&MemberKey>, grants: &Grants, runtimes: &Runtimes) -> Reader {
        let names = self.granted(grants);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = readers.entry((member.cloned(), names)).or_insert_with_key(|(_, names)| {
            let files = self.roots.as_ref().filter(|_| !names.is_empty());
            let files = files.map(|roots| Arc::new(roots.only(names)) as Arc<dyn Files>);
            let local = files.as_ref().map(|files| Arc::new(runtimes.search(files)));
            Reader { broker: Broker::new(files.clone()), files, local }
        });
        reader.clone()
    }
}
