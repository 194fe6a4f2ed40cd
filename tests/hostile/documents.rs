//! Documents: files below a read root, and pages, that are written to cost much. They reach those who may not even read
//! them only through what they take of the host.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::harness::{Case, Hostile, OnDrop, task};
use crate::support::{guest::Guest, host::wait_for};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// A pattern that takes time with each character that it looks at.
const COSTLY: &str = "(?:a.{0,900}a.{0,900}a.{0,900})z";

/// A guest that searches for this pattern, and in its second case reads this file.
fn searching(pattern: &str, path: &str) -> Vec<u8> {
    Guest::importing(&["files"])
        .with(&format!("(data (i32.const 1024) {pattern:?}) (data (i32.const 2048) {path:?})"))
        .run(&format!(
            "(if (i32.eq (call $case (local.get 0)) (i32.const 1))
               (then (call $files.grep (i32.const 1024) (i32.const {}) (i32.const 0) (i32.const 0) (i32.const 0)
                       (i32.const 10) (i32.const 8192)))
               (else (call $files.read (i32.const 2048) (i32.const {}) (i32.const 1) (i32.const 10) (i32.const 8192))))
             (call $outcome)",
            pattern.len(),
            path.len()
        ))
        .build()
}

/// A read root of this name.
fn with_root(hostile: Hostile, name: &str) -> Hostile {
    let path = hostile.place(name);
    hostile.policy(&format!("[[roots]]\nname = {name:?}\npath = {path:?}\n"))
}

/// A hostile member that searches the documents below `docs` for this pattern.
fn searcher(pattern: &str, path: &str) -> Hostile {
    with_root(Hostile::autonomous(searching(pattern, path)), "docs")
}

/// Each child of the host, with its resident memory in KiB.
fn children(case: &Case) -> Vec<(String, u64)> {
    let of = |pid: String| -> Option<(String, u64)> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        (field("PPid:")? == u64::from(case.host.pid())).then(|| (pid, field("VmRSS:").unwrap_or(0)))
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter_map(of).collect()
}

fn wait_until_no_child_is_left(case: &Case) {
    wait_for("the last child to end", || children(case).is_empty().then_some(()));
}

/// The most children, and the most memory of all of them in MiB, that the host has while something happens.
fn watched(case: &Case, act: impl FnOnce()) -> (usize, u64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut count, mut memory) = (0, 0);
            while !over.load(Ordering::Acquire) {
                let now = children(case);
                count = count.max(now.len());
                memory = memory.max(now.iter().map(|(_, memory)| memory).sum::<u64>() / 1024);
                thread::park_timeout(Duration::from_millis(10));
            }
            (count, memory)
        });
        {
            let _over = OnDrop(&over);
            act();
        }
        watcher.join().unwrap()
    })
}

fn too_long(seconds: u32) -> String {
    format!(
        "it took longer than {seconds} s (the fixed limit search_seconds): ask for less, with a narrower path, glob or \
         pattern"
    )
}

#[test]
fn a_search_ends_at_its_limit_and_nothing_of_it_runs_on() {
    let hostile = searcher(COSTLY, "docs/a.txt").document("docs/a.txt", &"a".repeat(130_000));
    hostile.limit("search_seconds = 1").attacks(|case| {
        let (most, memory) = watched(case, || drop(case.fails(&too_long(1))));
        assert!(most >= 1 && memory < 300, "{most} children, {memory} MiB");
        wait_until_no_child_is_left(case);
        // What is within it is found out.
        let (_, output) = case.completes(2);
        assert_eq!(output, "ok");
    });
}

#[test]
fn a_search_ends_with_the_job_that_asked_for_it() {
    let hostile = searcher(COSTLY, "docs/a.txt").document("docs/a.txt", &"a".repeat(2_000_000));
    hostile.limit("search_seconds = 600").attacks(|case| {
        let id = case.start(1);
        wait_for("the search", || (!children(case).is_empty()).then_some(()));
        let begun = Instant::now();
        assert_eq!(case.client().cancel(&id).unwrap()["status"], "cancelled");
        wait_until_no_child_is_left(case);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_member_has_so_many_searches_at_a_time() {
    let hostile = searcher(COSTLY, "docs/a.txt").document("docs/a.txt", &"a".repeat(130_000));
    hostile.limit("search_seconds = 1").limit("searches = 1").attacks(|case| {
        let (most, _) = watched(case, || {
            let ids: Vec<String> = (0..4).map(|_| case.start(1)).collect();
            let busy = "busy: 1 searches of this member are running (the fixed limit searches); try again";
            let why: Vec<String> =
                ids.iter().map(|id| case.client().ended(id)["error"].as_str().unwrap().to_owned()).collect();
            assert!(why.iter().all(|why| *why == too_long(1) || why == busy), "{why:?}");
            assert!(why.contains(&too_long(1)) && why.iter().any(|why| why == busy), "{why:?}");
        });
        // One, and one that is just being ended.
        assert!(most <= 2, "{most} children");
    });
}

#[test]
fn a_search_has_no_more_memory_than_its_limit() {
    let hostile = searcher("a", "docs/a.txt").document("docs/a.txt", &"b".repeat(4 * MIB));
    hostile.limit("search_memory_bytes = 1048576").attacks(|case| {
        case.fails(
            "it took more than 1048576 bytes of memory (the fixed limit search_memory_bytes): ask for less, with a \
             narrower path, glob or pattern",
        );
    });
}

#[test]
fn an_ignore_file_of_a_megabyte_hides_what_is_below_it_and_costs_little() {
    let hostile = searcher("secret", "docs/below/secret.txt")
        .document("docs/below/.gitignore", &"secret?a*\n".repeat(MIB / 10))
        .document("docs/below/secret.txt", "secret");
    hostile.attacks(|case| {
        let (_, memory) = watched(case, || {
            let ids: Vec<String> = (0..8).map(|_| case.start(1)).collect();
            ids.iter().for_each(|id| assert_eq!(case.client().ended(id)["status"], "completed"));
        });
        assert!(memory < 500, "{memory} MiB");
        let why = "\"docs/below/.gitignore\" has more than 65536 bytes; make it smaller, or remove it";
        case.case_fails(2, &format!("\"docs/below/secret.txt\" is not read: {why}"));
        assert_eq!(case.host.output().matches(why).count(), 1, "{}", case.host.output());
    });
}

#[test]
fn a_line_of_60_mib_is_read_in_pieces() {
    let hostile = searcher("x", "docs/long.txt").document("docs/long.txt", &"x".repeat(60 * MIB));
    hostile.attacks(|case| {
        let peak = || {
            let status = fs::read_to_string(format!("/proc/{}/status", case.host.pid())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        let before = peak();
        let ids: Vec<String> = (0..4).map(|_| case.start(2)).collect();
        ids.iter().for_each(|id| assert_eq!(case.client().ended(id)["status"], "completed"));
        let grown = peak() - before;
        assert!(grown < 40 * 1024, "{grown} KiB");
    });
}

/// Two members whose sessions the host runs: `reader` reads both roots, `other` only the good one.
fn read_by_two(hostile: Hostile) -> Hostile {
    with_root(with_root(hostile, "docs"), "good")
        .researcher("reader")
        .researcher("other")
        .policy("[member.other]\ndeny = [\"files:docs\"]\n")
        .document("good/owls.md", "# Owls\n\nOwls turn their heads by 270 degrees.\n")
        .document("docs/moths.md", "# Moths\n\nMoths fly to lamps at night.\n")
}

/// A tag with so many attributes that reading it takes minutes: each is compared with all before it.
fn attributes(tag: &str) -> String {
    let attributes: String = (0..600_000).map(|n| format!(" a{n}")).collect();
    format!("<{tag}{attributes}>x</{tag}>")
}

fn quiet() -> Hostile {
    Hostile::autonomous(searching("x", "x"))
}

/// Runs the reader's job while jobs of the other member end in time; the report of the first.
fn reads(case: &Case) -> String {
    let reader = case.host.at("reader");
    let id = reader.start("How do moths fly at night?");
    wait_for("a document to be read", || (!children(case).is_empty()).then_some(()));
    for _ in 0..2 {
        let begun = Instant::now();
        let other = case.host.at("other");
        let id = other.start("By how many degrees do owls turn their heads?");
        assert_eq!(other.ended(&id)["status"], "completed");
        assert!(other.result(&id).unwrap()["output"].as_str().unwrap().contains("270 degrees"));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    assert_eq!(reader.ended(&id)["status"], "completed");
    let report = reader.result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    assert!(report.contains("fly to lamps"), "{report}");
    wait_until_no_child_is_left(case);
    report
}

#[test]
fn slow_documents_are_left_out_and_delay_nobody_who_may_not_read_them() {
    let hostile = read_by_two(quiet())
        .document("docs/1.html", &attributes("p"))
        .document("docs/2.html", &attributes("div"))
        .document("docs/3.html", &attributes("span"));
    hostile.limit("document_seconds = 1").attacks(|case| {
        let mut said = String::new();
        let (most, memory) = watched(case, || said = reads(case));
        assert!(said.contains("- that took too long, or too much memory, to read (3): "), "{said}");
        assert!(memory < 1024, "{most} children, {memory} MiB");
    });
}

#[test]
fn reading_a_document_ends_with_the_job_that_asked_for_it() {
    let hostile = read_by_two(quiet()).document("docs/1.html", &attributes("p"));
    hostile.limit("document_seconds = 600").attacks(|case| {
        let reader = case.host.at("reader");
        let id = reader.start("How do moths fly at night?");
        wait_for("a document to be read", || (!children(case).is_empty()).then_some(()));
        assert_eq!(reader.cancel(&id).unwrap()["status"], "cancelled");
        let begun = Instant::now();
        wait_until_no_child_is_left(case);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_document_whose_reader_is_killed_is_left_out_and_not_for_what_it_costs() {
    let hostile = with_root(quiet(), "docs").researcher("reader").document("docs/1.html", &attributes("p"));
    hostile.limit("document_seconds = 600").attacks(|case| {
        let reader = case.host.at("reader");
        let id = reader.start("How do moths fly at night?");
        let reads =
            |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.contains("\0document\0"));
        let find = || children(case).into_iter().find(|(pid, _)| reads(pid));
        let (child, _) = wait_for("the document to be read", find);
        assert!(Command::new("kill").args(["-KILL", &child]).status().unwrap().success());
        assert_eq!(reader.ended(&id)["status"], "completed");
        let report = reader.result(&id).unwrap()["output"].to_string();
        assert!(report.contains("whose reader failed, see the host's log (1): `docs/1.html`"), "{report}");
    });
}

#[test]
fn a_document_has_no_more_memory_than_its_limit() {
    let hostile = read_by_two(quiet()).document("docs/large.txt", &"word ".repeat(14 * MIB / 5));
    hostile.limit("document_memory_bytes = 33554432").attacks(|case| {
        let said = reads(case);
        assert!(said.contains("- that took too long, or too much memory, to read (1): `docs/large.txt`"), "{said}");
    });
}

/// Each of these took the square of its length somewhere, or many times its length in memory.
#[test]
fn whatever_a_document_is_made_of_it_is_read_or_left_out() {
    let size = 256 * KIB;
    let fill = |text: &str| text.repeat(size / text.len());
    let words: String = (0..size / 7).map(|n| format!("w{n:05} ")).collect();
    let texts = [
        ("line.txt", fill("word ")),
        ("dots.txt", format!("a{}", fill("."))),
        ("ends.txt", fill("a. ")),
        ("open.md", fill("![")),
        ("images.md", fill("![a]")),
        ("links.md", format!("{}{}", "![".repeat(size / 6), "](x)".repeat(size / 6))),
        ("bars.md", fill("|")),
        ("angles.html", fill("<")),
        ("angles.md", fill("<")),
        ("headings.md", fill("# a\n")),
        ("heading.md", format!("# {}\n\n{}", fill("long "), fill("x\n\n"))),
        ("lists.md", (0..400).map(|n| format!("{}- a\n", "  ".repeat(n))).collect()),
        ("quotes.md", format!("{}a\n", fill(">"))),
        ("blocks.txt", fill("a\n\n")),
        ("words.txt", words),
        ("deep.html", fill("<div>a")),
    ];
    let mut hostile = read_by_two(quiet()).limit("document_seconds = 1");
    for (name, text) in &texts {
        hostile = hostile.document(&format!("docs/{name}"), text);
    }
    hostile.growth_mib(96).attacks(|case| drop(reads(case)));
}

#[test]
fn a_page_of_4_mib_of_angle_brackets_is_not_read() {
    let site = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = site.local_addr().unwrap();
    let url = format!("http://{address}/");
    let component = Guest::importing(&["web"])
        .with(&format!("(data (i32.const 1024) {url:?})"))
        .run(&format!("(call $web.fetch (i32.const 1024) (i32.const {}) (i32.const 8192)) (call $outcome)", url.len()))
        .build();
    let policy =
        format!("[web]\nallow = [\"{address}\"]\nprivate = [\"{address}\"]\nrobots = false\npage_seconds = 5\n");
    Hostile::autonomous(component).policy(&policy).attacks(|case| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = site.accept().unwrap();
                assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
                let body = "<".repeat(4 * MIB - 1);
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
            });
            let (_, memory) = watched(case, || {
                let id = case.client().dispatch(task(1)).unwrap();
                let status = case.client().ended(&id);
                assert_eq!(status["status"], "failed", "{status}");
                let why = status["error"].as_str().unwrap();
                let too_much = why.starts_with(&format!("the page at {address} is not read: it takes too"))
                    || why == format!("{address} did not answer in full within 5 s ([web] page_seconds)");
                assert!(too_much, "{why}");
            });
            assert!(memory < 400, "{memory} MiB");
        });
        wait_until_no_child_is_left(case);
    });
}
