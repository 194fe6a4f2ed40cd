//! Who owns a member, and how another takes over.
#![allow(clippy::unwrap_used, reason = "a test helper fails its test")]

mod common;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use cap_std::{ambient_authority, fs::Dir};
use common::{Member, eventually};
use guild_jobs::{Owner, OwnerLock};

/// In a child process: owns a member until the process ends. Where it is told to, it does not end when asked.
#[test]
fn child_that_owns_a_member() {
    let Ok(path) = std::env::var("GUILD_TEST_MEMBER") else { return };
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let _lock = OwnerLock::try_acquire(&dir, "http://127.0.0.1:7/mcp").unwrap().unwrap();
    println!("\nowned");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().lines().for_each(drop);
}

fn owner_of(member: &Member, stubborn: bool) -> Child {
    let exe = std::env::current_exe().unwrap();
    let mut command = if stubborn {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TERM; exec \"$0\" \"$@\""]).arg(exe);
        shell
    } else {
        Command::new(exe)
    };
    let mut child = command
        .args(["--exact", "child_that_owns_a_member", "--nocapture"])
        .env("GUILD_TEST_MEMBER", member.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line == "owned"));
    child
}

fn acquire(member: &Member) -> Result<OwnerLock, Owner> {
    OwnerLock::try_acquire(&member.dir, "http://127.0.0.1:8/mcp").unwrap()
}

#[test]
fn a_member_has_one_owner_whom_others_learn() {
    let member = Member::new();
    let lock = acquire(&member).unwrap();
    let owner = acquire(&member).unwrap_err();
    assert_eq!((owner.pid, owner.url.as_str()), (std::process::id(), "http://127.0.0.1:8/mcp"));
    assert!(owner.is_alive());
    lock.set_url("http://127.0.0.1:9/mcp").unwrap();
    assert_eq!(acquire(&member).unwrap_err().url, "http://127.0.0.1:9/mcp");
    drop(lock);
    drop(acquire(&member).unwrap());
}

#[test]
fn the_lock_ends_with_the_process_however_that_ends() {
    let member = Member::new();
    let mut child = owner_of(&member, false);
    assert_eq!(acquire(&member).unwrap_err().pid, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    acquire(&member).unwrap();
}

#[test]
fn an_owner_is_asked_to_end_and_then_not_asked() {
    for stubborn in [false, true] {
        let member = Member::new();
        let mut child = owner_of(&member, stubborn);
        let owner = acquire(&member).unwrap_err();
        assert!(owner.is_alive());
        owner.terminate(Duration::from_millis(if stubborn { 50 } else { 5000 })).unwrap();
        assert!(!owner.is_alive());
        eventually("the lock is free", || acquire(&member).is_ok());
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap());
        assert_eq!(signal, Some(if stubborn { 9 } else { 15 }));
        owner.terminate(Duration::ZERO).unwrap();
    }
}

#[test]
fn a_process_that_only_has_the_same_id_is_left_alone() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let recycled = Owner { pid: child.id(), started: 1, url: String::new() };
    assert!(!recycled.is_alive());
    recycled.terminate(Duration::ZERO).unwrap();
    assert_eq!(child.try_wait().unwrap(), None, "a stranger was ended");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(Owner::default().terminate(Duration::ZERO).is_err());
}

#[test]
fn what_stands_in_the_file_does_not_matter_to_the_lock() {
    let member = Member::new();
    member.dir.write(".owner", "{\"pid\": 1, \"started\": 2, \"url\": \"\"} and more").unwrap();
    let lock = acquire(&member).unwrap();
    member.dir.write(".owner", "nonsense").unwrap();
    assert_eq!(acquire(&member).unwrap_err(), Owner::default());
    drop(lock);
    member.dir.symlink("elsewhere", ".owner").unwrap();
    let lock = acquire(&member).unwrap();
    assert_eq!(acquire(&member).unwrap_err().pid, std::process::id());
    assert!(!member.dir.exists("elsewhere"));
    drop(lock);
    member.dir.create_dir(".owner").unwrap();
    let error = OwnerLock::try_acquire(&member.dir, "").unwrap_err().to_string();
    assert!(error.contains("could not write .owner"), "{error}");
}

#[test]
fn a_file_that_is_removed_or_replaced_makes_no_second_owner() {
    let member = Member::new();
    let lock = acquire(&member).unwrap();
    member.dir.remove_file(".owner").unwrap();
    assert_eq!(acquire(&member).unwrap_err(), Owner::default());
    member.dir.write(".owner", "").unwrap();
    assert_eq!(acquire(&member).unwrap_err(), Owner::default());
    lock.set_url("http://127.0.0.1:8/mcp").unwrap();
    assert_eq!(acquire(&member).unwrap_err().pid, std::process::id());
}

#[test]
fn asking_for_the_owner_changes_nothing() {
    let member = Member::new();
    assert_eq!(Owner::of(&member.dir).unwrap(), None);
    assert_eq!(member.dir.entries().unwrap().count(), 0);
    let lock = acquire(&member).unwrap();
    let owner = Owner::of(&member.dir).unwrap().unwrap();
    assert_eq!((owner.pid, owner.url.as_str()), (std::process::id(), "http://127.0.0.1:8/mcp"));
    drop(lock);
    assert_eq!(Owner::of(&member.dir).unwrap(), None);
    assert_eq!(member.dir.entries().unwrap().count(), 0, "an owner that is gone is still named");
}

#[test]
fn asking_for_the_owner_is_in_no_new_owner_s_way() {
    let member = Member::new();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| (0..2000).for_each(|_| drop(Owner::of(&member.dir).unwrap())));
        while !asking.is_finished() {
            drop(acquire(&member).unwrap());
        }
    });
}

/// Whoever can read a directory can lock it, and all in it that they can read.
#[test]
fn a_lock_on_the_directory_or_on_its_files_blocks_no_owner() {
    let member = Member::new();
    let begin = std::time::Instant::now();
    let of_directory = std::fs::File::open(member.path("")).unwrap();
    rustix::fs::flock(&of_directory, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let lock = acquire(&member).unwrap();
    let of_owner = std::fs::File::open(member.path(".owner")).unwrap();
    rustix::fs::flock(&of_owner, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&member.path(".lock").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "others could lock it");
    drop(lock);
    assert_eq!(Owner::of(&member.dir).unwrap(), None);
    drop(acquire(&member).unwrap());
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_lock_file_that_is_removed_makes_no_second_owner() {
    let member = Member::new();
    let mut child = owner_of(&member, false);
    member.dir.remove_file(".lock").unwrap();
    assert_eq!(acquire(&member).unwrap_err().pid, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    acquire(&member).unwrap();
}

#[test]
fn what_a_killed_owner_left_is_removed_by_the_next() {
    let member = Member::new();
    let mut child = owner_of(&member, false);
    member.dir.write(".tmp-.owner", "half of").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(acquire(&member).unwrap());
    assert_eq!(member.dir.entries().unwrap().count(), 0);
}
