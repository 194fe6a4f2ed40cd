//! Makes and reads pull requests with the program `gh`. It runs outside of repositories: its arguments name the place
//! of the pull request. Each text of a caller is part of an argument that begins with the option's name, so it is never
//! an option.

use std::path::{Path, PathBuf};

use guild_confine::search_path;
use serde::Deserialize;
use tokio::process::Command;

use crate::{
    error::GitError,
    names::INTEGRATION_BRANCH,
    remote::{Origin, PASSED},
    run::process::{Bounds, Cut, execute, plain},
};

/// The most bytes of its output that are read.
const STDOUT_BYTES: usize = 1 << 20;
/// The longest address of a pull request.
const URL_BYTES: usize = 2048;

/// The environment of each run, besides inherited variables.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("LC_ALL", "C"),
    ("NO_COLOR", "1"),
    ("GH_PROMPT_DISABLED", "1"),
    ("GH_NO_UPDATE_NOTIFIER", "1"),
    ("GH_SPINNER_DISABLED", "1"),
    ("GH_PAGER", "cat"),
    ("GH_EDITOR", "false"),
    ("GH_BROWSER", "false"),
    // These are for the git that it runs.
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ALLOW_PROTOCOL", ""),
];

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Its address.
    pub url: String,
    /// Whether it was open before.
    pub existed: bool,
}

/// The state of a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// The pull request waits for the user.
    Open,
    /// The user merged it.
    Merged,
    /// The user closed it without merging it.
    Closed,
    /// The state is unknown.
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    url: String,
    is_cross_repository: bool,
}

#[derive(Deserialize)]
struct Viewed {
    state: String,
}

impl Origin {
    /// Makes a pull request of [`INTEGRATION_BRANCH`] for the default branch. If one is open, it is returned, since it
    /// has the pushed commits.
    ///
    /// # Errors
    ///
    /// [`GitError::GhNotInstalled`], [`GitError::GhFailed`] with its output, and errors of running it.
    pub async fn create_pull_request(&self, title: &str, body: &str) -> Result<PullRequest, GitError> {
        let create = [
            format!("--base={}", self.default_branch()),
            format!("--head={INTEGRATION_BRANCH}"),
            format!("--title={title}"),
            format!("--body={body}"),
        ];
        let said = match self.gh(&["pr", "create"], &create).await {
            Ok(said) => said,
            Err(error @ GitError::GhFailed { .. }) => {
                let open = self.open_pull_request().await;
                return open.map(|url| PullRequest { url, existed: true }).ok_or(error);
            }
            Err(error) => return Err(error),
        };
        let said = String::from_utf8_lossy(&said);
        let url = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        match is_url(url) {
            true => Ok(PullRequest { url: url.to_owned(), existed: false }),
            false => Err(GitError::GhAnswer { said: plain(said.as_bytes()).chars().take(200).collect() }),
        }
    }

    /// The open pull request.
    async fn open_pull_request(&self) -> Option<String> {
        let list = [
            "--state=open".to_owned(),
            format!("--base={}", self.default_branch()),
            format!("--head={INTEGRATION_BRANCH}"),
            "--json=url,isCrossRepository".to_owned(),
            "--limit=100".to_owned(),
        ];
        let said = self.gh(&["pr", "list"], &list).await.ok()?;
        let listed: Vec<Listed> = serde_json::from_slice(&said).ok()?;
        // Any user can make a pull request from a fork with a branch of that name.
        let own = listed.into_iter().filter(|one| !one.is_cross_repository && is_url(&one.url));
        own.map(|one| one.url).next()
    }

    /// The state of a pull request.
    pub async fn pull_request_state(&self, url: &str) -> PullState {
        if !is_url(url) {
            return PullState::Unknown;
        }
        let said = self.gh(&["pr", "view"], &["--json=state".to_owned(), "--".to_owned(), url.to_owned()]).await;
        let viewed = said.ok().and_then(|said| serde_json::from_slice::<Viewed>(&said).ok());
        match viewed.as_ref().map(|viewed| viewed.state.as_str()) {
            Some("OPEN") => PullState::Open,
            Some("MERGED") => PullState::Merged,
            Some("CLOSED") => PullState::Closed,
            _ => PullState::Unknown,
        }
    }

    /// Runs `gh`, and returns its stdout.
    async fn gh(&self, command: &[&str], args: &[String]) -> Result<Vec<u8>, GitError> {
        let program: PathBuf = self.repository.git.gh().ok_or(GitError::GhNotInstalled)?;
        let mut run = Command::new(&program);
        run.env_clear().envs(ENVIRONMENT).current_dir(Path::new("/")).args(command);
        run.envs(search_path().map(|path| ("PATH", path)));
        run.envs(PASSED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        run.args(self.place.as_ref().map(|place| format!("--repo={place}"))).args(args);
        let (time, name) = (self.repository.git.limit(), command.join(" "));
        let memory = self.repository.git.memory_bytes();
        match execute(run, Vec::new(), Bounds { time, output: STDOUT_BYTES, memory }).await {
            Ok(finished) if finished.code == Some(0) => Ok(finished.stdout),
            Ok(finished) if finished.lacked_memory() => {
                let said = format!("it took more than {memory} bytes of memory (limits.git_memory_bytes)");
                Err(GitError::GhFailed { command: name, said })
            }
            Ok(finished) => Err(GitError::GhFailed { command: name, said: finished.said() }),
            Err(Cut::Time) => {
                let said = format!("it took longer than {} seconds and was ended", time.as_secs());
                Err(GitError::GhFailed { command: name, said })
            }
            Err(Cut::Output) => {
                let said = format!("it said more than {STDOUT_BYTES} bytes and was ended");
                Err(GitError::GhFailed { command: name, said })
            }
            Err(Cut::System(source)) => Err(GitError::Start { program, source }),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.len() <= URL_BYTES
        && text.starts_with("https://")
        && !text.contains(|c: char| c.is_control() || c.is_whitespace())
}
