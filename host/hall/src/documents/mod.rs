//! Reads and writes the documents of projects: the files below `.lore/` of the integration worktree, for people and for
//! other programs.
//!
//! Files are read and written while no merge moves them. A write is committed at once. The module does not use meetings
//! and commissions, which are above it.

pub mod artifact;
mod issues;

use std::{cmp::Reverse, io, path::Path, sync::Arc};

use guild_contract::{
    OperationError,
    hall::{Artifact, ArtifactKind, Artifacts},
};
use guild_fs::fingerprint::Fingerprint;
use guild_git::{Integration, check_rules, is_rules_file};
use guild_jobs::Names;

use crate::{
    blocking::blocking,
    core::Core,
    files::{
        Files, below_lore, in_lore, is_of_host, names,
        protected::{LORE, protected},
        text,
    },
    home::Home,
    records::LiveRecords,
};

use artifact::ArtifactFile;

/// The most bytes of an artifact.
pub(crate) const MAX_BYTES: u64 = 4 << 20;
/// The most bytes of all contents in a list. Further documents are listed without their contents.
const MAX_LISTED_BYTES: usize = 4 << 20;
/// The document that describes a project, from `.lore/`.
const VISION: &str = "vision.md";
/// The most bytes of a commit message.
const MESSAGE_BYTES: usize = 64 << 10;

/// A document to write, and the commit message.
pub(crate) struct Edit {
    /// The path from the top of the worktree.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) content: String,
    /// The commit message.
    pub(crate) message: String,
}

/// The documents of a hall's projects.
pub struct Documents {
    core: Arc<Core>,
    /// The records that are written in their own worktrees.
    records: [Arc<dyn LiveRecords>; 2],
}

impl Documents {
    pub(crate) fn new(core: Arc<Core>, records: [Arc<dyn LiveRecords>; 2]) -> Self {
        Self { core, records }
    }

    /// The artifacts of a project: open ones before finished ones.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or it cannot be worked on.
    pub async fn list(&self, project: &str) -> Result<Artifacts, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let home = self.core.home.clone();
        integration.with_files(move |top| list(&home, top)).await?
    }

    /// The artifacts of a project that were changed last, newest first, without records and artifacts in final states.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::list`].
    pub async fn recent(&self, project: &str) -> Result<Artifacts, OperationError> {
        let mut found = self.list(project).await?;
        found.artifacts.retain(artifact::is_active);
        found.artifacts.sort_by_cached_key(|artifact| Reverse(artifact.last_modified.clone()));
        Ok(found)
    }

    /// The paths of all files below `.lore/`, relative to it.
    pub(crate) async fn paths(&self, project: &str) -> Result<Vec<String>, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let home = self.core.home.clone();
        let list = move |top: &Path| {
            let lore = named(LORE)?;
            let listed = Files::open(&home, top).and_then(|files| files.list(&lore));
            Ok(listed.map_err(|e| failed(&lore, "listed", &e))?.map(|listed| listed.files).unwrap_or_default())
        };
        integration.with_files(list).await?
    }

    /// One artifact, with its whole text. The record of a running commission or an open meeting is read from its
    /// worktree.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no artifact with that path, or it cannot be read.
    pub async fn read(&self, project: &str, path: &str) -> Result<Artifact, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let path = valid(path)?;
        let own = self.records.iter().find_map(|records| records.worktree_of(project, &path));
        if let Some((top, path)) = own {
            let home = self.core.home.clone();
            match blocking(move || read(&home, &top, &path)).await {
                Err(OperationError::NotFound(_)) => {}
                found => return found,
            }
        }
        let home = self.core.home.clone();
        integration.with_files(move |top| read(&home, top, &path)).await?
    }

    /// The description of a project: the first section of its `.lore/vision.md`. `None` if the file is missing or
    /// cannot be read.
    pub async fn vision(&self, project: &str) -> Option<String> {
        let (home, top) = (self.core.home.clone(), self.core.home.integration(project));
        // The file is read without a lock, so that the description is available while other work runs in the project.
        let vision = blocking(move || read(&home, &top, &in_lore(VISION))).await.ok()?;
        first_section(&vision.content)
    }

    /// The whole file of an image or a mockup.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no file of that kind with that path, or it cannot be read.
    pub async fn file(&self, project: &str, path: &str, kind: ArtifactKind) -> Result<ArtifactFile, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let path = valid(path)?;
        let media_type = artifact::media_type(&path).filter(|_| artifact::kind_of(&path) == Some(kind));
        let media_type = media_type.ok_or_else(|| {
            let file = path.rsplit('/').next().unwrap_or_default();
            let extension = file.rfind('.').filter(|at| *at > 0).and_then(|at| file.get(at..)).unwrap_or_default();
            OperationError::Unsupported(match kind {
                ArtifactKind::Image => format!(
                    "Unsupported image type: {extension}; {:?} is not a png, jpg, jpeg, webp, gif or svg",
                    below_lore(&path)
                ),
                _ => format!("Unsupported mockup type: {extension}; {:?} is not html", below_lore(&path)),
            })
        })?;
        let home = self.core.home.clone();
        let read = move |top: &Path| {
            let (bytes, state) = whole(&home, top, &path)?;
            let artifact = artifact::file(below_lore(&path), kind, artifact::time(&state));
            Ok(ArtifactFile { artifact, media_type, bytes })
        };
        integration.with_files(read).await?
    }

    /// Writes an artifact, commits it, and checks the commissions that wait for documents.
    ///
    /// # Errors
    ///
    /// Returns an error when the path is not that of an artifact, when the hall keeps its own files there, or when the
    /// file cannot be written.
    pub async fn write(&self, project: &str, path: &str, content: String) -> Result<(), OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let message = format!("Edit artifact: {path}");
        let path = valid(path)?;
        let is_rules = path.rsplit('/').next().is_some_and(is_rules_file);
        let checked = if is_rules { check_rules(content.as_bytes()) } else { Ok(()) };
        checked.map_err(|why| OperationError::Invalid(format!("{:?} {why}", below_lore(&path))))?;
        if content.len() as u64 > MAX_BYTES {
            return Err(OperationError::Invalid(format!("content has {} bytes, more than {MAX_BYTES}", content.len())));
        }
        check_writable(&integration, &path).await?;
        self.edit(project, move |_| Ok(((), Some(Edit { path, content, message })))).await
    }

    /// Writes and commits the document that `change` returns from the files of the integration worktree, if it returns
    /// one. Then notifies the commissions that wait. The caller has checked the path.
    pub(crate) async fn edit<T: Send + 'static>(
        &self,
        project: &str,
        change: impl FnOnce(&Files) -> Result<(T, Option<Edit>), OperationError> + Send + 'static,
    ) -> Result<T, OperationError> {
        let (settled, integration) = self.core.integration(project).await?;
        // No commission has such a name, and a project has one writer at a time.
        let (home, temporary) = (self.core.home.clone(), format!(".document.{}", settled.name()));
        let quota = self.core.projects.documents();
        let edit = move |top: &Path| -> Result<(T, Option<String>), OperationError> {
            let files = Files::open(&home, top).map_err(OperationError::io("the integration worktree"))?;
            let (done, edit) = change(&files)?;
            let Some(Edit { path, content, message }) = edit else { return Ok((done, None)) };
            let names = named(&path)?;
            let checked =
                files.check_documents(&names, content.len(), quota).map_err(|e| failed(&names, "written", &e))?;
            checked.map_err(OperationError::Conflict)?;
            let written = files.place(&names).and_then(|place| files.put(place, &temporary, content.as_bytes()));
            written.map_err(|e| failed(&names, "written", &e))?;
            Ok((done, Some(message)))
        };
        let work = move |top: &Path| {
            let (done, message) = match edit(top) {
                Ok((done, message)) => (Ok(done), message),
                Err(e) => (Err(e), None),
            };
            (done, message.unwrap_or_else(|| "Edit documents".to_owned()))
        };
        let done = integration.edit(work).await??;
        self.core.documents_changed(project).await?;
        Ok(done)
    }

    /// The number of uncommitted artifacts of a project, including records that were written since the last operation.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or git fails.
    pub async fn loose(&self, project: &str) -> Result<usize, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let loose = integration.loose().await?;
        Ok(loose.iter().filter(|file| below_lore(file) != file.as_str()).count())
    }

    /// Commits the uncommitted artifacts of a project, and checks the commissions that wait for documents. Returns
    /// `false` if there are none.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or the commit fails.
    pub async fn commit(&self, project: &str, message: &str) -> Result<bool, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        if message.len() > MESSAGE_BYTES || message.contains('\0') {
            let why = format!("message has at most {MESSAGE_BYTES} bytes, and no zero byte");
            return Err(OperationError::Invalid(why));
        }
        let committed = integration.commit_lore(message).await?;
        self.core.documents_changed(project).await?;
        Ok(committed)
    }
}

/// Checks that callers may write a document.
pub(crate) async fn check_writable(integration: &Integration, path: &str) -> Result<(), OperationError> {
    let links = integration.repository().links(integration.dir()).await?;
    let link = "it is a symbolic link of the project, which is checked out as a file with its target";
    let link = links.iter().any(|known| known == path).then_some(link);
    match protected(named(path)?.as_slice()).or(link) {
        Some(why) => {
            Err(OperationError::Invalid(format!("{:?} cannot be written by callers: {why}", below_lore(path))))
        }
        None => Ok(()),
    }
}

/// The text between the first first-level heading and the next heading; `None` if it is empty.
fn first_section(text: &str) -> Option<String> {
    let is_heading = |line: &&str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(char::is_whitespace));
    let lines = text.split('\n').skip_while(|line| !is_heading(line)).skip(1).take_while(|line| !is_heading(line));
    let section = lines.collect::<Vec<_>>().join("\n");
    Some(section.trim().to_owned()).filter(|section| !section.is_empty())
}

/// The artifacts of a worktree. It blocks.
fn list(home: &Home, top: &Path) -> Result<Artifacts, OperationError> {
    let files = Files::open(home, top).map_err(OperationError::io("the integration worktree"))?;
    let lore = named(LORE)?;
    let listed = files.list(&lore).map_err(|e| failed(&lore, "listed", &e))?;
    let (paths, truncated) = listed.map(|listed| (listed.files, listed.truncated)).unwrap_or_default();
    let (mut found, mut left) = (Vec::new(), MAX_LISTED_BYTES);
    for path in paths {
        let Some(kind) = artifact::kind_of(&path) else { continue };
        let full = in_lore(&path);
        // A file that cannot be read, or was removed in the meantime, is left out of the list.
        let Ok(names) = names(&full) else { continue };
        match kind {
            ArtifactKind::Document => {
                let Ok(Some((bytes, state))) = files.read(&names, MAX_BYTES) else { continue };
                let mut document = artifact::document(&path, &String::from_utf8_lossy(&bytes), artifact::time(&state));
                match left.checked_sub(document.content.len()) {
                    Some(rest) => left = rest,
                    None => document.content.clear(),
                }
                found.push(document);
            }
            ArtifactKind::Image | ArtifactKind::Mockup => {
                let Ok(Some(state)) = files.state(&names) else { continue };
                found.push(artifact::file(&path, kind, artifact::time(&state)));
            }
        }
    }
    artifact::sort(&mut found);
    Ok(Artifacts { artifacts: found, more: 0, truncated })
}

/// One artifact of a worktree. It blocks.
fn read(home: &Home, top: &Path, path: &str) -> Result<Artifact, OperationError> {
    let (bytes, state) = whole(home, top, path)?;
    let raw = String::from_utf8_lossy(&bytes).into_owned();
    let document = artifact::document(below_lore(path), &raw, artifact::time(&state));
    Ok(Artifact { raw_content: Some(raw), ..document })
}

/// The whole file of an artifact. It blocks.
fn whole(home: &Home, top: &Path, path: &str) -> Result<(Vec<u8>, Fingerprint), OperationError> {
    let names = named(path)?;
    let files = Files::open(home, top).map_err(OperationError::io("the worktree"))?;
    let missing = || {
        let what = match artifact::kind_of(path) {
            Some(ArtifactKind::Image) => "Image",
            Some(ArtifactKind::Mockup) => "Mockup",
            Some(ArtifactKind::Document) | None => "Artifact",
        };
        OperationError::NotFound(format!("{what} not found: {}", below_lore(path)))
    };
    files.read(&names, MAX_BYTES).map_err(|e| failed(&names, "read", &e))?.ok_or_else(missing)
}

/// Converts a caller's path of an artifact to a path from the top of a worktree.
fn valid(path: &str) -> Result<String, OperationError> {
    let path = resolved(path)?;
    named(&path)?;
    Ok(path)
}

/// Resolves `.` and `..` in a path by its names alone, since documents write paths from their own directory. The result
/// never leads out of `.lore/`.
pub(crate) fn resolved(path: &str) -> Result<String, OperationError> {
    let mut resolved = Vec::new();
    for name in below_lore(path).split('/') {
        match name {
            "." => {}
            ".." => {
                let left = || OperationError::Invalid(format!("Path traversal detected: {path:?} leads out of .lore/"));
                resolved.pop().ok_or_else(left)?;
            }
            name => resolved.push(name),
        }
    }
    Ok(format!("{LORE}/{}", resolved.join("/")))
}

pub(crate) fn named(path: &str) -> Result<Names<'_>, OperationError> {
    names(path).map_err(|e| OperationError::Invalid(e.to_string()))
}

pub(crate) fn failed(path: &Names<'_>, done: &str, error: &io::Error) -> OperationError {
    let path = text(path);
    let path = below_lore(&path);
    match error.kind() {
        io::ErrorKind::FileTooLarge => OperationError::Conflict(format!("{path:?} cannot be {done}: {error}")),
        io::ErrorKind::IsADirectory => {
            OperationError::Invalid(format!("{path:?} is a directory or a link, not a file"))
        }
        kind if is_of_host(kind) => OperationError::Internal(format!("{path:?} cannot be {done}: {kind}")),
        kind => OperationError::Invalid(format!(
            "{path:?} cannot be {done}, {kind}: its path may only contain directories, and no symbolic links"
        )),
    }
}
