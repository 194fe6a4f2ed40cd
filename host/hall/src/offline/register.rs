//! Registers projects in a home and lists its contents, without opening its hall, which may run at the same time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cap_std::fs::Dir;
use guild_contract::{
    Limits, OperationError,
    hall::{ProjectSettings, ProjectView},
};
use guild_fs::{
    durable::{Survives, if_there, open_dir, open_directory, read_whole, replace},
    file_lock::FileLock,
};
use guild_git::Repository;

use crate::{
    commissions::commission::Commission,
    home::{
        COMMISSIONS, Home, MEETINGS, SETTINGS,
        project_list::{Permit, Project, check_name, find_git},
        settings::{self, Settings},
    },
    meetings::meeting::Meeting,
    records::{HallRecord, store},
};

/// The file that is locked while the list of projects changes. The owner of a home holds a different lock.
const LOCK: &str = ".config.lock";
/// The longest wait for another process to change the list. A change takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(5);

/// A project to register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewProject {
    /// The project's name; by default that of its directory.
    pub name: Option<String>,
    /// The top directory of the user's working tree.
    pub path: PathBuf,
    /// The branch on which work starts; detected if it is `None`.
    pub branch: Option<String>,
}

/// A registered project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The project's entry in the list.
    pub settings: ProjectSettings,
    /// Whether the project was registered before.
    pub known: bool,
    /// The former path, if the project was moved.
    pub moved_from: Option<String>,
    /// Whether the working tree has uncommitted changes. Workers do not see them.
    pub dirty: bool,
}

/// Examines a project and registers it in the home, without changing the project. This does not grant the operator's
/// permission. A registered project stays unchanged; if its directory is gone, and a repository is registered under its
/// name, the project counts as moved there.
///
/// # Errors
///
/// Returns the reason that the directory cannot be a project.
pub async fn add_project(home: &Path, new: NewProject, limits: &Limits) -> Result<Registered, OperationError> {
    let git = find_git(None, limits).await?;
    let invalid = |e: guild_git::GitError| OperationError::Invalid(e.to_string());
    let repository = Repository::open(&git, &new.path, new.branch.as_deref()).await.map_err(invalid)?;
    let dirty = repository.is_dirty().await.map_err(invalid)?;
    let path = repository.path().to_owned();
    let Some(written) = path.to_str().map(str::to_owned) else {
        return Err(OperationError::Invalid(format!(
            "{} is not UTF-8, and {SETTINGS} requires it; rename it",
            path.display()
        )));
    };
    Home::make(home)?;
    let list = List::open(home)?;
    let settings = list.read()?;
    let is_here = |known: &&ProjectSettings| fs::canonicalize(&known.path).is_ok_and(|known| known == path);
    if let Some(known) = settings.projects().iter().find(is_here) {
        return match new.name.filter(|name| *name != known.name) {
            Some(_) => {
                Err(OperationError::Conflict(format!("{written} is already registered as project '{}'", known.name)))
            }
            None => Ok(Registered { settings: known.clone(), known: true, moved_from: None, dirty }),
        };
    }
    let of_directory = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_named = new.name.is_some();
    let name = new.name.unwrap_or_else(of_directory);
    check_name(&name)?;
    let gone = |known: &&ProjectSettings| known.name == name && !Path::new(&known.path).exists();
    if let Some(known) = settings.projects().iter().find(gone) {
        // Another repository with the same directory name must not get this project's permissions.
        if !is_named {
            return Err(OperationError::Conflict(format!(
                "the project '{name}' is at {}, which does not exist now; if it was moved to {written}, add `--name \
                 {name}`; if that is another project, give it another name with `--name`",
                known.path
            )));
        }
        list.write(&settings.moved(&name, &written)?)?;
        let (settings, moved_from) = (ProjectSettings { path: written, ..known.clone() }, Some(known.path.clone()));
        return Ok(Registered { settings, known: true, moved_from, dirty });
    }
    let branch = Some(repository.default_branch().to_owned());
    let project = ProjectSettings { name, path: written, default_branch: branch, ..ProjectSettings::default() };
    list.write(&settings.with(&project)?)?;
    Ok(Registered { settings: project, known: false, moved_from: None, dirty })
}

/// Removes a project from the list. Its branches, worktrees and records stay.
///
/// # Errors
///
/// Returns an error when there is no such project, or when it has running work.
pub fn remove_project(home: &Path, name: &str) -> Result<ProjectSettings, OperationError> {
    let list = List::open(home)?;
    let settings = list.read()?;
    let removed = settings.projects().iter().find(|known| known.name == name).cloned();
    let without = settings.without(name)?;
    let kept = list_commissions(home)?;
    if let Some(active) = kept.iter().find(|one| one.project_name == name && one.status.is_active()) {
        return Err(OperationError::Conflict(format!(
            "project '{name}' has active activities; cancel {} before it is removed",
            active.commission_id
        )));
    }
    list.write(&without)?;
    removed.ok_or_else(|| OperationError::NotFound(format!("project '{name}' not found")))
}

/// Changes or removes the group of a project. It blocks.
///
/// # Errors
///
/// Returns an error when there is no such project, or the list cannot be changed.
pub(crate) fn group_project(home: &Path, name: &str, group: Option<&str>) -> Result<(), OperationError> {
    let list = List::open(home)?;
    list.write(&list.read()?.grouped(name, group)?)
}

/// The projects of a home, in their order, each with the reason that it cannot be worked on, if there is one.
///
/// # Errors
///
/// Returns an error when the list cannot be read.
pub fn list_projects(home: &Path, permits: &[Permit]) -> Result<Vec<ProjectView>, OperationError> {
    let view = |settings: &ProjectSettings| Project::new(settings.clone(), permits).view();
    Ok(read_settings(home)?.projects().iter().map(view).collect())
}

/// The settings in `config.yaml` of a home; the file may be missing.
///
/// # Errors
///
/// Returns an error when the file cannot be read.
pub(crate) fn read_settings(home: &Path) -> Result<Settings, OperationError> {
    match open_directory(home) {
        Ok(dir) => read(&dir),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Settings::default()),
        Err(e) => Err(OperationError::io(home.display())(e)),
    }
}

/// The stored commissions of a home, in no particular order.
///
/// # Errors
///
/// Returns an error when the commissions cannot be read.
pub fn list_commissions(home: &Path) -> Result<Vec<Commission>, OperationError> {
    kept(home, COMMISSIONS)
}

/// The stored meetings of a home, in no particular order.
///
/// # Errors
///
/// Returns an error when the meetings cannot be read.
pub fn list_meetings(home: &Path) -> Result<Vec<Meeting>, OperationError> {
    kept(home, MEETINGS)
}

/// The stored records of a home; none if no host has served it yet.
fn kept<T: HallRecord>(home: &Path, of: &str) -> Result<Vec<T>, OperationError> {
    let dir = if_there(open_directory(&home.join(of))).map_err(OperationError::io(of))?;
    dir.map_or_else(|| Ok(Vec::new()), |dir| store::load(&dir).map_err(OperationError::io(of)))
}

/// The list of projects of a home, which no other process changes while this value exists.
struct List {
    dir: Arc<Dir>,
    _lock: FileLock,
}

impl List {
    /// Opens the list after waiting for other processes. It blocks.
    fn open(home: &Path) -> Result<Self, OperationError> {
        let at = || format!("the hall's home {}", home.display());
        // The directory is opened with read access, and not only by path, so that its renames can be synced.
        let dir = open_directory(home).and_then(|dir| open_dir(&dir, ".")).map_err(OperationError::io(at()))?;
        let dir = Arc::new(dir);
        let until = Instant::now() + PATIENCE;
        loop {
            match FileLock::try_acquire(&dir, LOCK).map_err(OperationError::io(at()))? {
                Some(lock) => return Ok(Self { dir, _lock: lock }),
                None if Instant::now() < until => thread::sleep(POLL),
                None => {
                    return Err(OperationError::Conflict(format!(
                        "another process has held {LOCK} of {} for too long",
                        at()
                    )));
                }
            }
        }
    }

    fn read(&self) -> Result<Settings, OperationError> {
        read(&self.dir)
    }

    fn write(&self, settings: &Settings) -> Result<(), OperationError> {
        let written = replace(&self.dir, SETTINGS, settings.text().as_bytes(), Survives::PowerCut);
        written.map(drop).map_err(OperationError::io(SETTINGS))
    }
}

fn read(dir: &Dir) -> Result<Settings, OperationError> {
    let bytes = read_whole(dir, SETTINGS, settings::MAX_BYTES).map_err(OperationError::io(SETTINGS))?;
    Settings::parse(&bytes.map(|(text, _)| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default())
}
