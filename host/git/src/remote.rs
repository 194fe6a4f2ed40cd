//! Fetches the default branch from the remote repository `origin`, and pushes `claude/main` to it. Nothing else is
//! written, here or there, except the host's own refs.
//!
//! The configuration of a repository can name programs for the network, other places, and further refs to write.
//! Settings with a fixed name are set here; the others are refused. The user's own settings outside of the repository
//! are used: the keys and `known_hosts` of ssh, and the accounts of `gh`, which are the only credentials for HTTPS.

use std::{fs, path::Path};

use crate::{
    error::GitError,
    names::{CommitId, INTEGRATION_REF},
    repository::{Repository, stale_locks::free},
    run::Call,
};

/// The default branch as it was last fetched.
const FETCHED_REF: &str = "refs/guild/origin";
/// `claude/main` at `origin`, as it was when the local branch last dropped commits that `origin` has.
pub(crate) const PUSHED_REF: &str = "refs/guild/pushed";

/// The settings of each run that reaches `origin`, besides the settings of all runs.
const SETTINGS: [&str; 6] = [
    // Helpers are programs. An empty value drops helpers that were named before.
    "credential.helper=",
    "core.alternateRefsCommand=true",
    "push.pushOption=",
    "transfer.bundleURI=false",
    "fetch.writeCommitGraph=false",
    "remote.origin.followRemoteHEAD=never",
];

/// The variables of the host's environment that a run which reaches `origin` inherits.
pub(crate) const PASSED: [&str; 20] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "GH_CONFIG_DIR",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

const ELSEWHERE: &str =
    "which leads elsewhere than remote.origin.url says; write the whole address there, and unset it";
const PROGRAM: &str = "which has another program reach origin; unset it";
const HTTP: &str = "which changes how origin is reached; unset it";
const REFS: &str = "which writes into refs other than refs/remotes, refs/tags and refs/notes; unset it";
const TWO: &str = "more than once; keep one";
const FORM: &str = "which is neither https://HOST/PATH nor ssh://HOST/PATH nor HOST:PATH nor a directory outside of the \
                    project; set another: git remote set-url origin URL";

/// The remote repository `origin` of a project, whose settings were examined.
#[derive(Clone, Debug)]
pub struct Origin {
    pub(crate) repository: Repository,
    protocol: &'static str,
    /// `HOST/OWNER/NAME`, if its address has that form.
    pub(crate) place: Option<String>,
}

/// The branches at `origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The fetched default branch.
    pub default: CommitId,
    /// `claude/main`, if it exists there. Its commits may be missing here.
    pub integration: Option<CommitId>,
}

impl Repository {
    /// The remote repository `origin`; `None` if the project has none.
    ///
    /// # Errors
    ///
    /// [`GitError::RefusedSetting`] if it cannot be reached safely.
    pub async fn origin(&self) -> Result<Option<Origin>, GitError> {
        let listed = self.call(&["config", "--list", "-z"]).run().await?;
        let refuse = |key: &str, why| GitError::RefusedSetting { path: self.path.clone(), key: key.to_owned(), why };
        let (listed, mut url) = (String::from_utf8_lossy(&listed), None);
        for entry in listed.split('\0') {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, ""));
            if let Some(why) = refused(key, value) {
                return Err(refuse(key, why));
            }
            if key == "remote.origin.url" && url.replace(value).is_some() {
                return Err(refuse(key, TWO));
            }
        }
        let Some(url) = url else { return Ok(None) };
        let (protocol, place) = read_url(url).ok_or_else(|| refuse("remote.origin.url", FORM))?;
        if protocol == "file" {
            let path = url.strip_prefix("file://").unwrap_or(url);
            let path = fs::canonicalize(path).map_err(|source| GitError::File { path: path.into(), source })?;
            // A repository inside of the project could have hooks.
            if path.starts_with(&self.path) || path.starts_with(&self.data) {
                return Err(refuse("remote.origin.url", FORM));
            }
        }
        Ok(Some(Origin { repository: self.clone(), protocol, place }))
    }

    /// The local default branch.
    ///
    /// # Errors
    /// [`GitError::NoBranch`].
    pub async fn local_default(&self) -> Result<CommitId, GitError> {
        Ok(self.default_tip().await?.commit)
    }

    /// Whether a commit is or descends from another one. `false` also if the other commit is missing here.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn contains(&self, commit: &CommitId, earlier: &CommitId) -> Result<bool, GitError> {
        let ask = ["merge-base", "--is-ancestor", earlier.as_str(), commit.as_str()];
        Ok(self.call(&ask).codes(&[0, 1, 128]).await?.0 == 0)
    }
}

impl Origin {
    /// Fetches the default branch, and looks for `claude/main`. No branch of the user changes, also none below
    /// `refs/remotes`, since a user's `git push --force-with-lease` relies on them.
    ///
    /// # Errors
    ///
    /// [`GitError::NotAtOrigin`], or `origin` cannot be reached.
    pub async fn fetch(&self) -> Result<Upstream, GitError> {
        let repository = &self.repository;
        let default = format!("refs/heads/{}", repository.default_branch());
        let listed = self.call(&["ls-remote", "--quiet", "--refs", "--", "origin", &default, INTEGRATION_REF]);
        let listed = listed.line().await?;
        let tip = |name: &str| {
            // A pattern also fits refs whose names end so.
            let found = listed.lines().filter_map(|line| line.split_once('\t')).find(|(_, found)| *found == name);
            found.map(|(commit, _)| CommitId(commit.to_owned()))
        };
        if tip(&default).is_none() {
            let branch = repository.default_branch().to_owned();
            return Err(GitError::NotAtOrigin { path: repository.path.clone(), branch });
        }
        free(&repository.data.join(format!("{FETCHED_REF}.lock")), repository.git.longest_run()).await?;
        let fetch = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-prune",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--recurse-submodules=no",
            // An empty value keeps `remote.origin.fetch` from having an effect.
            "--refmap=",
            "--",
            "origin",
        ];
        self.call(&fetch).arg(format!("+{default}:{FETCHED_REF}")).run().await?;
        let fetched = repository.tip(FETCHED_REF).await?;
        let fetched = fetched.ok_or_else(|| GitError::NotAtOrigin {
            path: repository.path.clone(),
            branch: repository.default_branch().to_owned(),
        })?;
        Ok(Upstream { default: fetched.commit, integration: tip(INTEGRATION_REF) })
    }

    /// Pushes a commit of the branch to `claude/main` at `origin`. `seen` is the tip that was there.
    ///
    /// After the user merged, the branch begins anew at the default branch, while `origin` may still have the old
    /// branch, from which no fast-forward leads. So the push replaces the branch there, but only commits that this
    /// branch has or had, and only if nobody has pushed since it was read (`--force-with-lease` with a commit). Commits
    /// that others pushed there, such as a change after a review, are never overwritten.
    ///
    /// # Errors
    ///
    /// [`GitError::OthersCommits`], or `origin` did not accept the push.
    pub async fn push(&self, commit: &CommitId, seen: Option<&CommitId>) -> Result<(), GitError> {
        let repository = &self.repository;
        if let Some(seen) = seen {
            if seen == commit {
                return Ok(());
            }
            let had = repository.tip(PUSHED_REF).await?.map(|tip| tip.commit);
            if had.as_ref() != Some(seen) && !repository.contains(commit, seen).await? {
                let path = repository.path.clone();
                return Err(GitError::OthersCommits { path, commit: seen.to_string() });
            }
        }
        let lease = format!("--force-with-lease={INTEGRATION_REF}:{}", seen.map_or("", CommitId::as_str));
        let push = [
            "push",
            "--quiet",
            "--no-verify",
            "--no-signed",
            "--no-follow-tags",
            "--no-force-if-includes",
            "--recurse-submodules=no",
            &lease,
            "--",
            "origin",
        ];
        self.call(&push).arg(format!("{commit}:{INTEGRATION_REF}")).run().await.map(drop)
    }

    /// The short name of the branch that pull requests are for.
    pub(crate) fn default_branch(&self) -> &str {
        self.repository.default_branch()
    }

    fn call(&self, args: &[&str]) -> Call<'_> {
        let mut call = SETTINGS.into_iter().fold(self.repository.call(args), Call::setting);
        if let Some(gh) = self.repository.git.gh() {
            call = call.setting(format!("credential.helper=!{} auth git-credential", quoted(&gh)));
        }
        // The hooks of a directory run with the environment of its push.
        for name in PASSED.into_iter().filter(|_| self.protocol != "file") {
            if let Some(value) = std::env::var_os(name) {
                call = call.env(name, value);
            }
        }
        call.env("GIT_ALLOW_PROTOCOL", self.protocol)
            .env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
            .env("GIT_SSH_VARIANT", "ssh")
            // The variable is empty, and not unset, so that the configured program is not run.
            .env("GIT_ASKPASS", "")
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

/// The reason that a setting is refused.
fn refused(key: &str, value: &str) -> Option<&'static str> {
    let (section, rest) = key.split_once('.')?;
    let name = rest.rsplit('.').next()?;
    match (section, name) {
        ("url", "insteadof" | "pushinsteadof") => Some(ELSEWHERE),
        ("fetch", "bundleuri") => Some(ELSEWHERE),
        ("http", _) => Some(HTTP),
        ("remote", _) => match key.strip_prefix("remote.origin.")? {
            "pushurl" => Some(ELSEWHERE),
            "proxy" | "proxyauthmethod" | "mirror" => Some(HTTP),
            "vcs" | "uploadpack" | "receivepack" => Some(PROGRAM),
            // A push writes these refs, too.
            "fetch" => {
                let to = value.split_once(':').map(|(_, to)| to)?;
                let is_harmless = ["refs/remotes/", "refs/tags/", "refs/notes/"].iter().any(|own| to.starts_with(own));
                (!is_harmless).then_some(REFS)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The protocol of an address, and `HOST/OWNER/NAME` if it has that form. `None` for an unknown form.
fn read_url(url: &str) -> Option<(&'static str, Option<String>)> {
    if url.contains(|c: char| c.is_control() || c.is_whitespace()) && !url.starts_with('/') {
        return None;
    }
    if url.starts_with('/') || url.starts_with("file:///") {
        return Some(("file", None));
    }
    let (protocol, host, path) = if let Some(rest) = url.strip_prefix("https://") {
        let (host, path) = rest.split_once('/')?;
        ("https", host, path)
    } else if let Some(rest) = url.strip_prefix("ssh://") {
        let (host, path) = rest.split_once('/')?;
        ("ssh", host, path)
    } else if url.contains("://") || url.contains("::") {
        return None;
    } else {
        let (host, path) = url.split_once(':')?;
        ("ssh", host, path)
    };
    let host = host.rsplit('@').next()?;
    let host = if protocol == "ssh" { host.split(':').next()? } else { host };
    let is_name = |text: &str, also: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    if !is_name(host, ".-_:") {
        return None;
    }
    let mut parts = path.trim_matches('/').split('/');
    let place = match (parts.next(), parts.next(), parts.next()) {
        (Some(owner), Some(name), None) => {
            let name = name.strip_suffix(".git").unwrap_or(name);
            (is_name(owner, ".-_") && is_name(name, ".-_")).then(|| format!("{host}/{owner}/{name}"))
        }
        _ => None,
    };
    Some((protocol, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_a_protocol_that_is_used_and_says_where_pull_requests_are_made() {
        let github = |protocol| Some((protocol, Some("github.com/ann/book".to_owned())));
        assert_eq!(read_url("https://github.com/ann/book.git"), github("https"));
        assert_eq!(read_url("https://ann:secret@github.com/ann/book"), github("https"));
        assert_eq!(read_url("git@github.com:ann/book.git"), github("ssh"));
        assert_eq!(read_url("ssh://git@github.com:22/ann/book.git"), github("ssh"));
        assert_eq!(read_url("https://gitlab.example/a/b/c.git"), Some(("https", None)));
        assert_eq!(read_url("/srv/book.git"), Some(("file", None)));
        assert_eq!(read_url("file:///srv/book.git"), Some(("file", None)));
        for other in [
            "",
            "book.git",
            "../book.git",
            "http://github.com/ann/book",
            "git://github.com/ann/book",
            "ext::sh -c touch% x",
            "-oProxyCommand=x:ann/book",
            "ssh://-oProxyCommand=x/ann/book",
            "file://host/book",
            "git@github.com:ann/bo\nok",
        ] {
            assert_eq!(read_url(other), None, "{other}");
        }
        assert_eq!(read_url("git@github.com:-x/book"), Some(("ssh", None)));
    }
}
