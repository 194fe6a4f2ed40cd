//! `guild test`: plays the test cases of a member, and makes new ones from jobs that ran.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::Instant,
};

use cap_std::fs::Dir;
use guild_config::Config;
use guild_contract::{JobId, Limits};
use guild_harness::{
    Harness,
    record::RecordedJob,
    report::{Conclusion, Report},
    snapshot::Snapshot,
    suite::{Played, TestFile, Verdict, play},
};
use guild_roster::{discovery::single, jobs::files::OfflineJobs, trial::Trial};
use tokio::task::spawn_blocking;

use crate::{
    args::members::Test,
    complete::LATEST,
    failure::{Failure, exit},
    output::{harmless, print, tell, tell_error},
};

/// The most rounds in which `--update` takes what came: a changed outcome shows what else is there.
const ROUNDS: usize = 3;

/// `guild test`.
pub(crate) async fn test(args: Test) -> Result<(), Failure> {
    if let Some(job) = &args.record {
        return record_job(&args.directory, job);
    }
    let began = Instant::now();
    let harness = load(&args.directory).await?;
    let mut files = Arc::new(read(&args.directory)?);
    let filter = args.filter.clone();
    let chosen = move |file: &TestFile, name: &str| {
        filter.as_ref().is_none_or(|part| format!("{}: {name}", file.stem()).contains(part.as_str()))
    };
    let mut played = play(&harness, &files, |file, case| chosen(file, &case.name)).await;
    if played.is_empty() {
        let part = args.filter.as_deref().unwrap_or_default();
        return Err(invalid(format!("no case has {part:?} in its name")));
    }
    if args.update {
        for _ in 0..ROUNDS {
            if !update(&files, &played)? {
                break;
            }
            files = Arc::new(read(&args.directory)?);
            played = play(&harness, &files, |file, case| chosen(file, &case.name)).await;
        }
    }
    let name = harness.member().to_string();
    let report = Report { member: &name, files: &files, played: &played, took: began.elapsed() };
    if let Some(path) = &args.junit {
        let junit = report.junit().and_then(|text| fs::write(path, text));
        junit.map_err(|e| invalid(format!("{} cannot be written: {e}", path.display())))?;
    }
    print(|out| out.write_all(harmless(&report.text()).as_bytes()))?;
    match report.conclusion() {
        Conclusion::Passed => Ok(()),
        Conclusion::Failed => Err(Failure::code(exit::CASE_FAILED)),
        Conclusion::Invalid => Err(Failure::code(exit::INVALID_TEST)),
    }
}

fn invalid(why: impl Into<String>) -> Failure {
    Failure { code: exit::INVALID_TEST, message: Some(why.into()) }
}

/// Loads the member, whose component is compiled if it is not in the cache.
async fn load(directory: &Path) -> Result<Arc<Harness>, Failure> {
    let directory = directory.to_owned();
    let loaded = spawn_blocking(move || {
        let member = single(&directory, None, &Config::default())?;
        let place = directory.display().to_string();
        let sandbox = Trial::sandbox(&Arc::new(Limits::default())).map_err(|e| e.to_string())?;
        Harness::load(&sandbox, member).map_err(|why| format!("{place}: {why}"))
    });
    let loaded = loaded.await.map_err(|e| invalid(format!("the member could not be loaded: {e}")))?;
    loaded.map(Arc::new).map_err(invalid)
}

/// Reads the test files, and tells of each that is not valid.
fn read(directory: &Path) -> Result<Vec<TestFile>, Failure> {
    TestFile::of_member(directory).map_err(|mut errors| {
        let last = errors.pop().unwrap_or_default();
        errors.iter().for_each(|why| tell_error(why.as_str()));
        invalid(last)
    })
}

/// Writes what came into the test files. Whether that changed any of them.
fn update(files: &[TestFile], played: &[Played]) -> Result<bool, Failure> {
    let mut changed = false;
    for (position, file) in files.iter().enumerate() {
        let mut snapshot = Snapshot::of(file).map_err(invalid)?;
        for Played { case, verdict, .. } in played.iter().filter(|played| played.file == position) {
            if let Verdict::Invalid(_) = verdict {
                continue;
            }
            let name = file.cases.get(*case).map(|case| case.name.as_str()).unwrap_or_default();
            let taken = snapshot.take(*case, verdict);
            taken.map_err(|why| invalid(format!("{}: case {name:?}: {why}", file.path.display())))?;
        }
        if let Some(text) = snapshot.text().filter(|text| *text != file.text) {
            let shown = file.path.display();
            fs::write(&file.path, text).map_err(|e| invalid(format!("{shown} cannot be written: {e}")))?;
            tell(format_args!("updated {shown}"));
            changed = true;
        }
    }
    Ok(changed)
}

/// Makes a test file of a job of the member.
fn record_job(directory: &Path, wanted: &str) -> Result<(), Failure> {
    let member = guild_fs::durable::open_directory(directory);
    let member = member.map_err(|e| invalid(format!("cannot open {}: {e}", directory.display())))?;
    let id = find(&member, wanted)?;
    let job = member.open_dir(Path::new("jobs").join(id.as_str()));
    let job = job.map_err(|e| invalid(format!("the job {id} cannot be opened: {e}")))?;
    let recorded = RecordedJob::read(&job).and_then(|job| job.test_file());
    let text = recorded.map_err(|why| invalid(format!("the job {id}: {why}")))?;
    let tests = directory.join("tests");
    let path = tests.join(format!("{id}.toml"));
    let written = fs::create_dir_all(&tests)
        .and_then(|()| OpenOptions::new().write(true).create_new(true).open(&path))
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => invalid(format!("{} exists, and is not overwritten", path.display())),
        _ => invalid(format!("{} cannot be written: {e}", path.display())),
    })?;
    tell(format_args!("recorded {}", path.display()));
    Ok(())
}

/// The job with this id or unique prefix, or the newest.
fn find(member: &Dir, wanted: &str) -> Result<JobId, Failure> {
    let failed = |why: String| invalid(format!("the jobs of the member cannot be read: {why}"));
    let opened = member.try_clone().map_err(|e| e.to_string()).and_then(OfflineJobs::open);
    let jobs = opened.map_err(failed)?;
    let mut ids = jobs.ids().map_err(|e| failed(e.to_string()))?;
    if wanted == LATEST {
        // The ids of this host begin with the time.
        return ids.into_iter().max().ok_or_else(|| invalid("the member has no job"));
    }
    ids.retain(|id| id.as_str().starts_with(wanted));
    match ids.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(invalid(format!("the member has no job {wanted:?}; `guild list` lists them"))),
        _ => Err(invalid(format!("{} jobs of the member begin with {wanted:?}; write more of the id", ids.len()))),
    }
}
