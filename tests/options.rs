//! How the operator's policy, a job's configuration and members are named on the command line.

use std::{
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use crate::support::{guest, host::Home};

const REFUSED: &str = "guild.toml is in a member's directory";

/// The text of both streams.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Runs `guild` in a directory of the home.
fn within(home: &Home, directory: &str, arguments: &[&str]) -> Output {
    home.guild().current_dir(home.path(directory)).args(arguments).output().unwrap()
}

#[test]
fn a_policy_is_where_its_path_leads_and_not_where_it_passes_through() {
    let home = Home::new();
    home.quick("quick");
    home.write("policy/guild.toml", "");
    let run = |config: &str| within(&home, "members/quick", &["run", ".", "a task", "--config", config]);
    let output = run("../../policy/guild.toml");
    assert!(output.status.success(), "{}", said(&output));
    assert!(home.path("policy/guild.lock").exists());

    // The member could write it, or have the link lead elsewhere.
    home.write("members/quick/guild.toml", "");
    symlink(home.path("policy"), home.path("members/quick/policy")).unwrap();
    for inside in ["guild.toml", "../quick/guild.toml", "../../policy/../members/quick/guild.toml", "policy/guild.toml"]
    {
        let output = run(inside);
        assert!(!output.status.success() && said(&output).contains(REFUSED), "{inside}: {}", said(&output));
    }
    // Out of a symlink, `..` leads to where that is.
    let output = run("policy/../policy/guild.toml");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn config_is_the_policy_and_input_the_job_s_own() {
    let home = Home::new();
    home.quick("quick");
    let policy = home.write("policy/guild.toml", "");
    let policy = policy.to_str().unwrap();
    let run = |options: &[&str]| home.run(&[&["run", "quick", "a task", "--members", "members"], options].concat());
    let input = r#"{"maxTurns": 3}"#;
    let output = run(&["--config", policy, "--input", input]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let job = text.lines().find_map(|line| line.strip_prefix("job: ")).unwrap();
    assert!(std::fs::read_to_string(Path::new(job).join("config.json")).unwrap().contains("maxTurns"));
    assert!(said(&run(&["--config", policy, "--config", "other.toml"])).contains("cannot be used multiple times"));

    let host = home.serve_roster(&["--config", policy]);
    let url = format!("http://127.0.0.1:{}", host.port);
    let output = home.run(&["dispatch", "a task", "--url", &url, "--member", "quick", "--input", input]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_command_that_a_refusal_names_is_whole() {
    let home = Home::new();
    home.quick("team/one");
    let policy = home.write("the policy/guild.toml", "require_approval = true");
    let run = || home.run(&["run", "team/one", "a task", "--members", "members", "--config", policy.to_str().unwrap()]);
    let members = home.run(&["members", "--members", "members", "--config", policy.to_str().unwrap()]);
    for refusal in [said(&run()), said(&members)] {
        let command =
            refusal.split('`').find(|part| part.starts_with("guild approve ")).unwrap_or_else(|| panic!("{refusal}"));
        assert!(command.contains("--members") && command.contains("--config"), "{command}");
        // From another directory, as it is printed.
        let approved = shell(&home, &format!("{command} --yes"));
        assert!(approved.status.success(), "{command}: {}", said(&approved));
        assert!(run().status.success());
        assert!(shell(&home, &format!("{command} --forget")).status.success());
    }
}

/// Runs a line of shell with this `guild`, in a directory that has nothing to do with the home's.
fn shell(home: &Home, line: &str) -> Output {
    let guild = home.guild();
    let mut shell = Command::new("bash");
    let directory = Path::new(guild.get_program()).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(directory.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    for (name, value) in guild.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["-c", line]).env("PATH", path.unwrap()).current_dir("/").output().unwrap()
}

/// What bash offers where a line ends.
fn completed(home: &Home, words: &[&str]) -> Vec<String> {
    let line = format!(
        "source <(guild completions bash) && COMP_WORDS=({}) && COMP_CWORD={} && COMP_TYPE=9 &&
         _clap_complete_guild guild \"${{COMP_WORDS[COMP_CWORD]}}\" && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
    );
    let output = shell(home, &line);
    assert!(output.status.success(), "{}", said(&output));
    said(&output).lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_members_and_jobs() {
    let home = Home::new();
    home.quick("alpha");
    home.quick("team/beta");
    let members = home.path("members");
    let members = members.to_str().unwrap();
    assert_eq!(completed(&home, &["guild", "disp"]), ["dispatch"]);
    assert_eq!(completed(&home, &["guild", "run", "--members", members, "al"]), ["alpha"]);
    assert_eq!(completed(&home, &["guild", "call", "--members", members, "al"]), ["alpha"]);
    assert_eq!(completed(&home, &["guild", "prune", "--status", "fa"]), ["failed"]);
    assert_eq!(completed(&home, &["guild", "status", "--members", members, "--member", ""]), ["alpha", "team/beta"]);
    let run = home.run(&["run", "alpha", "a task", "--members", members]);
    let text = said(&run);
    let job = text.lines().find_map(|line| line.strip_prefix("job: ")).and_then(|job| job.rsplit('/').next()).unwrap();
    let beginning = &job[..8];
    assert_eq!(completed(&home, &["guild", "result", "--members", members, beginning]), [job]);
    assert_eq!(completed(&home, &["guild", "logs", "--members", members, "@"]), ["@latest"]);
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]);
        assert!(script.status.success() && said(&script).contains("GUILD_COMPLETE"), "{shell}");
    }
}

#[test]
fn a_policy_that_is_a_symlink_is_where_that_leads_too() {
    let home = Home::new();
    home.quick("quick");
    home.write("members/quick/guild.toml", "");
    home.write("elsewhere/guild.toml", "");
    let run = |options: &[&str]| home.run(&[&["run", "quick", "a task", "--members", "members"], options].concat());
    let link = |to: &str, name: &str| {
        std::fs::create_dir_all(home.path(name).parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(home.path(name));
        symlink(home.path(to), home.path(name)).unwrap();
    };
    link("members/quick/guild.toml", "policy/guild.toml");
    link("members/quick/guild.toml", "config/guild/guild.toml");
    for options in [&["--config", "policy/guild.toml"][..], &[]] {
        let output = run(options);
        assert!(!output.status.success() && said(&output).contains(REFUSED), "{options:?}: {}", said(&output));
    }
    link("elsewhere/guild.toml", "policy/guild.toml");
    link("elsewhere/guild.toml", "config/guild/guild.toml");
    for options in [&["--config", "policy/guild.toml"][..], &[]] {
        let output = run(options);
        assert!(output.status.success(), "{options:?}: {}", said(&output));
    }
}

#[test]
fn hints_name_the_directory_that_was_given_and_examples_line_up() {
    let home = Home::new();
    home.quick("quick");
    home.write("the members/quick/guild-member.json", "{}");
    for (members, shown) in [("members", "members"), ("the members", "'the members'")] {
        let output = said(&home.run(&["run", "nosuch", "a task", "--members", members]));
        assert!(output.contains(&format!("`guild members --members {shown}` shows the keys")), "{output}");
    }
    let nowhere = said(&within(&home, "members/quick", &["run", "nosuch", "a task"]));
    assert!(nowhere.contains("`guild members --members DIR`"), "{nowhere}");
    for command in ["status", "result", "cancel", "delete", "logs", "list"] {
        let help = said(&home.run(&[command, "--help"]));
        let examples = help.lines().skip_while(|line| *line != "Examples:");
        let examples: Vec<_> = examples.filter(|line| line.contains(&format!("guild {command} "))).collect();
        assert!(examples.len() > 1, "{help}");
        assert!(examples.iter().all(|line| line.starts_with(&format!("  guild {command}"))), "{examples:#?}");
    }
}

#[test]
fn the_error_of_what_is_not_approved_has_the_whole_command() {
    let home = Home::new();
    home.quick("team/one");
    home.member("tools", "toolbox-plugin", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    home.edit_manifest("tools", |manifest| manifest["capabilities"] = serde_json::json!(["tools"]));
    let policy = home.write("the policy/guild.toml", "require_approval = true");
    let config = ["--members", "members", "--config", policy.to_str().unwrap()];
    let run = || home.run(&[&["run", "team/one", "a task"], &config[..]].concat());
    let call = || home.run(&[&["call", "tools", "do"], &config[..]].concat());
    let command = |output: &Output| {
        let text = said(output);
        let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{text}"));
        let command =
            error.split('`').find(|part| part.starts_with("guild approve ")).unwrap_or_else(|| panic!("{text}"));
        assert!(command.contains("--members ") && command.contains("--config "), "{command}");
        command.to_owned()
    };
    // Of this process; and of a host, which does not tell its callers.
    let here = [command(&run()), command(&call())];
    let host = home.serve_roster(&["--config", policy.to_str().unwrap()]);
    assert_eq!([command(&run()), command(&call())], here);
    for command in &here {
        let approved = shell(&home, &format!("{command} --yes"));
        assert!(approved.status.success(), "{command}: {}", said(&approved));
    }
    host.stop();
    assert!(run().status.success() && call().status.success());
    // A toolbox of the member, too.
    home.quick("tooled");
    home.edit_manifest("tooled", |manifest| manifest["component"]["toolboxes"] = serde_json::json!(["tools"]));
    let tooled = || home.run(&[&["run", "tooled", "a task"], &config[..]].concat());
    assert!(shell(&home, &format!("{} --yes", command(&tooled()))).status.success());
    assert!(shell(&home, &format!("{} --forget", here[1])).status.success());
    assert_eq!(command(&tooled()), here[1]);
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_at_once() {
    let home = Home::new();
    home.quick("quick");
    let pipe = home.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    home.write("tls/guild.toml", format!("[tls]\ncertificate = {pipe:?}\nkey = {pipe:?}\n"));
    home.write(
        "api/guild.toml",
        format!("agent = \"api\"\n[api]\nprovider = \"anthropic\"\nmodel = \"m\"\nkey_file = {pipe:?}\n"),
    );
    home.write("component.wasm", "x");
    let pipe = pipe.to_str().unwrap();
    for arguments in [
        &["run", "quick", "a task", "--members", "members", "--config", pipe] as &[&str],
        &["list", "--url", "http://127.0.0.1:9", "--token-file", pipe],
        &["list", "--url", "https://127.0.0.1:9", "--ca", pipe],
        &["sign", "component.wasm", "--key", pipe],
        &["doctor", "--config", "tls/guild.toml"],
        &["doctor", "--config", "api/guild.toml"],
    ] {
        let output = within(&home, ".", arguments);
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains("pipe") && text.contains("regular file"),
            "{arguments:?}: {text}"
        );
    }
}
