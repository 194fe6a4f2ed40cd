//! Globs that callers, components and operators write: they mean something simple, or are refused, within a bounded time.

use std::{
    fs,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use guild_agent::ReadRoots;
use guild_contract::{
    Limits,
    capability::grants::wildcard,
    rpc::{Detail, JobList, ListParams},
};
use guild_fs::clock::SystemClock;
use guild_jobs::{JobStore, StoreOptions};
use guild_session::files::{Files, GrepRequest};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::scratch::{Scratch, knows_the_secret};

/// What no glob of a few KiB takes, on a machine that is busy, in a build that is watched.
const PATIENCE: Duration = Duration::from_secs(4);

struct Fixture {
    scratch: Scratch,
    store: Arc<JobStore>,
    descriptions: Vec<String>,
    roots: ReadRoots,
    paths: Vec<String>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let scratch = Scratch::new();
        let descriptions: Vec<String> =
            ["plain", "a/b/c", "[x]", "{a,b}", "*", "a\nb", "ümläut", "!not"].map(str::to_owned).into();
        let descriptions: Vec<_> = descriptions.into_iter().chain(["a".repeat(1024)]).collect();
        for (n, description) in descriptions.iter().enumerate() {
            let job = scratch.inside().join(format!("jobs/job-{n}"));
            fs::create_dir_all(&job).unwrap();
            let meta = json!({"jobId": format!("job-{n}"), "status": "completed", "description": description,
                "startedAt": "2026-01-01T00:00:00Z", "completedAt": "2026-01-01T00:00:01Z"});
            fs::write(job.join("meta.json"), meta.to_string()).unwrap();
        }
        let paths = ["root/a.md", "root/b/c.rs", "root/b/d/[e].txt", "root/b/d/{f}.md"].map(str::to_owned);
        fs::create_dir_all(scratch.inside().join("root/b/d")).unwrap();
        paths.iter().for_each(|path| fs::write(scratch.inside().join(path), "text\n").unwrap());
        let options = StoreOptions { limits: Arc::new(Limits::default()), clock: Arc::new(SystemClock) };
        let store = JobStore::open(&scratch.dir(), options).unwrap();
        store.load();
        let roots = ReadRoots::open([scratch.inside().join("root")]).unwrap();
        Fixture { store, descriptions, roots, paths: paths.into(), scratch }
    })
}

/// A glob; after a NUL, a name for it.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let text = String::from_utf8_lossy(data);
    let (glob, name) = text.split_once('\0').unwrap_or((&text, "docs"));
    let begun = Instant::now();
    filters(glob);
    files(glob);
    if glob.len() * name.len() < 1 << 16 {
        assert_eq!(wildcard(glob, name), reference(glob.as_bytes(), name.as_bytes()), "{glob:?} {name:?}");
    }
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());
}

/// `filter` of `worker/list`.
fn filters(glob: &str) {
    let fixture = fixture();
    let params = ListParams { detail: Some(Detail::Detailed), filter: Some(glob.to_owned()) };
    match fixture.store.list(&params) {
        Ok(answer) => {
            let list: JobList = serde_json::from_slice(&answer).unwrap();
            let found: Vec<_> = list.jobs.iter().map(|job| job.details.as_ref().unwrap().description.clone()).collect();
            let all = glob.bytes().all(|byte| byte == b'*');
            assert!(!all || found.len() == fixture.descriptions.len(), "{glob:?} leaves jobs out");
            if !glob.is_empty() && !glob.contains(['*', '?', '[', ']', '{', '}', '\\', ',']) {
                assert!(found.iter().all(|description| description == glob), "{glob:?} is no pattern: {found:?}");
                assert_eq!(found.is_empty(), !fixture.descriptions.iter().any(|there| there == glob), "{glob:?}");
            }
        }
        Err(why) => fixture.scratch.check_text(&why.to_string()),
    }
}

/// Glob and Grep over the read roots.
fn files(glob: &str) {
    let fixture = fixture();
    let cancel = CancellationToken::new();
    let within = |found: &[String]| found.iter().all(|path| fixture.paths.contains(path));
    for directory in [None, Some("root/b")] {
        match fixture.roots.glob(glob, directory, 100, &cancel) {
            Ok(found) => assert!(within(&found), "{found:?}"),
            Err(why) => fixture.scratch.check_text(&why.to_string()),
        }
    }
    let search = GrepRequest { pattern: "text".into(), glob: Some(glob.into()), limit: 100, ..GrepRequest::default() };
    if let Ok(found) = fixture.roots.grep(&search, &cancel) {
        assert!(within(&found.files.into_iter().map(|file| file.path).collect::<Vec<_>>()));
    }
    // As a regular expression too, which is as easily written badly.
    let search = GrepRequest { pattern: glob.into(), limit: 100, ..GrepRequest::default() };
    if let Err(why) = fixture.roots.grep(&search, &cancel) {
        fixture.scratch.check_text(&why.to_string());
    }
}

/// `*` stands for any characters, said in the plainest way.
fn reference(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for byte in pattern {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match byte {
                b'*' => reached[..=at].contains(&true),
                _ => at > 0 && reached[at - 1] && name[at - 1] == *byte,
            };
        }
        reached = next;
    }
    reached[name.len()]
}
