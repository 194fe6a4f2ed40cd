//! Sessions of the built-in runtime over real files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../agent/tests/common/mod.rs"]
mod common;
#[path = "extractive/converse.rs"]
mod converse;

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use common::{Job, Kept, roots, session, write};
use guild_agent::{ReadRoots, ToolSet};
use guild_contract::{Bounds, Usage};
use guild_extractive::Extractive;
use guild_session::{
    activation::MemoryNote,
    files::{Files, GrepRequest, GrepResult, Listing},
    meter::{Ending, Meter},
    session::{AgentRuntime, NoTools, Session, Wanted},
    tools::{ToolError, Tools},
    transcript::Entry,
    web::Search,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A manual in every format, with what surrounds the text of real pages.
fn manual() -> TempDir {
    let dir = TempDir::new().unwrap();
    let page = |title: &str, body: &str| {
        format!(
            "<!DOCTYPE html>\n<html class=\"sidebar-visible\">\n<head><title>{title} - Harbor</title>\n<style>p {{ color: red }}</style>\n\
             <script>var backup = 'backup retention script';</script></head>\n<body>\n<nav id=\"sidebar\"><ol><li><a href=\"b.html\">Backup \
             retention</a></li><li><a href=\"k.html\">Key rotation</a></li></ol></nav>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n\
             <footer>Backup retention is a trademark.</footer>\n</body></html>\n"
        )
    };
    let backup = "<p>Harbor keeps each nightly backup for a retention period of <code>ninety&nbsp;days</code>\nand then removes it &amp; its \
         checksums.\nA weekly backup is kept for one year.</p>\n<h2>Restoring</h2>\n<p>To restore a backup, stop the server and run the\n\
         <code>harbor restore&lt;id&gt;</code> command.</p>";
    let keys = "<p>Signing keys rotate every thirty days.\nThe old key stays valid for a grace period of two days.</p>";
    let listing =
        "<p>The scheduler is configured like this:</p>\n<pre><code>schedule {\n    every = \"night\"\n}</code></pre>";
    write(dir.path(), "docs/backup.html", &page("Backups", backup));
    write(dir.path(), "docs/keys.html", &page("Keys", keys));
    write(dir.path(), "docs/scheduler.html", &page("Scheduler", listing));
    write(
        dir.path(),
        "docs/network.html",
        &page("Network", "<p>The server listens on port 8080 of the loopback interface.</p>"),
    );
    let limits = "# Limits\n\nIntro.\n\n## Uploads\n\nAn upload may have **512 MiB** at most; larger uploads are refused\nwith status \
         `413`.\n\n- Parallel uploads: eight per user.\n- Resumable uploads expire after a day.\n";
    write(dir.path(), "docs/limits.md", limits);
    let notes = "Release notes\n=============\n\nVersion 4 dropped support for the legacy tape archive.\nUse object storage <instead>.\n";
    write(dir.path(), "docs/notes.txt", notes);
    let code = "use std::time::Duration;\n\n/// How long a client waits before it tries a refused connection again.\npub fn \
         reconnect_delay(attempt: u32) -> Duration {\n    Duration::from_secs(2u64.pow(attempt.min(6)))\n}\n";
    write(dir.path(), "docs/src/client.rs", code);
    dir
}

/// The report on one document and one question.
async fn report_on(document: &[u8], question: &str) -> String {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("docs")).unwrap();
    fs::write(dir.path().join("docs/a.md"), document).unwrap();
    ask(&dir, question).await.report()
}

#[tokio::test]
async fn a_word_is_found_in_all_its_forms_and_quoted_as_it_is() {
    for (document, question, quoted) in [
        ("# Gefäß\n\nEin Gefäß ist ein Behälter.\n", "What is a Gefa\u{308}ß?", "Ein Gefäß ist ein Behälter."),
        (
            "# Text\n\nEin Gefa\u{308}ß ist ein Beha\u{308}lter.\n",
            "What is a Gefäß?",
            "Ein Gefa\u{308}ß ist ein Beha\u{308}lter.",
        ),
        ("The Ros\u{ad}ter is the set of members.\n", "What is the roster?", "The Ros\u{ad}ter is the set of members."),
        ("The o\u{fb03}ce opens at nine.\n", "When does the office open?", "The o\u{fb03}ce opens at nine."),
        ("Ｇｕｉｌｄ is the name of the host.\n", "What is Guild?", "Ｇｕｉｌｄ is the name of the host."),
    ] {
        let report = report_on(document.as_bytes(), question).await;
        assert!(report.contains(&format!("- “{quoted}” [1]")), "{report}");
        assert!(!report.contains("## Open questions"), "{report}");
    }
}

#[tokio::test]
async fn a_question_is_understood_where_words_are_not_set_apart_and_in_other_languages() {
    for (document, question, quoted) in [
        ("# 名簿\n\n名簿とは、一つのホストが提供するメンバーの集まりである。\n", "名簿とは何ですか？", "名簿とは、"),
        ("# 名簿\n\n名簿とは、一つのホストが提供するメンバーの集まりである。\n", "What is 名簿?", "名簿とは、"),
        ("# 名册\n\n名册是一个主机提供的成员集合。\n", "什么是名册？", "名册是一个主机"),
        ("# Registre\n\nUn registre est une liste de membres.\n", "Qu'est-ce qu'un registre ?", "Un registre est"),
        ("# Реестр\n\nРеестр — это список участников.\n", "Что такое реестр?", "Реестр — это"),
        ("# Gefäß\n\nEin Gefäß ist ein Behälter.\n", "Was ist ein Gefäß?", "Ein Gefäß ist"),
    ] {
        let report = report_on(document.as_bytes(), question).await;
        assert!(report.contains(&format!("- “{quoted}")), "{report}");
        assert!(!report.contains("## Open questions"), "{report}");
    }
    let report = report_on("# 名簿\n\n名簿とは、メンバーの集まりである。\n".as_bytes(), "倉庫とは何ですか？").await;
    assert!(report.contains("Not found in the sources"), "{report}");
    assert!(report.contains("- 倉庫とは何ですか？ (no passage has “倉庫”)"), "{report}");
    let report = report_on(b"# Roster\n\nThe roster is the set of members.\n", "What is it for?").await;
    assert!(report.contains("The question has no word to look for.") && !report.contains("Not found"), "{report}");
}

#[tokio::test]
async fn a_document_is_read_in_its_encoding() {
    let latin = b"# Harbor\n\nDie Gr\xf6\xdfe des Gef\xe4\xdfes betr\xe4gt f\xfcnf Liter.\n";
    let wide: Vec<u8> =
        "\u{feff}# Harbor\n\nThe roster is the set of members.\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (document, question, quoted) in [
        (&latin[..], "Was ist die Größe des Gefäßes?", "Die Größe des Gefäßes beträgt fünf Liter."),
        (&wide, "What is the roster?", "The roster is the set of members."),
    ] {
        let report = report_on(document, question).await;
        assert!(report.contains(&format!("- “{quoted}” [1]")), "{report}");
        assert!(report.contains("`docs/a.md:3`"), "{report}");
    }
}

#[tokio::test]
async fn an_open_question_names_the_words_that_no_passage_has() {
    let dir = manual();
    let report = ask(&dir, "Which zeppelin carries a nightly backup to Bristol?").await.report();
    assert!(report.contains("No passage has most of what was asked. The closest passages: [1]"), "{report}");
    assert!(report.contains("(no passage has “zeppelin”, “carries”, “bristol”)"), "{report}");
    assert!(report.contains("`docs/backup.html:10`"), "{report}");
}

#[tokio::test]
async fn files_that_are_no_sources_are_not_cited() {
    let dir = manual();
    write(dir.path(), "docs/work/report.md", "# Report\n\nSigning keys rotate every ten days.\n");
    let files = ReadRoots::open([dir.path().join("docs")]).unwrap().without_sources(vec!["docs/work".to_owned()]);
    let (files, job): (Arc<dyn Files>, _) = (Arc::new(files), Arc::new(Job::default()));
    let runtime = Extractive::new();
    runtime.run(session("How often do signing keys rotate?", job.clone(), Some(files.clone()))).await;
    assert!(job.report().contains("every thirty days") && !job.report().contains("work/report.md"), "{}", job.report());
    let hits = runtime.search(files).search("signing keys rotate", 10).await.unwrap();
    assert!(!hits.is_empty() && hits.iter().all(|hit| hit.url != "docs/work/report.md"), "{hits:?}");
}

async fn ask(dir: &TempDir, task: &str) -> Arc<Job> {
    let job = Arc::new(Job::default());
    let end = Extractive::new().run(session(task, job.clone(), Some(roots(&dir.path().join("docs"))))).await;
    assert_eq!(end.ending, Ending::Success, "{task}");
    assert_eq!(end.text, job.report());
    job
}

/// The quotations of a report: path, line, text without the marks that make it Markdown.
fn quotations(report: &str) -> Vec<(String, usize, String)> {
    let mut found: Vec<(String, usize, String)> = Vec::new();
    let (mut open, mut fence) = (false, None::<String>);
    for line in report.lines().skip_while(|line| *line != "## Findings").take_while(|line| *line != "## Open questions")
    {
        if let Some((_, place)) = line.rsplit_once("** — `") {
            let (path, number) = place.trim_end_matches('`').rsplit_once(':').unwrap();
            found.push((path.to_owned(), number.parse().unwrap(), String::new()));
            open = true;
        } else if fence.as_deref() == Some(line) {
            fence = None;
        } else if open && fence.is_none() && line.starts_with("```") {
            fence = Some("`".repeat(line.len() - line.trim_start_matches('`').len()));
        } else if let Some((_, _, text)) = found.last_mut() {
            let quoted = if fence.is_some() { Some(line) } else { line.strip_prefix('>').map(str::trim_start) };
            text.push_str(quoted.unwrap_or_default());
            text.push('\n');
        }
    }
    found
}

/// A text as a reader sees it: no tags, no entities, white space as one space.
fn visible(html: &str) -> String {
    let mut text = String::new();
    let mut tag = false;
    for c in html.chars() {
        match c {
            '<' => tag = true,
            '>' if tag => {
                tag = false;
                text.push(' ');
            }
            c if !tag => text.push(c),
            _ => {}
        }
    }
    plain(&text.replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<String>()
}

fn assert_quotations_stand(report: &str, dir: &Path) {
    let quotations = quotations(report);
    assert!(!quotations.is_empty(), "{report}");
    for (path, line, quote) in quotations {
        let source = fs::read_to_string(dir.join(&path)).unwrap();
        let rest: String = source.lines().skip(line - 1).map(|line| format!("{line}\n")).collect();
        let first = source.lines().nth(line - 1).unwrap();
        let html = path.ends_with(".html");
        let (rest, first) = if html { (visible(&rest), visible(first)) } else { (plain(&rest), plain(first)) };
        let unescaped = quote.replace('\\', "");
        let quote = plain(&if html { unescaped.replace('`', "") } else { unescaped });
        let at = rest.find(&quote).unwrap_or_else(|| panic!("{path}:{line} does not say {quote}\nbut {rest}"));
        assert!(at < first.len(), "{path}: {quote} does not begin in line {line}");
    }
}

const ANSWERED: &[(&str, &str, &str)] = &[
    ("How long is a nightly backup kept?", "docs/backup.html:10", "ninety"),
    ("What is the retention period of backups?", "docs/backup.html:10", "ninety"),
    ("How do I restore a backup?", "docs/backup.html:14", "stop the server"),
    ("How often do signing keys rotate?", "docs/keys.html:10", "every thirty days"),
    ("Which port does the server listen on?", "docs/network.html:10", "8080"),
    ("How large may an upload be?", "docs/limits.md:7", "512 MiB"),
    ("How many parallel uploads are allowed per user?", "docs/limits.md:7", "eight per user"),
    ("Is the tape archive still supported?", "docs/notes.txt:4", "dropped support"),
    ("How long does a client wait before it reconnects?", "docs/src/client.rs:1", "reconnect_delay"),
];

const ABSENT: &[&str] = &[
    "What is the capital of France?",
    "What does the manual say about garbage collection tuning in Haskell?",
    "How do I configure Kubernetes ingress?",
    "Who won the football world championship?",
    "How is a backup encrypted with a hardware security module?",
    "What are the visa requirements for Japan?",
];

#[tokio::test]
async fn answers_are_found_and_quotations_stand_at_their_place() {
    let dir = manual();
    for (task, place, words) in ANSWERED {
        let report = ask(&dir, task).await.report();
        assert!(report.contains(place), "{task}: {place}\n{report}");
        assert!(report.contains(words), "{task}: {words}\n{report}");
        assert!(!report.contains("Not found"), "{task}\n{report}");
        assert!(report.contains("extracted by search and not written by a model"));
        assert_quotations_stand(&report, dir.path());
    }
}

#[tokio::test]
async fn a_line_of_sources_is_all_that_is_searched() {
    let dir = manual();
    let question = "How long is a weekly backup of the keys kept?";
    let inside = ask(&dir, &format!("Sources: `docs/backup.html`, `docs/keys.html`\n\n{question}")).await.report();
    assert!(inside.contains("kept for one year") && inside.contains("Searched: 2 documents"), "{inside}");
    let outside = ask(&dir, &format!("Source: `docs/keys.html`\n\n{question}")).await.report();
    assert!(!quotations(&outside).is_empty() && !outside.contains("kept for one year"), "{outside}");
    assert!(quotations(&outside).iter().all(|(path, ..)| path == "docs/keys.html"), "{outside}");
}

#[tokio::test]
async fn a_question_without_an_answer_is_an_open_question() {
    let dir = manual();
    for task in ABSENT {
        let job = ask(&dir, task).await;
        let report = job.report();
        let says_none = ["Not found in the sources", "The closest passages"].iter().any(|said| report.contains(said));
        assert!(says_none && !report.contains("- “"), "{task}\n{report}");
        assert_eq!(job.inputs("log_question").len(), 1, "{task}");
    }
}

#[tokio::test]
async fn navigation_scripts_and_footers_are_not_quoted() {
    let dir = manual();
    for task in ["backup retention", "key rotation", "backup retention script", "backup retention trademark"] {
        let report = ask(&dir, task).await.report();
        let quoted: String = quotations(&report).into_iter().map(|(_, _, quote)| quote).collect();
        for unseen in ["trademark", "script", "color", "Backup retention", "Key rotation"] {
            assert!(!quoted.contains(unseen), "{task}: {unseen}\n{report}");
        }
    }
}

#[tokio::test]
async fn memories_on_questions_in_another_script_have_keys_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("docs")).unwrap();
    fs::write(dir.path().join("docs/moths.md"), "# 蛾\n\n月蛾活一个星期。\n").unwrap();
    fs::write(dir.path().join("docs/tides.md"), "# 潮汐\n\n潮汐跟随月亮。\n").unwrap();
    let mut keys = Vec::new();
    for question in ["月蛾活一个星期？", "潮汐跟随月亮？"] {
        keys.push(ask(&dir, question).await.inputs("store_memory")[0]["key"].clone());
    }
    assert_eq!(keys, ["sources-docs-moths-md", "sources-docs-tides-md"]);
}

#[tokio::test]
async fn it_works_through_the_tools_that_a_model_has() {
    let dir = manual();
    let job = ask(&dir, LONG_TASK).await;
    assert_eq!(job.inputs("update_summary").len(), 2);
    assert!(job.inputs("log_question")[0]["question"].as_str().unwrap().contains("capital of France"));
    let memory = &job.inputs("store_memory")[0];
    assert_eq!(memory["key"], "sources-signing-keys-rotate");
    let content = memory["content"].as_str().unwrap();
    assert!(
        content.starts_with("Question: How often do signing keys rotate?\nPassages: docs/keys.html:10"),
        "{content}"
    );
    assert!(content.ends_with("\nNot in the sources: What is the capital of France?"), "{content}");
    let report = job.report();
    for part in ["## Question", "## Summary", "## Findings", "## Open questions"] {
        assert!(report.contains(part), "{part}\n{report}");
    }
    assert_quotations_stand(&report, dir.path());
    let job = ask(&dir, &(1..=7).map(|n| format!("Does key {n} rotate? ")).collect::<String>()).await;
    let decision = &job.inputs("record_decision")[0];
    assert!(decision["decision"].as_str().unwrap().ends_with("not: Does key 7 rotate?"), "{decision}");
    assert!(["question", "reasoning"].iter().all(|field| !decision[field].as_str().unwrap().is_empty()));
}

#[tokio::test]
async fn the_same_task_on_the_same_sources_gives_the_same_report() {
    let dir = manual();
    let task = "How are backups kept, restored and scheduled? What are the limits of uploads?";
    let first = ask(&dir, task).await.report();
    for _ in 0..3 {
        assert_eq!(ask(&dir, task).await.report(), first);
    }
}

#[tokio::test]
async fn a_source_cannot_put_markup_of_its_own_into_a_report() {
    let dir = TempDir::new().unwrap();
    let text = "The gateway token is rotated <img src=x onerror=alert(1)> daily. ![x](http://tracker.example/p.png)\n```\n# Not a heading\n";
    write(dir.path(), "docs/a.txt", text);
    write(dir.path(), "docs/b.md", "# Gateway\n\nThe gateway token is secret. ![x](http://tracker.example/p.png)\n");
    write(
        dir.path(),
        "docs/c.md",
        "# Token\n\nThe gateway token is rotated by <img src=https://tracker.example/q.png> hand.\n",
    );
    write(
        dir.path(),
        "docs/d.md",
        "# A ` gateway token <img src=x>\n\nIt is rotated.\n\n# Gateway token \\<img src=y>\n\nRotated, too.\n",
    );
    let report = ask(&dir, "How is the gateway token rotated?").await.report();
    assert!(!report.contains("\n# Not"), "{report}");
    // Pictures and tags stand in a fence only.
    let outside: String = report.split("\n```").step_by(2).collect();
    assert!(!outside.contains("![") && report.contains("![x](http://tracker.example/p.png)"), "{report}");
    assert!(!outside.contains(" <img") && report.contains("<img src=https://tracker.example/q.png>"), "{report}");
    assert!(report.contains("A \\` gateway token \\<img src=x>** — `docs/d.md:3`"), "{report}");
    assert!(report.contains("Gateway token \\\\\\<img src=y>** — `docs/d.md:7`"), "{report}");
}

#[tokio::test]
async fn without_sources_it_says_what_to_set() {
    let runtime = Extractive::new();
    let check = |files| runtime.check(&Wanted { files, ..Wanted::default() });
    let refusal = check(None).unwrap_err();
    assert!(refusal.contains("--sources DIR") && refusal.contains("[[roots]]") && refusal.contains("guild.toml"));
    let none = ReadRoots::open::<&str>([]).unwrap();
    assert!(check(Some(&none)).is_err());
    let dir = manual();
    assert_eq!(check(Some(&*roots(dir.path()))), Ok(()));
    let end = runtime.run(session("What is this?", Arc::new(NoTools), None)).await;
    assert!(matches!(end.ending, Ending::Error(text) if text.contains("Read, Grep and Glob")));
}

#[tokio::test]
async fn without_job_tools_the_final_text_is_the_report() {
    let dir = manual();
    let kept = Arc::new(Kept::default());
    let session = session(ANSWERED[0].0, Arc::new(NoTools), Some(roots(&dir.path().join("docs"))));
    let session = Session { journal: kept.clone(), ..session };
    let meter = session.meter.clone();
    let end = Extractive::new().run(session).await;
    assert_eq!(end.ending, Ending::Success);
    assert!(end.text.contains("docs/backup.html:10"));
    assert!(matches!(kept.entries().last(), Some(Entry::Turn { text, .. }) if *text == end.text));
    assert_eq!(meter.account().usage, Usage { turns: 3, cost_usd: Some(0.0), ..Usage::default() });
}

#[tokio::test]
async fn bounds_and_cancellation_end_a_session() {
    let dir = manual();
    let runtime = Extractive::new();
    let job = Arc::new(Job::default());
    let with = |bounds| {
        let mut session = session(ANSWERED[0].0, job.clone(), Some(roots(&dir.path().join("docs"))));
        session.meter = Meter::new(bounds);
        session
    };
    let few = with(Bounds { max_turns: Some(2), ..Bounds::default() });
    assert_eq!(runtime.run(few).await.ending, Ending::MaxTurns);
    let late = with(Bounds { deadline_seconds: Some(0), ..Bounds::default() });
    assert_eq!(runtime.run(late).await.ending, Ending::Deadline);
    let cancelled = with(Bounds::default());
    cancelled.cancel.cancel();
    assert_eq!(runtime.run(cancelled).await.ending, Ending::Interrupted);
    assert_eq!(job.report(), "");
}

/// Read roots that say which files were read, and that can be made to hang.
struct Watched {
    inner: Arc<dyn Files>,
    read: Mutex<HashMap<String, u32>>,
    hangs: Mutex<bool>,
    goes_on: std::sync::Condvar,
}

impl Watched {
    fn new(dir: &Path, hangs: bool) -> Arc<Self> {
        let (read, goes_on) = Default::default();
        Arc::new(Self { inner: roots(dir), read, hangs: Mutex::new(hangs), goes_on })
    }
}

impl Files for Watched {
    fn roots(&self) -> Vec<String> {
        self.inner.roots()
    }

    fn walk(&self, cancel: &CancellationToken) -> Result<Listing, ToolError> {
        self.inner.walk(cancel)
    }

    fn bytes(&self, path: &str, max: u64) -> Result<Vec<u8>, ToolError> {
        *self.read.lock().unwrap().entry(path.to_owned()).or_default() += 1;
        drop(self.goes_on.wait_while(self.hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        self.inner.bytes(path, max)
    }

    fn read(&self, path: &str, offset: u32, limit: u32) -> Result<String, ToolError> {
        self.inner.read(path, offset, limit)
    }

    fn grep(&self, request: &GrepRequest, cancel: &CancellationToken) -> Result<GrepResult, ToolError> {
        self.inner.grep(request, cancel)
    }

    fn glob(
        &self,
        pattern: &str,
        directory: Option<&str>,
        limit: u32,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, ToolError> {
        self.inner.glob(pattern, directory, limit, cancel)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_at_once_read_the_sources_once_and_all_end() {
    let dir = manual();
    let files = Watched::new(&dir.path().join("docs"), false);
    let runtime = Arc::new(Extractive::new());
    let mut jobs = tokio::task::JoinSet::new();
    for n in 0..1000 {
        let (runtime, files) = (runtime.clone(), files.clone());
        jobs.spawn(async move {
            let (task, place, _) = ANSWERED[n % ANSWERED.len()];
            let end = runtime.run(session(task, Arc::new(Job::default()), Some(files))).await;
            end.ending == Ending::Success && end.text.contains(place)
        });
    }
    assert!(jobs.join_all().await.into_iter().all(|answered| answered));
    let read = files.read.lock().unwrap();
    assert!(read.len() == 7 && read.values().all(|times| *times == 1), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_waits_for_the_index_is_cancelled_at_once_and_others_go_on() {
    let dir = manual();
    let files = Watched::new(&dir.path().join("docs"), true);
    let runtime = Arc::new(Extractive::new());
    let start = || {
        let session = session(ANSWERED[0].0, Arc::new(Job::default()), Some(files.clone()));
        let (runtime, cancel) = (runtime.clone(), session.cancel.clone());
        (tokio::spawn(async move { runtime.run(session).await }), cancel)
    };
    let ((first, cancel), (second, _)) = (start(), start());
    // The first file is being read, and will be until it is let go.
    while files.read.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let end = tokio::time::timeout(Duration::from_secs(5), first).await.unwrap().unwrap();
    assert_eq!(end.ending, Ending::Interrupted);
    *files.hangs.lock().unwrap() = false;
    files.goes_on.notify_all();
    assert_eq!(second.await.unwrap().ending, Ending::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_index_of_changing_sources_is_built_at_a_time() {
    let dir = manual();
    let docs = dir.path().join("docs");
    let runtime = Arc::new(Extractive::new());
    let start = |files: Arc<Watched>| {
        let session = session(ANSWERED[0].0, Arc::new(Job::default()), Some(files));
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.run(session).await })
    };
    let before = Watched::new(&docs, true);
    let first = start(before.clone());
    while before.read.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    write(dir.path(), "docs/more.md", "# More\n\nSomething else.\n");
    let after = Watched::new(&docs, false);
    let mut second = start(after.clone());
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut second).await.is_err());
    assert!(after.read.lock().unwrap().is_empty(), "the older index is being built");
    *before.hangs.lock().unwrap() = false;
    before.goes_on.notify_all();
    assert_eq!(first.await.unwrap().ending, Ending::Success);
    assert_eq!(second.await.unwrap().ending, Ending::Success);
    assert!(!after.read.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_file_that_changed_is_read_again() {
    let dir = manual();
    let docs = dir.path().join("docs");
    let runtime = Extractive::new();
    let ask = async || {
        let job = Arc::new(Job::default());
        // Each with roots of its own, as two members have.
        runtime.run(session("How often do signing keys rotate?", job.clone(), Some(roots(&docs)))).await;
        job.report()
    };
    assert!(ask().await.contains("thirty days"));
    write(dir.path(), "docs/keys.html", "<h1>Keys</h1><p>Signing keys rotate every forty-five days.</p>");
    let report = ask().await;
    assert!(report.contains("forty-five days") && !report.contains("thirty days"), "{report}");
}

#[tokio::test]
async fn directories_of_the_same_name_do_not_share_an_index() {
    let runtime = Extractive::new();
    let dirs = [(TempDir::new().unwrap(), "thirty"), (TempDir::new().unwrap(), "ninety")];
    for (dir, days) in &dirs {
        write(dir.path(), "docs/keys.txt", &format!("Signing keys rotate every {days} days."));
        let file = fs::File::options().append(true).open(dir.path().join("docs/keys.txt")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let job = Arc::new(Job::default());
        let docs = roots(&dir.path().join("docs"));
        runtime.run(session("How often do signing keys rotate?", job.clone(), Some(docs))).await;
        assert!(job.report().contains(days), "{}", job.report());
    }
}

#[tokio::test]
async fn a_walk_is_dropped_when_other_sources_are_read() {
    let dir = manual();
    let runtime = Extractive::new();
    let [docs, code] = ["docs", "docs/src"].map(|path| roots(&dir.path().join(path)));
    let ask = async |files: &Arc<dyn Files>| {
        runtime.run(session(LONG_TASK, Arc::new(Job::default()), Some(files.clone()))).await;
        [&docs, &code].map(Arc::weak_count)
    };
    assert_eq!(ask(&docs).await, [1, 0]);
    assert_eq!(ask(&code).await, [0, 1]);
}

#[tokio::test]
async fn memories_are_condensed_within_the_cap() {
    let note = |key: &str, content: &str, modified: &str| MemoryNote {
        scope: guild_contract::manifest::Scope::Worker,
        key: key.to_owned(),
        content: content.to_owned(),
        modified: modified.to_owned(),
        origin: None,
    };
    let memories = vec![
        note("keys", "Signing keys rotate every thirty days.\nSee docs/keys.html.", "2026-01-02T00:00:00Z"),
        note("filler", &"Nothing new was learned here today.\n".repeat(200), "2026-01-01T00:00:00Z"),
    ];
    let meter = Meter::new(Bounds::default());
    let text = Extractive::new().condense(memories, 300, meter.clone()).await.unwrap();
    assert_eq!(meter.account().usage, Usage::default());
    assert!(text.chars().count() <= 300);
    assert!(text.contains("## keys\nSigning keys rotate every thirty days."), "{text}");
    assert_eq!(text.matches("Nothing new").count(), 1, "{text}");
}

const LONG_TASK: &str =
    "How often do signing keys rotate? How long is a weekly backup kept? What is the capital of France?";

/// A session over the manual whose tools are a tool set, with what it did before.
fn with_tool_set(dir: &TempDir, job: &Arc<Job>, kept: &Arc<Kept>, history: &[Entry]) -> Session {
    let tool_set =
        ToolSet::new(1, [job.clone() as Arc<dyn Tools>]).unwrap().with_journal(kept.clone()).with_history(history);
    let session = session(LONG_TASK, Arc::new(tool_set), Some(roots(&dir.path().join("docs"))));
    Session { journal: kept.clone(), history: history.to_vec(), ..session }
}

#[tokio::test]
async fn each_turn_is_in_the_transcript_before_its_calls() {
    let dir = manual();
    let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
    Extractive::new().run(with_tool_set(&dir, &job, &kept, &[])).await;
    let (mut turn, mut calls) = (0, 0);
    for entry in kept.entries() {
        match entry {
            Entry::Turn { session, turn: number, text, usage, .. } => {
                (turn, calls) = (turn + 1, 0);
                assert_eq!((session, number, usage.turns), (1, turn, 1));
                assert!(!text.is_empty());
            }
            Entry::Call { call, .. } => {
                assert_eq!(call, format!("1.{turn}.{calls}"));
                calls += 1;
            }
            Entry::Result { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(turn, 3);
}

#[tokio::test]
async fn a_session_is_resumed_wherever_its_host_stopped_and_each_effect_happens_once() {
    let dir = manual();
    let runtime = Extractive::new();
    let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
    let whole = runtime.run(with_tool_set(&dir, &job, &kept, &[])).await;
    let ids = |calls: &[&str]| calls.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let made: Vec<String> = job.calls().into_iter().map(|call| call.id).collect();
    let entries = kept.entries();
    for stopped in 0..=entries.len() {
        let history = &entries[..stopped];
        let (job, kept) = (Arc::new(Job::default()), Arc::new(Kept::default()));
        let session = with_tool_set(&dir, &job, &kept, history);
        let meter = session.meter.clone();
        assert_eq!(runtime.can_resume(history), Ok(()));
        assert_eq!(runtime.run(session).await, whole);
        let answered: Vec<&str> = history
            .iter()
            .filter_map(|entry| if let Entry::Result { call, .. } = entry { Some(call.as_str()) } else { None })
            .collect();
        let again: Vec<String> = job.calls().into_iter().map(|call| call.id).collect();
        assert_eq!([ids(&answered), again].concat(), made, "stopped after {stopped} entries");
        let turns = |entries: &[Entry]| entries.iter().filter(|entry| matches!(entry, Entry::Turn { .. })).count();
        assert_eq!(turns(history) + turns(&kept.entries()), 3);
        assert_eq!(turns(history) + meter.account().usage.turns as usize, 3);
    }
}

#[tokio::test]
async fn the_local_sources_can_be_searched_as_the_web_is() {
    let dir = manual();
    let files = Watched::new(&dir.path().join("docs"), false);
    let runtime = Extractive::new();
    let search = runtime.search(files.clone());
    let hits = search.search("signing keys rotate", 5).await.unwrap();
    assert_eq!((hits[0].title.as_str(), hits[0].url.as_str()), ("Keys - Harbor › Keys (line 10)", "docs/keys.html"));
    assert!(hits[0].snippet.contains("every thirty days"), "{}", hits[0].snippet);
    let hits = search.search("nightly backup retention restore server upload limits", 2).await.unwrap();
    assert_eq!(hits.len(), 2);
    assert!(search.search("the", 5).await.unwrap().is_empty());
    assert!(search.search("quetzalcoatl", 5).await.unwrap().is_empty());
    // A session of the same runtime finds the index ready.
    runtime.run(session(ANSWERED[0].0, Arc::new(NoTools), Some(files.clone()))).await;
    let read = files.read.lock().unwrap();
    assert!(read.values().all(|times| *times == 1), "{read:?}");
}

#[tokio::test]
async fn a_local_search_sees_files_that_changed() {
    let dir = manual();
    let docs = dir.path().join("docs");
    let runtime = Extractive::new();
    let first = async || runtime.search(roots(&docs)).search("signing keys rotate", 1).await.unwrap();
    assert!(first().await[0].snippet.contains("thirty"));
    write(dir.path(), "docs/keys.html", "<h1>Keys</h1><p>Signing keys rotate every forty-five days.</p>");
    assert!(first().await[0].snippet.contains("forty-five"));
}
