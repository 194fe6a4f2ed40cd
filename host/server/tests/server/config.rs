//! `guild.toml`: where it is found, what it sets, and what its errors tell.

use std::{collections::HashMap, ffi::OsString, fs, path::Path};

use guild_contract::Limits;
use guild_server::config::{Config, ConfigError, ReadRoot, Runtime};

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("/etc/guild/guild.toml"), text).map_err(|error| error.to_string())
}

fn error(text: &str) -> String {
    parse(text).unwrap_err()
}

#[test]
fn every_setting_is_read() {
    let config = parse(
        r#"
        members = "members"
        agent = "extractive"
        bind = "::1"
        port = 8080

        [[roots]]
        name = "book"
        path = "/srv/book"
        [[roots]]
        path = "../notes"

        [limits]
        batch = 7
        session_budget_usd = 0.25
        "#,
    )
    .unwrap();
    assert_eq!(config.file.unwrap(), Path::new("/etc/guild/guild.toml"));
    assert_eq!(config.members.unwrap(), Path::new("/etc/guild/members"));
    assert_eq!(config.agent, Runtime::Extractive);
    assert_eq!(config.bind.to_string(), "::1");
    assert_eq!(config.port, Some(8080));
    assert_eq!(
        config.roots,
        [
            ReadRoot { name: Some("book".into()), path: "/srv/book".into() },
            ReadRoot { name: None, path: "/etc/guild/../notes".into() },
        ]
    );
    assert_eq!(config.limits, Limits { batch: 7, session_budget_usd: 0.25, ..Limits::default() });
}

#[test]
fn an_empty_file_is_the_default_and_binds_loopback() {
    let config = parse("").unwrap();
    assert_eq!(Config { file: None, ..config.clone() }, Config::default());
    assert!(config.bind.is_loopback());
    assert_eq!(parse("bind = \"localhost\"").unwrap().bind, config.bind);
}

#[test]
fn an_unknown_key_is_named_with_file_line_and_the_nearest_known_key() {
    assert_eq!(error("\nprot = 1\n"), "/etc/guild/guild.toml:2: unknown key `prot`; did you mean `port`?");
    assert_eq!(
        error("port = 1\n[limits]\nbatch = 2\nbody_byte = 1\n"),
        "/etc/guild/guild.toml:4: unknown key `body_byte` in [limits]; did you mean `body_bytes`?"
    );
    assert_eq!(
        error("[[roots]]\npath = \"/a\"\n[[roots]]\nnmae = \"b\"\npath = \"/b\"\n"),
        "/etc/guild/guild.toml:4: unknown key `nmae` in [[roots]]; did you mean `name`?"
    );
    assert_eq!(
        error("zzz = 1"),
        "/etc/guild/guild.toml:1: unknown key `zzz`; known are members, roots, agent, bind, port, limits"
    );
}

#[test]
fn the_first_unknown_key_of_the_file_is_the_one_that_is_named() {
    assert!(error("zeta = 1\nalpha = 2\n").contains(":1: unknown key `zeta`"));
}

#[test]
fn a_wrong_type_is_named_with_file_and_line() {
    for (text, line) in [
        ("members = 1", 1),
        ("\nport = \"80\"", 2),
        ("port = 70000", 1),
        ("\n\nroots = \"/a\"", 3),
        ("[[roots]]\nname = \"a\"", 1),
        ("limits = 3", 1),
        ("[limits]\nbatch = -1", 2),
        ("[limits]\n\nbatch = 1.5", 3),
        ("agent = []", 1),
        ("port = ", 1),
        ("port = 1\nport = 2", 2),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("/etc/guild/guild.toml:{line}: ")), "{text:?}: {error}");
        assert!(!error.ends_with(": "), "{text:?}: {error}");
    }
}

#[test]
fn what_this_version_cannot_do_is_refused_with_a_text_that_says_so() {
    let claude = error("agent = \"claude\"");
    assert!(
        claude.contains(":1: agent: \"claude\" is no agent runtime of this version") && claude.contains("extractive")
    );
    for public in ["0.0.0.0", "::", "192.168.1.1"] {
        let error = error(&format!("bind = \"{public}\""));
        assert!(error.contains("needs a token") && error.contains("127.0.0.1"), "{error}");
    }
    assert!(error("bind = \"127.0.0.1:80\"").contains("without a port"));
    assert!(error("bind = \"example.org\"").contains("is no address"));
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused() {
    assert!(error("[limits]\nbatch = 0").contains("limits.batch must be above 0"));
    assert!(error("[limits]\njson_depth = 1000").contains("limits.json_depth must be at most 127"));
    assert!(error("[limits]\nsession_budget_usd = nan").contains("limits.session_budget_usd"));
}

/// Finds the configuration in an environment of these variables.
fn load(option: Option<&Path>, variables: &[(&str, &Path)]) -> Result<Config, ConfigError> {
    let variables: HashMap<_, OsString> = variables.iter().map(|(name, path)| (*name, path.into())).collect();
    Config::load_from(option, |name| variables.get(name).cloned())
}

#[test]
fn the_option_comes_before_the_variable_and_the_variable_before_the_users_directory() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, port: u16| {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("port = {port}")).unwrap();
        path
    };
    let option = file("option.toml", 1);
    let variable = file("variable.toml", 2);
    file("xdg/guild/guild.toml", 3);
    file("home/.config/guild/guild.toml", 4);
    let (xdg, home) = (home.path().join("xdg"), home.path().join("home"));

    let all: [(&str, &Path); 3] = [("GUILD_CONFIG", &variable), ("XDG_CONFIG_HOME", &xdg), ("HOME", &home)];
    assert_eq!(load(Some(&option), &all).unwrap().port, Some(1));
    assert_eq!(load(None, &all).unwrap().port, Some(2));
    assert_eq!(load(None, &all[1..]).unwrap().port, Some(3));
    assert_eq!(load(None, &all[2..]).unwrap().port, Some(4));
    assert_eq!(load(None, &[]).unwrap(), Config::default());
    // An empty variable is no variable, and a relative directory would be the working directory's.
    let empty: [(&str, &Path); 3] =
        [("GUILD_CONFIG", Path::new("")), ("XDG_CONFIG_HOME", Path::new(".")), ("HOME", &home)];
    assert_eq!(load(None, &empty).unwrap().port, Some(4));
}

#[test]
fn a_file_that_is_named_has_to_exist_and_the_default_one_may_be_absent() {
    let empty = tempfile::tempdir().unwrap();
    let missing = empty.path().join("missing.toml");
    let named = load(Some(&missing), &[]).unwrap_err().to_string();
    assert_eq!(named, format!("{} does not exist; --config names it", missing.display()));
    let named = load(None, &[("GUILD_CONFIG", &missing)]).unwrap_err().to_string();
    assert!(named.ends_with("does not exist; GUILD_CONFIG names it"));
    assert_eq!(load(None, &[("HOME", empty.path())]).unwrap(), Config::default());
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_even_at_the_default_place() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".config/guild/guild.toml")).unwrap();
    assert!(matches!(load(None, &[("HOME", home.path())]), Err(ConfigError::Unreadable { .. })));
    let huge = home.path().join("huge.toml");
    fs::write(&huge, "#".repeat(2 << 20)).unwrap();
    assert!(load(Some(&huge), &[]).unwrap_err().to_string().contains("larger than"));
}

#[test]
fn a_root_has_one_plain_name_of_its_own() {
    for name in ["", ".", "..", "a/b", "/", "a\\nb"] {
        let text = format!("port = 1\n[[roots]]\nname = \"{name}\"\npath = \"docs\"\n");
        let error = Config::parse(Path::new("/etc/guild.toml"), &text).unwrap_err().to_string();
        assert!(error.starts_with("/etc/guild.toml:3: roots.name"), "{error}");
    }
    let twice = "[[roots]]\nname = \"a\"\npath = \"b\"\n[[roots]]\nname = \"a\"\npath = \"c\"\n";
    let error = Config::parse(Path::new("/etc/guild.toml"), twice).unwrap_err().to_string();
    assert!(error.starts_with("/etc/guild.toml:5: roots.name") && error.contains("another root"), "{error}");
}
