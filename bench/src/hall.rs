//! Measures commissions on a project of 10,000 files, with the real git and a worker that ends at once, so without the
//! worker's own time. The same run measures bare git for comparison.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use guild_contract::{
    Decision, JobId, MemberKey, OperationError,
    hall::{CommissionFilter, CommissionId, CommissionStatus, HallEvent, NewCommission},
};
use guild_fs::clock::SystemClock;
use guild_git::Checkout;
use guild_hall::{
    Attempt, Hall, HallOptions, NotBegun, Outcome as Ended, Permit, Requester, Worker, WorkerJobs, Workers,
};

use crate::{
    Outcome, host,
    stats::{Aim, Report, median, ms, percentile},
};

const FILES: usize = 10_000;
const COMMISSIONS: usize = 20;
const LISTED: usize = 1000;

/// Measures starts, whole commissions, and a list of many commissions.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let root = std::path::absolute(host::scratch().join("hall"))?;
    let _ = fs::remove_dir_all(&root);
    let project = root.join("project");
    make_project(&project, FILES)?;
    let home = root.join("home");
    fs::create_dir_all(&home)?;
    fs::write(home.join("config.yaml"), format!("projects:\n  - name: demo\n    path: {}\n", project.display()))?;
    let permits = vec![Permit { path: project.clone(), ..Permit::default() }];
    let hall = Hall::open(HallOptions {
        home,
        has_passed_socket: false,
        permits,
        delegation: Default::default(),
        git: None,
        limits: Arc::default(),
        clock: Arc::new(SystemClock),
    })?;
    hall.begin_work(Arc::new(Instantly)).await?;
    // The integration worktree is created once.
    hall.commissions.create(commission("warm"), &Requester::User).await?;

    let (mut starts, mut wholes, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 0..COMMISSIONS {
        bare.push(bare_git(&project, &root.join(format!("bare-{nth}")), nth)?);
        let id = hall.commissions.create(commission(&format!("{nth}")), &Requester::User).await?.commission_id;
        let mut events = hall.events();
        let begun = Instant::now();
        hall.commissions.dispatch(id.as_str(), &Requester::User).await?;
        loop {
            let event = events.recv().await?;
            let HallEvent::CommissionStatus { commission_id, status, reason, .. } = &*event else { continue };
            match status {
                _ if *commission_id != id => {}
                CommissionStatus::InProgress => starts.push(ms(begun.elapsed())),
                CommissionStatus::Completed => break wholes.push(ms(begun.elapsed())),
                CommissionStatus::Failed => return Err(format!("a commission failed: {reason}").into()),
                _ => {}
            }
        }
    }
    let how = |all: &[f64]| format!("median of {COMMISSIONS}, slowest {:.0} ms; {FILES} files", percentile(all, 1.0));
    let (start, git) = (median(&starts), median(&bare));
    report.add("bare git: sparse worktree on a branch", git, "ms", Aim::Stated, &how(&bare));
    report.add("start of an attempt", start, "ms", Aim::Stated, &how(&starts));
    report.add("start of an attempt, over bare git", start / git, "x", Aim::AtMost(3.0), "the same run");
    report.add("a whole commission, without its session", median(&wholes), "ms", Aim::AtMost(2000.0), &how(&wholes));

    let before = resident()?;
    for nth in 0..LISTED {
        let mut new = commission(&format!("waits {nth}"));
        new.dependencies = vec!["never.md".to_owned()];
        let id: CommissionId = hall.commissions.create(new, &Requester::User).await?.commission_id;
        if nth == 0 {
            hall.commissions.dispatch(id.as_str(), &Requester::User).await?;
        }
    }
    hall.commissions.check_dependencies(None).await?;
    report.add("1,000 waiting commissions", resident()? - before, "MiB", Aim::AtMost(20.0), "VmRSS, more than before");
    let mut lists = Vec::new();
    for _ in 0..COMMISSIONS {
        let begun = Instant::now();
        let listed = hall
            .commissions
            .list(&CommissionFilter { project_name: Some("demo".to_owned()), ..CommissionFilter::default() })
            .await?;
        lists.push(ms(begun.elapsed()));
        if listed.commissions.len() < LISTED {
            return Err("the list is incomplete".into());
        }
    }
    report.add(
        "list of 1,000 commissions",
        median(&lists),
        "ms",
        Aim::AtMost(20.0),
        &format!("median of {COMMISSIONS}"),
    );
    Ok(())
}

fn commission(title: &str) -> NewCommission {
    NewCommission {
        project_name: "demo".to_owned(),
        title: title.to_owned(),
        worker_name: "Worker".to_owned(),
        prompt: "Measure".to_owned(),
        ..NewCommission::default()
    }
}

/// A repository with one commit of many files in a hundred directories, and a few documents.
pub(crate) fn make_project(project: &Path, files: usize) -> Outcome<()> {
    for nth in 0..files {
        let directory = project.join(format!("src/{:02}", nth % 100));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(format!("{nth}.txt")), format!("file {nth}\n"))?;
    }
    fs::create_dir_all(project.join(".lore/specs"))?;
    for nth in 0..10 {
        fs::write(project.join(format!(".lore/specs/{nth}.md")), format!("# {nth}\n"))?;
    }
    git(project, &["init", "--quiet", "--initial-branch=main"])?;
    git(project, &["add", "--all"])?;
    git(project, &["-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "--quiet", "--message=Begin"])
}

/// The commands that a person would type: a worktree on its own branch with only `.lore/`.
fn bare_git(project: &Path, dir: &Path, nth: usize) -> Outcome<f64> {
    let begun = Instant::now();
    let path = dir.to_string_lossy();
    git(project, &["worktree", "add", "--quiet", "--no-checkout", "-b", &format!("bare-{nth}"), &path, "main"])?;
    git(dir, &["sparse-checkout", "set", "--no-cone", "/.lore/"])?;
    git(dir, &["checkout", "--quiet"])?;
    Ok(ms(begun.elapsed()))
}

fn git(dir: &Path, arguments: &[&str]) -> Outcome<()> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(dir).stdout(Stdio::null());
    let ended = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").status()?;
    if ended.success() { Ok(()) } else { Err(format!("git {arguments:?}: {ended}").into()) }
}

/// The memory that this process uses, in MiB.
fn resident() -> Outcome<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(line.ok_or("no VmRSS")?.trim().parse::<f64>()? / 1024.0)
}

/// A worker that ends at once.
struct Instantly;

impl Workers for Instantly {
    fn all(&self) -> Vec<Worker> {
        let Ok(key) = "worker".parse() else { return Vec::new() };
        vec![Worker {
            key,
            package: "worker".to_owned(),
            display_name: "Worker".to_owned(),
            display_title: "Worker".to_owned(),
            description: String::new(),
            portrait: None,
            agent: "extractive".to_owned(),
            model: None,
            checkout: Checkout::Sparse,
            manages: false,
            can: Vec::new(),
        }]
    }
}

#[async_trait]
impl WorkerJobs for Instantly {
    fn new_job(&self, _: &MemberKey) -> Result<JobId, OperationError> {
        "job".parse().map_err(|_| OperationError::Internal("no id".to_owned()))
    }

    async fn begin(&self, _: &Attempt) -> Result<(), NotBegun> {
        Ok(())
    }

    async fn ended(&self, _: &Attempt) -> (Ended, Vec<Decision>) {
        (Ended::Completed { result: "Done.".to_owned(), error: None }, Vec::new())
    }

    async fn cancel(&self, _: &Attempt) {}
}
