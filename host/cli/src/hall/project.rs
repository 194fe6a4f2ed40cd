//! `guild project`: manages the repositories that workers may be commissioned for.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use guild_config::{Config, PermitError, PermittedProject, shell_word};
use guild_contract::OperationError;
use guild_hall::{
    NewProject, Permit, Registered, SOCKET, Tidied, Tidying, add_project, host_of, list_projects, remove_project,
};

use crate::{
    args::hall::{HomeArgs, Project, ProjectAdd, ProjectTidy},
    failure::Failure,
    local,
    output::{
        one_line, print, print_json, state_style,
        table::{Cell, Column, Table},
        tell,
    },
};

/// `guild project`.
pub(crate) async fn project(args: Project) -> Result<(), Failure> {
    match args {
        Project::Add(args) => add(args).await,
        Project::List { home, json } => list(&home, json),
        Project::Tidy(args) => tidy(args).await,
        Project::Remove { name, home } => remove(&name, &home),
    }
}

async fn add(args: ProjectAdd) -> Result<(), Failure> {
    let (config, home) = open(&args.home)?;
    let new = NewProject { name: args.name, path: args.path, branch: args.branch };
    let Registered { settings, known, moved_from, dirty } = add_project(&home, new, &config.limits).await?;
    let at = Path::new(&settings.path);
    let (file, permitted) = match &moved_from {
        Some(from) => config.move_project(Path::new(from), at)?,
        None => config.permit_project(at)?,
    };
    let (name, branch) = (&settings.name, settings.default_branch.as_deref().unwrap_or("its default branch"));
    print(|out| writeln!(out, "{name}"))?;
    let path = one_line(&settings.path, usize::MAX);
    tell(match (known, permitted) {
        _ if let Some(from) = &moved_from => {
            format!("the project {name} continues at {path}; it was at {}", one_line(from, usize::MAX))
        }
        (false, _) => format!("{path} is the project {name}, whose work begins from {branch}"),
        (true, true) => format!("{path} was listed as the project {name}; {} permits work in it now", file.display()),
        (true, false) => format!("{path} is already the project {name}"),
    });
    if dirty {
        tell("note: the working tree has changes that are not committed; workers do not see them");
    }
    let member = "WORKER \"TITLE\" --dispatch";
    tell(format_args!("next: {}`guild commission create {name} {member}`", reread(&home, permitted)));
    Ok(())
}

/// How a host learns of a changed permission: it reads `guild.toml` when it starts, and on SIGHUP.
fn reread(home: &Path, changed: bool) -> String {
    if UnixStream::connect(home.join(SOCKET)).is_err() {
        return format!("`guild serve --hall {}`, then ", shell_word(home));
    }
    match host_of(home) {
        _ if !changed => String::new(),
        Some(pid) => format!("`kill -HUP {pid}`, so that the host reads guild.toml again, then "),
        None => "send SIGHUP to the host, so that it reads guild.toml again, then ".to_owned(),
    }
}

async fn tidy(args: ProjectTidy) -> Result<(), Failure> {
    let (config, home) = open(&args.home)?;
    let ProjectTidy { older_than, unmerged, dry_run, .. } = args;
    let tidying = Tidying { older_than, unmerged, dry_run };
    let permits = permits(&config);
    let tidied = guild_hall::tidy(&home, args.project.as_deref(), &permits, &config.limits, tidying).await?;
    if args.json {
        return Ok(print_json(&tidied)?);
    }
    let shown = |one: &&Tidied| dry_run || one.removed;
    let mut table = Table::new(["PROJECT", "BRANCH", "COMMIT", "GOES"].map(Column::Left)).rest("WHY");
    for one in tidied.iter().filter(shown) {
        let goes = if one.removed { "yes" } else { "no" };
        let cells = [&*one.project, &one.branch, one.commit.get(..12).unwrap_or(&one.commit), goes].map(Cell::text);
        table.row(cells, Some(one.reason.clone()));
    }
    table.print()?;
    let (gone, all) = (tidied.iter().filter(|one| one.removed).count(), tidied.len());
    let done = if dry_run { "would be removed" } else { "removed" };
    tell(format_args!("{done}: {gone} of {all} branches of commissions and meetings"));
    Ok(())
}

fn permits(config: &Config) -> Vec<Permit> {
    let permit = |project: &PermittedProject| {
        let PermittedProject { path, push, pull_requests } = project.clone();
        Permit { path, push, pull_requests }
    };
    config.projects.iter().map(permit).collect()
}

fn list(args: &HomeArgs, json: bool) -> Result<(), Failure> {
    let (config, home) = open(args)?;
    let permits = permits(&config);
    let projects = list_projects(&home, &permits)?;
    if json {
        print_json(&projects)?;
        return Ok(());
    }
    if projects.is_empty() {
        tell(format_args!("no projects in {}; `guild project add PATH` adds one", home.display()));
    }
    let mut table = Table::new(["PROJECT", "PERMITTED"].map(Column::Left)).rest("PATH");
    for project in &projects {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = real(Path::new(&project.path));
        let permit = permits.iter().find(|permit| real(&permit.path) == own).filter(|_| project.problem.is_none());
        let permitted = match permit {
            None => "no".to_owned(),
            Some(permit) => {
                let more = [("push", permit.push), ("pull requests", permit.pull_requests)];
                let words = more.into_iter().filter_map(|(word, is_permitted)| is_permitted.then_some(word));
                std::iter::once("work").chain(words).collect::<Vec<_>>().join(", ")
            }
        };
        let cells = [
            Cell::text(&project.name),
            Cell::text(&permitted).styled(state_style(permit.is_none())),
            Cell::text(&project.path),
        ];
        table.row(cells, project.problem.clone());
    }
    table.print()?;
    Ok(())
}

fn remove(name: &str, args: &HomeArgs) -> Result<(), Failure> {
    let (config, home) = open(args)?;
    let removed = remove_project(&home, name)?;
    let (file, changed) = config.forbid_project(Path::new(&removed.path))?;
    let also = if changed { format!(", and {} permits no work in it", file.display()) } else { String::new() };
    tell(format_args!(
        "{} is no longer a project{also}; its branches below claude/ and its worktrees stay",
        one_line(&removed.path, usize::MAX)
    ));
    Ok(())
}

/// Reads the operator's policy, and finds the hall's home.
fn open(args: &HomeArgs) -> Result<(Config, PathBuf), Failure> {
    let config = local::config(&args.policy)?;
    let home = local::hall_home(args.home.as_deref(), "--home", &config)?;
    Ok((config, home))
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        Self::error(error.to_string())
    }
}

impl From<PermitError> for Failure {
    fn from(error: PermitError) -> Self {
        Self::error(error.to_string())
    }
}
