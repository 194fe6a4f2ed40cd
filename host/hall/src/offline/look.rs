//! Checks a hall for the operator, without opening it.

use std::path::Path;

use guild_contract::{Limits, OperationError, hall::ProjectSettings};
use guild_git::{Git, Repository};

use crate::{
    home::{
        Home,
        project_list::{Permit, Project, find_git},
    },
    offline::register::read_settings,
};

/// The findings about a hall. Each error has a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The state of the home.
    pub home: Result<String, String>,
    /// The state of the settings in `config.yaml`.
    pub settings: Result<String, String>,
    /// The state of each project, by name.
    pub projects: Vec<(String, Result<String, String>)>,
    /// The state of the program gh, if a project may have pull requests.
    pub gh: Option<Result<String, String>>,
}

/// Checks the hall in a home, which may be missing. It changes nothing.
pub async fn look_at(home: &Path, permits: &[Permit], limits: &Limits) -> Looked {
    let (path, permits) = (home.to_owned(), permits.to_owned());
    let read = tokio::task::spawn_blocking(move || {
        let settings = read_settings(&path).map_err(|e| e.to_string());
        let projects: Vec<_> = settings.iter().flat_map(|settings| settings.projects().to_owned()).collect();
        let projects: Vec<_> = projects.into_iter().map(|settings| Project::new(settings, &permits)).collect();
        (Home::look_at(&path).map(str::to_owned).map_err(|e| e.to_string()), settings, projects)
    });
    let (home, settings, projects) = match read.await {
        Ok(read) => read,
        Err(e) => (Err(e.to_string()), Ok(Default::default()), Vec::new()),
    };
    let git = find_git(None, limits).await;
    let mut looked = Vec::new();
    for project in &projects {
        let found = match (&git, project.usable()) {
            (_, Err(e)) => Err(e),
            (Err(e), _) => Err(OperationError::Conflict(e.to_string())),
            (Ok(git), Ok(permit)) => look_at_project(git, &project.settings, permit).await,
        };
        looked.push((project.name().to_owned(), found.map_err(|e| e.to_string())));
    }
    let wants_gh = projects.iter().any(|project| project.permit.as_ref().is_ok_and(|permit| permit.pull_requests));
    let gh = git.as_ref().ok().filter(|_| wants_gh).map(|git| {
        let gh = git.gh_program().map_err(|e| e.to_string())?;
        Ok(format!("{}; the first pull request checks its account", gh.display()))
    });
    let settings = settings.map(|settings| match settings.projects() {
        [] => "it has no projects; `guild project add PATH` adds one".to_owned(),
        [one] => format!("it has the project {}", one.name),
        all => format!("it has {} projects", all.len()),
    });
    Looked { home, settings, projects: looked, gh }
}

async fn look_at_project(git: &Git, settings: &ProjectSettings, permit: &Permit) -> Result<String, OperationError> {
    let repository = Repository::open(git, Path::new(&settings.path), settings.default_branch.as_deref()).await?;
    let mut said = format!("{}, from {}", repository.path().display(), repository.default_branch());
    if repository.is_dirty().await? {
        said.push_str("; its working tree has uncommitted changes, which workers do not see");
    }
    if permit.push || permit.pull_requests {
        if repository.origin().await?.is_none() {
            return Err(OperationError::Conflict(format!(
                "guild.toml permits pushing, and the repository has no origin; add one with `git -C {} remote add \
                 origin URL`",
                repository.path().display()
            )));
        }
        said.push_str(if permit.pull_requests { "; pushed, with pull requests" } else { "; pushed" });
    }
    Ok(said)
}
