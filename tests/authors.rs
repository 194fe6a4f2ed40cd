//! The commands for authors: a new member, its build, and the loop of building and running. Builds in each language are
//! those of the tutorials, which `cargo xtask tutorials` carries out.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Output, Stdio},
};

use serde_json::json;

use crate::support::{
    guest,
    host::{Home, Host, free_port, wait_for},
};

/// An autonomous worker whose jobs complete with these four bytes.
fn answering(word: &str) -> Vec<u8> {
    let word = u32::from_le_bytes(word.as_bytes().try_into().unwrap());
    guest::autonomous(&format!(
        "(i32.store (i32.const 2048) (i32.const {word})) (i32.store8 (i32.const 4096) (i32.const 0))
         (i32.store (i32.const 4100) (i32.const 2048)) (i32.store (i32.const 4104) (i32.const 4)) (i32.const 4096)"
    ))
}

/// A member whose build copies `source.wasm`.
fn copying(home: &Home, component: &[u8]) {
    let member = home.member("copied", "autonomous-worker", component);
    fs::rename(member.join("guest.wasm"), member.join("source.wasm")).unwrap();
    home.write("members/copied/guild.build.toml", "command = [\"cp\", \"source.wasm\", \"made\"]\noutput = \"made\"\n");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_template_is_a_member_with_a_source_and_its_sdk() {
    let home = Home::new();
    for lang in ["rust", "js", "ts", "python", "go", "c"] {
        for kind in ["worker", "autonomous", "toolbox", "hybrid"] {
            let name = format!("{lang}-{kind}");
            let made = home.run(&["new", kind, &format!("members/{name}"), "--lang", lang]);
            if (lang, kind) == ("c", "autonomous") {
                assert!(said(&made).contains("there is no template of the kind autonomous in c"), "{}", said(&made));
                assert!(!home.path(&format!("members/{name}")).exists());
                continue;
            }
            assert!(made.status.success() && said(&made).contains("guild build"), "{name}: {}", said(&made));
            let read = |file: &str| fs::read_to_string(home.path(&format!("members/{name}/{file}"))).unwrap();
            assert!(read("README.md").contains(&format!("# {name}\n")) && !read("README.md").contains("{{"), "{name}");
            assert!(read(".gitignore").contains("/.guild/"), "{name}");
            assert!(home.path(&format!("members/{name}/sdk")).is_dir(), "{name}");
            assert!(!home.path(&format!("members/{name}/wit")).exists(), "{name}");
        }
    }
    // Each manifest is accepted; only the components are not built yet.
    let listed = home.run(&["members", "--members", "members", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.matches("does not exist in the member's directory").count(), 23, "{listed}");
}

#[test]
fn a_new_member_replaces_nothing() {
    let home = Home::new();
    home.write("mine/notes.md", "mine");
    let made = home.run(&["new", "worker", "mine", "--lang", "python"]);
    assert!(!made.status.success() && said(&made).contains("mine exists, and is not empty"), "{}", said(&made));
    assert_eq!(fs::read_dir(home.path("mine")).unwrap().count(), 1);
    symlink("elsewhere", home.path("linked")).unwrap();
    let linked = home.run(&["new", "worker", "linked", "--lang", "python"]);
    assert!(said(&linked).contains("linked is a symlink"), "{}", said(&linked));
    assert!(!home.path("elsewhere").exists());
    // An empty directory is no loss. The printed command is one for a shell.
    fs::create_dir_all(home.path("my members/reader")).unwrap();
    let made = home.run(&["new", "worker", "my members/reader", "--lang", "python"]);
    assert!(said(&made).contains("\n  cd 'my members/reader'\n"), "{}", said(&made));
    assert_eq!(fs::read_dir(home.path("my members")).unwrap().count(), 1, "nothing temporary is left");
    let named = home.run(&["new", "worker", "No_Name", "--lang", "python"]);
    assert!(said(&named).contains("cannot be a member's name"), "{}", said(&named));
}

#[test]
fn a_build_is_checked_against_the_manifest_before_it_replaces_the_component() {
    let home = Home::new();
    copying(&home, &answering("good"));
    let build = || home.run(&["build", "members/copied"]);
    let built = build();
    assert!(built.status.success(), "{}", said(&built));
    let component = || fs::read(home.path("members/copied/guest.wasm")).unwrap();
    assert_eq!(component(), answering("good"));
    assert!(said(&build()).contains("unchanged"));

    for (source, why) in [
        (guest::worker("(i32.const 0)"), "does not export `run`"),
        (guest::Guest::importing(&["log"]).run("(i32.const 0)").build(), "add the line `\"log\": {}`"),
        (b"\0asm\x01\0\0\0".to_vec(), "cannot become a component of the world autonomous-worker"),
        (b"no wasm".to_vec(), "the file is not a WebAssembly component"),
    ] {
        home.write("members/copied/source.wasm", source);
        let built = build();
        assert!(!built.status.success() && said(&built).contains(why), "{}", said(&built));
        assert_eq!(component(), answering("good"));
    }
    home.edit_manifest("copied", |manifest| manifest["component"]["wrold"] = json!("worker"));
    assert!(said(&build()).contains("guild-member.json:1: "), "{}", said(&build()));
}

#[test]
fn a_saved_edit_becomes_a_new_report_without_an_approval_or_an_old_job() {
    let mut home = Home::new();
    home.set("XDG_CACHE_HOME", home.path("cache").to_str().unwrap());
    copying(&home, &answering("one."));
    let port = free_port();
    let mut command = home.guild();
    command.current_dir(home.path("members/copied")).stdin(Stdio::piped());
    command.args(["dev", ".", "What?", "--port", &port.to_string()]);
    let mut dev = Host::start(command, port, "/mcp");
    dev.prints("one.");
    assert!(dev.output().contains(&format!("serving copied at http://127.0.0.1:{port}/mcp")), "{}", dev.output());
    // It answers other callers meanwhile.
    assert_eq!(dev.client().status(&dev.client().start("another")).unwrap()["description"], "another");

    home.write("members/copied/source.wasm", answering("two."));
    dev.prints("two.");
    // The round before is gone with its jobs, and the member has none.
    assert_eq!(dev.client().call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len(), 1);
    assert!(!home.path("members/copied/jobs").exists());

    // What fails is said, and the next edit mends it.
    home.write("members/copied/source.wasm", guest::worker("(i32.const 0)"));
    dev.prints("does not export `run`");
    home.write("members/copied/source.wasm", answering("tri."));
    dev.prints("tri.");
    // A line is a task, and an empty one runs it again.
    dev.types("Why?\n\n");
    wait_for("two more reports", || (dev.output().matches("tri.").count() == 3).then_some(()));
    let (status, output) = dev.stop();
    assert!(status.success(), "{output}");
    // What a build writes is no change of the source.
    assert_eq!(output.matches("built ").count(), 3, "{output}");
    // Its components evict none of those of hosts that serve.
    assert_eq!(fs::read_dir(home.path("cache/guild/components-dev")).unwrap().count(), 3);
    assert!(!home.path("cache/guild/components").exists());
}

#[test]
fn a_round_names_the_parts_of_a_session_that_its_runtime_did_not_use() {
    let home = Home::new();
    let member = home.researcher("researcher");
    fs::rename(member.join("researcher.wasm"), member.join("source.wasm")).unwrap();
    let settings = "command = [\"cp\", \"source.wasm\", \"built\"]\noutput = \"built\"\n";
    home.write("members/researcher/guild.build.toml", settings);
    home.write("sources/moon.md", "# The moon\n\nThe moon is far away.\n");
    let port = free_port();
    let mut command = home.guild();
    command.current_dir(&member).stdin(Stdio::piped());
    command.args(["dev", ".", "How far away is the moon?", "--sources"]).arg(home.path("sources"));
    command.args(["--port", &port.to_string()]);
    let dev = Host::start(command, port, "/mcp");
    dev.prints("did not use the sessions' system prompt; --agent names another runtime");
    let (status, output) = dev.stop();
    assert!(status.success(), "{output}");
}
