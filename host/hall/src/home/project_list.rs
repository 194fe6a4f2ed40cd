//! Lists the projects of `config.yaml`, with the operator's permits for each.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use guild_contract::{
    Limits, OperationError,
    hall::{ProjectSettings, ProjectStatus, ProjectView},
};
use guild_fs::{durable::read_whole, fingerprint::Fingerprint};
use guild_git::{DocumentQuota, Git, GitError, GitOptions, Integration, Repository};
use tokio::sync::OnceCell;

use crate::{
    blocking::lock,
    home::{
        Home, SETTINGS,
        settings::{self, Settings},
    },
};

/// The time limit of one git run.
const GIT_LIMIT: Duration = Duration::from_secs(120);
/// The longest name of a project, which becomes the name of a directory.
const MAX_NAME: usize = 64;

/// The operator's permit for a project: `[[project]]` of `guild.toml`. Agents can edit `config.yaml`, but not
/// `guild.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// The top directory of the user's working tree.
    pub path: PathBuf,
    /// Whether `claude/main` may be pushed.
    pub push: bool,
    /// Whether pull requests may be created.
    pub pull_requests: bool,
}

/// A project in `config.yaml`.
#[derive(Debug)]
pub(crate) struct Project {
    /// The project's settings in `config.yaml`.
    pub(crate) settings: ProjectSettings,
    /// The operator's permit, or the reason that there is none.
    pub(crate) permit: Result<Permit, String>,
    /// The real path of the project.
    real: PathBuf,
    /// The locks and the worktree that all readings of the project share.
    pub(crate) shared: Arc<Shared>,
}

/// The locks and the worktree of a project, so that operations wait for each other. A project that is read again shares
/// them with the earlier reading, which running operations use, if its name, path and default branch are the same.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    integration: OnceCell<Arc<Integration>>,
    /// Held while the project is opened for callers that may stop waiting.
    pub(crate) opening: Arc<tokio::sync::Mutex<()>>,
    /// Held while a pull request is created, and while `claude/main` is updated from the default branch.
    pub(crate) pulls: tokio::sync::Mutex<()>,
    /// Held while a tick starts, so that two simultaneous ticks do not carry out the same standing orders.
    pub(crate) ticks: tokio::sync::Mutex<()>,
}

/// The list of projects, which is read again after the file has changed.
pub(crate) struct ProjectList {
    permits: Mutex<Arc<[Permit]>>,
    program: Option<PathBuf>,
    limits: Arc<Limits>,
    git: OnceCell<Git>,
    read: Mutex<Option<Known>>,
}

struct Known {
    file: Option<Fingerprint>,
    settings: Settings,
    projects: BTreeMap<String, Arc<Project>>,
}

/// Checks the name of a project, which becomes the name of a directory.
///
/// # Errors
///
/// Returns a sentence about valid names.
pub fn check_name(name: &str) -> Result<(), OperationError> {
    let is_plain = (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if is_plain {
        return Ok(());
    }
    Err(OperationError::Invalid(format!(
        "a project's name is 1 to {MAX_NAME} letters, digits, '.', '-' or '_', and begins with a letter or digit: \
         {name:?} is not valid"
    )))
}

/// Finds the program git; without a path, on `PATH`.
///
/// # Errors
///
/// Returns an error when git is missing or too old.
pub async fn find_git(program: Option<PathBuf>, limits: &Limits) -> Result<Git, GitError> {
    let (memory_bytes, documents) = (limits.git_memory_bytes, quota(limits));
    Git::find(GitOptions { program, limit: GIT_LIMIT, memory_bytes, documents, now: SystemTime::now }).await
}

/// The quota for the documents of a project.
pub(crate) fn quota(limits: &Limits) -> DocumentQuota {
    DocumentQuota { files: limits.project_documents, bytes: limits.project_documents_bytes }
}

impl Project {
    /// The project's name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The operator's permit, if the project exists. It blocks for a moment.
    ///
    /// # Errors
    ///
    /// Returns the reason that the project cannot be worked on.
    pub(crate) fn usable(&self) -> Result<&Permit, OperationError> {
        let permit = self.permit.as_ref().map_err(|why| OperationError::Conflict(why.clone()))?;
        if !Path::new(&self.settings.path).exists() {
            return Err(OperationError::Conflict(format!(
                "{} does not exist; if it was moved, run `guild project add NEW-PATH --name {}`, which registers its \
                 new path",
                self.settings.path,
                self.name()
            )));
        }
        Ok(permit)
    }

    /// The project in the form that callers see.
    pub(crate) fn view(&self) -> ProjectView {
        ProjectView {
            name: self.settings.name.clone(),
            path: self.settings.path.clone(),
            group: self.settings.group.clone(),
            status: ProjectStatus::Registered,
            problem: self.permit.as_ref().err().cloned(),
        }
    }

    pub(crate) fn new(settings: ProjectSettings, permits: &[Permit]) -> Self {
        let path = Path::new(&settings.path);
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = real(path);
        let found = permits.iter().find(|permit| real(&permit.path) == own);
        let permit = match (check_name(&settings.name), found) {
            (Err(e), _) => Err(e.to_string()),
            (Ok(()), _) if !path.is_absolute() => Err(format!("its path {:?} is not absolute", settings.path)),
            (Ok(()), Some(permit)) => Ok(permit.clone()),
            (Ok(()), None) => Err(format!(
                "guild.toml has no [[project]] with path = {:?}, so the project is not touched; run `guild project \
                 add {}`",
                settings.path, settings.path
            )),
        };
        Self { settings, permit, real: own, shared: Arc::default() }
    }
}

impl ProjectList {
    pub(crate) fn new(permits: Vec<Permit>, program: Option<PathBuf>, limits: Arc<Limits>) -> Self {
        Self { permits: Mutex::new(permits.into()), program, limits, git: OnceCell::new(), read: Mutex::new(None) }
    }

    /// The quota for the documents of a project.
    pub(crate) fn documents(&self) -> DocumentQuota {
        quota(&self.limits)
    }

    /// Replaces the permits.
    pub(crate) fn permit(&self, permits: Vec<Permit>) {
        *lock(&self.permits) = permits.into();
        if let Some(known) = &mut *lock(&self.read) {
            known.file = None;
        }
    }

    /// The permits.
    pub(crate) fn permits(&self) -> Arc<[Permit]> {
        lock(&self.permits).clone()
    }

    /// The names of the projects when the file was last read.
    pub(crate) fn known(&self) -> Vec<String> {
        let read = lock(&self.read);
        read.iter().flat_map(|known| known.projects.keys().cloned()).collect()
    }

    /// The projects by name, and the other settings of the file. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be read and was never read before.
    pub(crate) fn now(&self, home: &Home) -> Result<(Settings, BTreeMap<String, Arc<Project>>), OperationError> {
        let mut read = lock(&self.read);
        let file = Fingerprint::at(home.dir(), SETTINGS).map_err(OperationError::io(SETTINGS))?;
        let known = read.as_ref().filter(|known| known.file == file && known.file.is_some());
        if let Some(known) = known {
            return Ok((known.settings.clone(), known.projects.clone()));
        }
        let (parsed, file) = Self::read(home)?;
        let settings = match (parsed, &*read) {
            (Ok(settings), _) => settings,
            (Err(e), Some(known)) => {
                tracing::error!("{e}; its previous content stays in effect");
                known.settings.clone()
            }
            (Err(e), None) => return Err(e),
        };
        let permits = self.permits();
        let project = |settings: &ProjectSettings| {
            let mut new = Project::new(settings.clone(), &permits);
            let old = read
                .as_ref()
                .and_then(|known| known.projects.get(&settings.name))
                .filter(|old| old.real == new.real && old.settings.default_branch == settings.default_branch);
            if let Some(old) = old {
                new.shared = old.shared.clone();
            }
            (settings.name.clone(), Arc::new(new))
        };
        let projects: BTreeMap<_, _> = settings.projects().iter().map(project).collect();
        *read = Some(Known { file, settings: settings.clone(), projects: projects.clone() });
        Ok((settings, projects))
    }

    /// The projects in the form that callers see, in the order of the file. It blocks.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::now`].
    pub(crate) fn views(&self, home: &Home) -> Result<Vec<ProjectView>, OperationError> {
        let (settings, projects) = self.now(home)?;
        let known = settings.projects().iter().filter_map(|settings| projects.get(&settings.name));
        Ok(known.map(|project| project.view()).collect())
    }

    /// Reads the file. Returns its settings or its fault, and the state of the file. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when the file cannot be read.
    pub(crate) fn read(home: &Home) -> Result<(Result<Settings, OperationError>, Option<Fingerprint>), OperationError> {
        let bytes = read_whole(home.dir(), SETTINGS, settings::MAX_BYTES).map_err(OperationError::io(SETTINGS))?;
        let (text, file) = bytes.map_or_else(Default::default, |(bytes, file)| (bytes, Some(file)));
        Ok((Settings::parse(&String::from_utf8_lossy(&text)), file))
    }

    /// The program git.
    ///
    /// # Errors
    ///
    /// Returns an error when git is missing or too old.
    pub(crate) async fn git(&self) -> Result<&Git, GitError> {
        self.git.get_or_try_init(|| find_git(self.program.clone(), &self.limits)).await
    }

    /// The integration worktree of a project, which is created at its first use.
    ///
    /// # Errors
    ///
    /// Returns an error when the project is not permitted, or cannot be worked on.
    pub(crate) async fn integration(&self, home: &Home, project: &Project) -> Result<Arc<Integration>, OperationError> {
        let name = project.name();
        let unusable = |e: &dyn Display| OperationError::Conflict(format!("project {name:?} cannot be worked on: {e}"));
        project.usable().map_err(|e| unusable(&e))?;
        let open = async || {
            let git = self.git().await?;
            let path = Path::new(&project.settings.path);
            let repository = Repository::open(git, path, project.settings.default_branch.as_deref()).await?;
            repository.integration(&home.integration(name)).await.map(Arc::new)
        };
        let opened = project.shared.integration.get_or_try_init(open).await;
        opened.cloned().map_err(|e| unusable(&e))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_project_shares_its_worktree_with_what_it_was_until_its_path_or_default_branch_changes() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home"), false).unwrap();
        let projects = ProjectList::new(Vec::new(), None, Arc::default());
        let reads = |text: &str| {
            fs::write(home.path().join(SETTINGS), format!("projects:\n  - name: demo\n    {text}\n")).unwrap();
            projects.now(&home).unwrap().1.remove("demo").unwrap()
        };
        let first = reads("path: /p/demo");
        let is_shared = |project: &Project| Arc::ptr_eq(&project.shared, &first.shared);
        let capped = reads("path: /p/demo\n    commissionCap: 7");
        assert!(capped.settings.commissions() == 7 && is_shared(&capped));
        projects.permit(vec![Permit { path: "/p/demo".into(), push: true, pull_requests: false }]);
        let permitted = reads("path: /p/demo");
        assert!(permitted.permit.is_ok() && is_shared(&permitted));
        assert!(!is_shared(&reads("path: /p/demo\n    defaultBranch: next")));
        assert!(!is_shared(&reads("path: /p/other")));

        // Nor where the path leads elsewhere.
        let (link, to) = (dir.path().join("link"), |name: &str| dir.path().join(name));
        ["one", "two"].iter().for_each(|name| fs::create_dir(to(name)).unwrap());
        symlink(to("one"), &link).unwrap();
        let one = reads(&format!("path: {}", link.display()));
        fs::remove_file(&link).unwrap();
        symlink(to("two"), &link).unwrap();
        let two = reads(&format!("path: {}\n    commissionCap: 7", link.display()));
        assert!(!Arc::ptr_eq(&one.shared, &two.shared));
    }
}
