//! `guild backup` while a host works, and `guild restore` elsewhere.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::{
    commissions::Hall,
    support::{
        host::{Home, Host, free_port},
        output::{stderr, stdout},
    },
};

fn succeeds(home: &Home, arguments: &[&str]) -> String {
    let run = home.run(arguments);
    assert!(run.status.success(), "{arguments:?}: {}", stderr(&run));
    stdout(&run)
}

/// Serves what was restored, by the command that `guild restore` printed.
fn serve(home: &Home, printed: &str) -> Host {
    let port = free_port();
    let script = format!("exec env {} --port {port}", printed.trim().replacen("guild serve", "\"$0\" serve", 1));
    let guild = home.guild();
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(guild.get_program()).current_dir(home.path(".")).stdin(Stdio::null());
    for (name, value) in guild.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut host = Host::start(command, port, "");
    assert!(host.is_ready(), "{}", host.output());
    host
}

#[test]
fn a_backup_of_a_host_at_work_has_all_jobs_that_had_ended_and_none_that_cannot_be_read() {
    let home = Home::new();
    home.quick("quick");
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let (quick, endless) = (host.at("quick"), host.at("endless"));
    let before: Vec<String> = (0..20).map(|n| quick.start(&format!("before {n}"))).collect();
    before.iter().for_each(|id| drop(quick.ended(id)));
    home.write(&format!("members/quick/jobs/{}/artifacts/table.csv", before[0]), "a,b\n1,2\n");
    home.write("members/quick/memory/moth.md", "It lives for a week.\n");
    let running = endless.start("runs on");

    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let id = quick.start("meanwhile");
                quick.ended(&id);
                quick.delete(&id).unwrap();
                quick.start("meanwhile, and kept");
            }
        });
        for name in ["one.tar.gz", "two.tar.gz"] {
            succeeds(&home, &["backup", name, "--members", "members"]);
        }
        ends.store(true, Ordering::Relaxed);
    });
    host.stop();
    assert_eq!(fs::metadata(home.path("one.tar.gz")).unwrap().permissions().mode() & 0o777, 0o600);
    let again = home.run(&["backup", "one.tar.gz", "--members", "members"]);
    assert!(stderr(&again).contains("one.tar.gz cannot be written: File exists"), "{}", stderr(&again));

    for name in ["one", "two"] {
        let printed = succeeds(&home, &["restore", &format!("{name}.tar.gz"), &format!("there/{name}")]);
        let again = home.run(&["restore", &format!("{name}.tar.gz"), &format!("there/{name}")]);
        assert!(stderr(&again).contains("is not empty; name a new directory"), "{}", stderr(&again));
        let host = serve(&home, &printed);
        let quick = host.at("quick");
        for id in &before {
            assert_eq!(quick.status(id).unwrap()["status"], "completed");
            assert_eq!(quick.result(id).unwrap()["output"], "date");
        }
        let listed = quick.call("worker/list", json!({})).unwrap();
        let listed = listed["jobs"].as_array().unwrap();
        assert!(listed.len() >= before.len());
        for job in listed {
            let id = job["jobId"].as_str().unwrap();
            let status = quick.ended(id);
            assert!(status["status"] == "completed" || status["error"].is_string(), "{status}");
            assert!(status["status"] != "completed" || quick.result(id).unwrap()["output"] == "date");
        }
        // It is another place: nothing goes on twice.
        let ended = host.at("endless").ended(&running);
        assert_eq!(ended["status"], "failed");
        let (status, output) = host.stop();
        assert!(status.success() && !output.contains("not a job"), "{output}");
        let there = home.path("there").join(name);
        let table = there.join(format!("members/quick/jobs/{}/artifacts/table.csv", before[0]));
        assert_eq!(fs::read_to_string(table).unwrap(), "a,b\n1,2\n");
        assert_eq!(fs::read_to_string(there.join("members/quick/memory/moth.md")).unwrap(), "It lives for a week.\n");
        assert_eq!(fs::metadata(there).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_hall_is_restored_with_its_commissions_tokens_and_pins() {
    let hall = Hall::new(&["demo"]);
    let home = &hall.home;
    home.quick("quick");
    succeeds(home, &["token", "add", "ann"]);
    let host = hall.serve();
    let done = hall.create("demo", "quick", json!({}));
    hall.dispatch(&done);
    hall.until("demo", &done, "completed");
    let planned = hall.create("demo", "quick", json!({}));
    // A file that only a process of this machine needs.
    home.write("hall/worktrees/demo/left/file", "x");
    let link = home.path("members/quick/link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    let backup = home.run(&["backup", "b.tar.gz", "--members", "members", "--hall", "hall"]);
    let told = stderr(&backup);
    assert!(backup.status.success() && told.contains("link is neither a file nor a directory"), "{told}");
    assert!(told.contains("keep it private"), "{told}");
    host.stop();

    // As on another machine: the old places are gone.
    for part in ["hall", "members", "config", ".local"] {
        fs::rename(home.path(part), home.path(&format!("gone-{part}"))).unwrap();
    }
    let printed = succeeds(home, &["restore", "b.tar.gz", "there"]);
    let there = home.path("there");
    for left_out in ["hall/worktrees/demo", "hall/.lock", "members/quick/.owner", "members/quick/link"] {
        assert!(!there.join(left_out).exists(), "{left_out}");
    }
    let lock = fs::read_to_string(there.join("config/guild.lock")).unwrap();
    let now = fs::canonicalize(&there).unwrap().join("members/quick");
    assert!(lock.contains(now.to_str().unwrap()), "{lock}");
    let config = there.join("config/guild.toml");
    let tokens = succeeds(home, &["token", "list", "--config", config.to_str().unwrap()]);
    assert!(tokens.contains("ann"), "{tokens}");
    assert!(there.join("state/guild/audit.jsonl").is_file());
    fs::rename(there.join("hall"), home.path("hall")).unwrap();
    let host = serve(home, &printed.replace(&format!("{}/hall", fs::canonicalize(&there).unwrap().display()), "hall"));
    assert_eq!(hall.read("demo", &done)["commission"]["status"], "completed");
    assert_ne!(hall.read("demo", &planned)["commission"]["status"], "failed");
    // Work goes on: the hall makes the worktrees anew.
    hall.dispatch(&planned);
    hall.until("demo", &planned, "completed");
    host.stop();
}

/// An archive with these entries after its description.
fn archive(path: &Path, entries: &[(&str, EntryType, &[u8])]) {
    let about = json!({"version": 1, "guild": "0", "created": "2026-01-01T00:00:00Z", "members": "/m", "hall": null});
    let mut tar = Builder::new(GzEncoder::new(fs::File::create(path).unwrap(), Compression::fast()));
    let about = about.to_string();
    let all = [&[("backup.json", EntryType::Regular, about.as_bytes())][..], entries].concat();
    for (name, kind, content) in all {
        let mut header = Header::new_gnu();
        // Not by the library, which refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o4777);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_size(0);
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap().flush().unwrap();
}

#[test]
fn what_is_no_backup_is_refused_and_leaves_nothing() {
    let home = Home::new();
    let refused = |why: &str, more: &[&str]| {
        let run = home.run(&[&["restore", "b.tar.gz", "there"], more].concat());
        assert_eq!(run.status.code(), Some(1), "{why}");
        assert!(stderr(&run).contains(why), "{why}: {}", stderr(&run));
        assert!(!home.path("there").exists() && !home.path("there-unfinished").exists(), "{why}");
    };
    let path = home.path("b.tar.gz");
    let file = EntryType::Regular;
    for name in ["../out", "/etc/out", "members/../../out", "members/a/../../../out", "elsewhere/out", "hall/x", "x"] {
        archive(&path, &[(name, file, b"x")]);
        refused("is not a path of a backup", &[]);
    }
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char] {
        archive(&path, &[("members/a", kind, b"")]);
        refused("members/a is neither a file nor a directory", &[]);
    }
    archive(&path, &[("members/a", file, b"x"), ("members/a", file, b"y")]);
    refused("members/a", &[]);
    archive(&path, &[("members/a", file, b"x"), ("members/a/b", file, b"y")]);
    refused("is not restored", &[]);
    archive(&path, &[("members/a", file, &[0; 100_000])]);
    refused("more than 99999 bytes; name a larger number with --max-bytes", &["--max-bytes", "99999"]);
    archive(&path, &[("././@LongLink", EntryType::GNULongName, &[b'a'; 5000]), ("members/a", file, b"x")]);
    refused("a path is too long", &[]);
    // One that was cut off.
    archive(&path, &[("members/a", file, b"whole")]);
    let whole = fs::read(&path).unwrap();
    for cut in [1, 4, 9, whole.len() / 2] {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        refused("is not restored", &[]);
    }
    fs::write(&path, "no archive").unwrap();
    refused("it is no backup that guild made", &[]);

    // Whole, it is restored, with no more than its owner's permissions.
    fs::write(&path, whole).unwrap();
    succeeds(&home, &["restore", "b.tar.gz", "there"]);
    assert_eq!(fs::read_to_string(home.path("there/members/a")).unwrap(), "whole");
    assert_eq!(fs::metadata(home.path("there/members/a")).unwrap().permissions().mode() & 0o7777, 0o700);
    // Nothing is unpacked into what is there.
    home.write("full/file", "mine");
    let run = home.run(&["restore", "b.tar.gz", "full"]);
    assert!(stderr(&run).contains("full is not empty"), "{}", stderr(&run));
}

#[test]
fn a_backup_goes_through_pipes() {
    let home = Home::new();
    home.quick("quick");
    let made = home.run(&["backup", "-", "--members", "members"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let mut command = home.guild();
    command.current_dir(home.path(".")).args(["restore", "-", "there"]).stdin(Stdio::piped());
    let mut restore = command.spawn().unwrap();
    restore.stdin.take().unwrap().write_all(&made.stdout).unwrap();
    assert!(restore.wait().unwrap().success());
    assert!(home.path("there/members/quick/guest.wasm").is_file());
}
