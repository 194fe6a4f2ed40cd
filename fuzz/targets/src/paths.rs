//! Any text where a name or a path is expected: ids, keys, artifacts, read roots. Nothing outside is reached.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{Arc, OnceLock},
};

use guild_agent::ReadRoots;
use guild_contract::{Bounds, Grants, JobId, Limits, MemberKey};
use guild_fs::clock::SystemClock;
use guild_jobs::{Accepted, JobStore, NewJob, StoreOptions};
use guild_session::{
    activation::Plan,
    files::{Files, GrepRequest, GrepWanted},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::scratch::{SECRET, Scratch, knows_the_secret, tree};

/// A path per line, three at most; U+001E too ends one.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let text = String::from_utf8_lossy(data);
    let paths: Vec<&str> = text.split('\u{1e}').flat_map(str::lines).take(3).collect();
    paths.iter().for_each(|path| names(path));
    read_roots(&paths);
    artifacts(&paths);
}

/// What is taken for a name is one.
fn names(text: &str) {
    let plain = |name: &str| {
        !matches!(name, "" | "." | "..") && !name.contains(['/', '\\']) && !name.contains(char::is_control)
    };
    if let Ok(id) = text.parse::<JobId>() {
        assert!(plain(id.as_str()) && !id.as_str().starts_with('.') && id.as_str() == text);
    }
    if let Ok(key) = text.parse::<MemberKey>() {
        assert!(key.as_str().split('/').all(plain) && key.as_str().split('/').count() <= 2 && plain(&key.flat()));
    }
}

/// A read root with files that must not be seen.
fn root() -> &'static (Scratch, ReadRoots) {
    static ROOT: OnceLock<(Scratch, ReadRoots)> = OnceLock::new();
    ROOT.get_or_init(|| {
        let scratch = Scratch::new();
        let root = scratch.inside();
        fs::create_dir(root.join("a")).unwrap();
        fs::write(root.join("a/b.txt"), "granted\n").unwrap();
        fs::write(root.join("a/.gitignore"), "ignored\n").unwrap();
        for hidden in ["a/ignored", ".hidden"] {
            fs::write(root.join(hidden), SECRET).unwrap();
        }
        for (to, link) in [("../outside", "dir"), ("../outside/secret", "file"), (".hidden", "a/inner"), ("..", "a/up")]
        {
            symlink(to, root.join(link)).unwrap();
        }
        let roots = ReadRoots::open_named([(Some("root".to_owned()), &root)]).unwrap();
        (scratch, roots)
    })
}

/// Nothing hidden, ignored or outside of a root is shown, whatever path is asked for.
fn read_roots(paths: &[&str]) {
    let (scratch, roots) = root();
    let cancel = CancellationToken::new();
    let check = |answer: Result<String, guild_session::tools::ToolError>| match answer {
        Ok(text) => scratch.check_text(&text),
        Err(why) => scratch.check_text(&why.to_string()),
    };
    for asked in paths.iter().flat_map(|path| [(*path).to_owned(), format!("root/{path}")]) {
        check(roots.bytes(&asked, 1024).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        check(roots.read(&asked, 1, 10));
        check(roots.glob("**", Some(&asked), 100, &cancel).map(|found| found.join("\n")));
        let wanted = GrepWanted::Lines { before: 1, after: 1 };
        let search =
            GrepRequest { pattern: ".".into(), path: Some(asked), wanted, limit: 100, ..GrepRequest::default() };
        check(roots.grep(&search, &cancel).map(|found| format!("{found:?}")));
    }
    scratch.check();
}

/// An artifact is written below `artifacts/` or not at all.
fn artifacts(paths: &[&str]) {
    let scratch = Scratch::new();
    let limits = Arc::new(Limits { artifacts_entries: 16, artifacts_bytes: 4096, ..Limits::default() });
    let options = StoreOptions { limits, clock: Arc::new(SystemClock) };
    let store = JobStore::open(&scratch.dir(), options).unwrap();
    let plan = Plan::OwnRun(Bounds::default());
    let (agent, ceiling) = ("extractive".to_owned(), Bounds::default());
    let plan = Accepted { agent, granted_tools: Vec::new(), grants: Grants::default(), ceiling, plan };
    let new = NewJob {
        id: "job".parse().unwrap(),
        description: "d".into(),
        task: "t".into(),
        config: Value::Null,
        token: None,
        attachments: None,
        activation: None,
        follows: None,
        key: None,
        plan,
    };
    let job = store.create(new).unwrap();
    symlink("../../../../outside", scratch.inside().join("jobs/job/artifacts/link")).unwrap();
    let others = |scratch: &Scratch| {
        let mut tree = tree(&scratch.inside());
        // The job's log says which limit was reached.
        tree.retain(|path, _| !path.starts_with("jobs/job/artifacts/") && path != "jobs/job/log.txt");
        tree
    };
    let before = others(&scratch);
    for path in paths {
        for path in [(*path).to_owned(), format!("link/{path}")] {
            if let Err(why) = job.write_artifact(&path, b"contents") {
                scratch.check_text(&why.to_string());
            } else {
                let written = fs::read(scratch.inside().join("jobs/job/artifacts").join(&path));
                assert_eq!(written.unwrap(), b"contents", "{path:?}");
            }
        }
    }
    assert_eq!(others(&scratch), before, "an artifact was written somewhere else");
    job.complete(Some("done")).unwrap();
    let listed = store.result("job").unwrap().artifacts.unwrap_or_default();
    assert!(listed.len() <= 16 && listed.iter().all(|path| path.starts_with("artifacts/") && !path.contains(SECRET)));
    scratch.check();
}
