//! Reads the test files of a member, and plays their cases side by side.

use std::{
    collections::BTreeSet,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use guild_scripted::SessionScript;
use serde::Deserialize;
use toml::Spanned;

use crate::{
    expect::{Expect, Mismatch},
    play::{Extent, Harness},
    recording::Recording,
    scenario::{Given, Scenario},
};

/// The directory of a member with its test files.
const TESTS: &str = "tests";
/// The cases that are played at a time, for each core: a case waits for its files, and for searches in child processes.
const CASES_OF_A_CORE: usize = 2;

/// A test file.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its cases, in order.
    pub cases: Vec<Case>,
}

/// A case of a test file.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, unique in the file.
    pub name: String,
    /// The line of its name.
    pub line: usize,
    /// Its scenario.
    pub scenario: Scenario,
    /// Its expectations.
    pub expect: Expect,
}

/// The format of a test file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFormat {
    #[serde(default)]
    cases: Vec<CaseFormat>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFormat {
    name: Spanned<String>,
    given: Given,
    #[serde(default)]
    sessions: Vec<SessionScript>,
    #[serde(default)]
    expect: Expect,
}

/// The line of a position in a text, from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl TestFile {
    /// The test files `tests/*.toml` of a member, by name.
    ///
    /// # Errors
    ///
    /// Returns a sentence for each file that is not valid, with its line, and one if there is no file.
    pub fn of_member(member: &Path) -> Result<Vec<Self>, Vec<String>> {
        let directory = member.join(TESTS);
        let failed = |e: io::Error| vec![format!("cannot read {}: {e}", directory.display())];
        let none = || {
            let shown = directory.display();
            vec![format!("{shown} has no test file; write a case into {shown}/NAME.toml")]
        };
        let entries = match fs::read_dir(&directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(none()),
            entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed)?,
        };
        let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        paths.sort();
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        for path in paths {
            match fs::read_to_string(&path) {
                Ok(text) => match Self::parse(path, text) {
                    Ok(file) => files.push(file),
                    Err(why) => errors.push(why),
                },
                Err(e) => errors.push(format!("cannot read {}: {e}", path.display())),
            }
        }
        match errors.is_empty() {
            true if files.is_empty() => Err(none()),
            true => Ok(files),
            false => Err(errors),
        }
    }

    /// Reads a test file's text.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the file and the line.
    pub fn parse(path: PathBuf, text: String) -> Result<Self, String> {
        let place = |at: usize| format!("{}:{}", path.display(), line(&text, at));
        let parsed: FileFormat = toml::from_str(&text).map_err(|e| {
            let Range { start, .. } = e.span().unwrap_or_default();
            format!("{}: {}", place(start), e.message())
        })?;
        let mut names = BTreeSet::new();
        let mut cases = Vec::new();
        for CaseFormat { name, given, sessions, expect } in parsed.cases {
            let place = place(name.span().start);
            let name = name.into_inner();
            if name.trim().is_empty() || name.contains(char::is_control) {
                return Err(format!("{place}: the name of a case must not be empty, nor have line breaks"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("{place}: there are two cases {name:?}; give one of them another name"));
            }
            if given.task.is_some() == given.call.is_some() {
                return Err(format!(
                    "{place}: the case {name:?} needs `given.task`, for a dispatch, or `given.call`, for a tool; not both"
                ));
            }
            if given.call.is_some() && !sessions.is_empty() {
                return Err(format!(
                    "{place}: the case {name:?} calls a tool, and a tool has no sessions; remove them"
                ));
            }
            let line = place.rsplit_once(':').and_then(|(_, line)| line.parse().ok()).unwrap_or(1);
            cases.push(Case { name, line, scenario: Scenario { given, sessions }, expect });
        }
        if cases.is_empty() {
            return Err(format!("{}: has no case; write [[cases]] with `name`, `given` and `expect`", path.display()));
        }
        Ok(Self { path, text, cases })
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Case {
    /// The extent to which its dispatch is carried out: to the end of the job, if it scripts a session or has expectations
    /// of one.
    pub fn extent(&self) -> Extent {
        match (&self.scenario.sessions[..], &self.expect) {
            ([_, ..], _) => Extent::Job,
            (_, expect) if expect.needs_job() => Extent::Job,
            (_, expect) if expect.needs_own_run() => Extent::OwnRun,
            _ => Extent::Plan,
        }
    }
}

/// The outcome of a case, with its place.
#[derive(Clone, Debug)]
pub struct Played {
    /// The position of its file.
    pub file: usize,
    /// Its position in the file.
    pub case: usize,
    /// Its outcome.
    pub verdict: Verdict,
    /// Its duration.
    pub took: Duration,
}

/// The outcome of a case.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All expectations are met.
    Passed,
    /// An expectation is not met.
    Failed(Vec<Mismatch>, Box<Recording>),
    /// The case expects nothing.
    ExpectsNothing(Box<Recording>),
    /// The case cannot be played. The sentence names the key.
    Invalid(String),
}

/// Plays the chosen cases side by side, and returns their outcomes in the order of the files.
pub async fn play(
    harness: &Arc<Harness>,
    files: &Arc<Vec<TestFile>>,
    chosen: impl Fn(&TestFile, &Case) -> bool,
) -> Vec<Played> {
    let places = files.iter().enumerate().flat_map(|(file, of)| {
        let cases = of.cases.iter().enumerate().filter(|(_, case)| chosen(of, case));
        cases.map(|(case, _)| (file, case)).collect::<Vec<_>>()
    });
    let playing = places.map(|(file, case)| {
        let (harness, files) = (harness.clone(), files.clone());
        async move {
            let began = Instant::now();
            let verdict = tokio::spawn(async move {
                let Some(case) = files.get(file).and_then(|file| file.cases.get(case)) else {
                    return Verdict::Invalid("there is no such case".to_owned());
                };
                play_one(&harness, case).await
            });
            let verdict = verdict.await.unwrap_or_else(|e| Verdict::Invalid(format!("the harness failed: {e}")));
            Played { file, case, verdict, took: began.elapsed() }
        }
    });
    let cores = thread::available_parallelism().map_or(2, usize::from);
    stream::iter(playing.collect::<Vec<_>>()).buffered(cores * CASES_OF_A_CORE).collect().await
}

/// Plays a case.
pub async fn play_one(harness: &Arc<Harness>, case: &Case) -> Verdict {
    let recording = match harness.play(&case.scenario, case.extent()).await {
        Ok(recording) => recording,
        Err(why) => return Verdict::Invalid(why),
    };
    if case.expect == Expect::default() {
        return Verdict::ExpectsNothing(Box::new(recording));
    }
    match case.expect.compare(&recording) {
        none if none.is_empty() => Verdict::Passed,
        mismatches => Verdict::Failed(mismatches, Box::new(recording)),
    }
}
