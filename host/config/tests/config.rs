//! Tests of `guild.toml`: the search for the file, its settings, and its errors.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "clippy allows these in tests, but not in what tests share"
)]

use std::{collections::HashMap, ffi::OsString, fs, path::Path, time::Duration};

use guild_config::{
    ApiOptions, ClaudeOptions, Config, ConfigError, KeySource, PermittedProject, Price, Prices, Provider, ReadRoot,
    Runtime, SearchOptions, TlsFiles, WebOptions,
};
use guild_contract::{
    Limits,
    capability::{Capability, MEMORY_WRITE, grants::Rule},
};

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
    assert_eq!(config.auth.bind.to_string(), "::1");
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
fn every_setting_of_the_runtimes_is_read() {
    let config = parse(
        r#"
        agent = "api"
        dispatch_agents = ["extractive", "claude"]

        [member.researcher]
        agent = "claude"
        [member."group/digest"]

        [extractive]
        sessions = 7

        [claude]
        sessions = 2
        command = "tools/claude"
        model = "sonnet"
        builtin_tools = true
        permissions = "dontAsk"
        resume = true
        silence_seconds = 30
        environment = ["HTTPS_PROXY", "ANTHROPIC_BASE_URL"]

        [api]
        sessions = 8
        provider = "openai"
        base_url = "http://127.0.0.1:8000/v1"
        model = "llama-4"
        key_file = "keys/llama"
        max_output_tokens = 4096
        request_seconds = 60
        retries = 0
        unknown_cost_tokens = 1000000

        [[prices]]
        model = "llama-*"
        input = 1
        cached_input = 0.1
        cache_write = 1.25
        output = 4.5
        [[prices]]
        model = "llama-*"
        input = 2.0
        output = 9.0
        above_input_tokens = 200000
        "#,
    )
    .unwrap();
    assert_eq!(config.agent, Runtime::Api);
    assert_eq!(config.dispatch_agents, [Runtime::Extractive, Runtime::Claude].into());
    let rule = |members: &str| Rule { members: members.parse().unwrap(), ..Rule::default() };
    assert_eq!(config.policy.rules, [rule("group/digest"), rule("researcher")]);
    assert_eq!(config.agents, [("researcher".parse().unwrap(), Runtime::Claude)].into());
    assert_eq!((config.extractive.sessions, config.claude.sessions, config.api.sessions), (7, 2, 8));
    let claude = ClaudeOptions {
        command: "/etc/guild/tools/claude".into(),
        model: Some("sonnet".into()),
        builtin_tools: true,
        bypass_permissions: false,
        resume: true,
        silence: Duration::from_secs(30),
        environment: vec!["HTTPS_PROXY".into(), "ANTHROPIC_BASE_URL".into()],
        prices: config.api.options.prices.clone(),
        state: None,
    };
    assert_eq!(config.claude.options, claude);
    let price = Price {
        model: "llama-*".into(),
        input: 1.0,
        cached_input: Some(0.1),
        cache_write: Some(1.25),
        output: 4.5,
        above_input_tokens: 0,
    };
    let long = Price {
        input: 2.0,
        cached_input: None,
        cache_write: None,
        output: 9.0,
        above_input_tokens: 200_000,
        ..price.clone()
    };
    let api = ApiOptions {
        base_url: Some("http://127.0.0.1:8000/v1".into()),
        model: Some("llama-4".into()),
        key: Some(KeySource::File("/etc/guild/keys/llama".into())),
        prices: Prices::new(vec![price, long]).unwrap(),
        unknown_cost_tokens: Some(1_000_000),
        max_output_tokens: 4096,
        request: Duration::from_secs(60),
        retries: 0,
        ..ApiOptions::new(Provider::OpenAi)
    };
    assert_eq!(config.api.options, api);
    assert!(parse("[claude]\npermissions = \"bypassPermissions\"").unwrap().claude.options.bypass_permissions);
    assert_eq!(parse("[claude]\ncommand = \"claude-2\"").unwrap().claude.options.command, Path::new("claude-2"));
    let key = parse("[api]\nkey_env = \"MY_KEY\"").unwrap().api.options.key;
    assert_eq!(key, Some(KeySource::Env("MY_KEY".into())));
}

#[test]
fn every_setting_of_the_web_is_read() {
    let options = |text: &str| parse(text).unwrap().web.unwrap();
    assert_eq!(parse("").unwrap().web, None);
    assert_eq!(options("[web]"), WebOptions::default());
    let web = options(
        r#"
        [web]
        allow = ["*.example.org", "127.0.0.1:8888"]
        deny = ["ads.example.org"]
        private = ["127.0.0.1:8888"]
        robots = false
        page_bytes = 1000
        page_seconds = 5
        [web.search]
        provider = "searxng"
        url = "http://127.0.0.1:8888"
        "#,
    );
    let expected = WebOptions {
        allow: vec!["*.example.org".into(), "127.0.0.1:8888".into()],
        deny: vec!["ads.example.org".into()],
        private: vec!["127.0.0.1:8888".into()],
        robots: false,
        page_bytes: 1000,
        page_seconds: 5,
        search: Some(SearchOptions::SearXng { url: "http://127.0.0.1:8888".into() }),
    };
    assert_eq!(web, expected);
    // A missing key file is no error of the configuration.
    let web = options("[web.search]\nprovider = \"brave\"\nkey_env = \"NOBODY_HAS_SET_THIS\"");
    let key = KeySource::Env("NOBODY_HAS_SET_THIS".into());
    assert_eq!(web.search, Some(SearchOptions::Brave { url: None, key }));
}

#[test]
fn an_empty_file_is_the_default_and_binds_loopback() {
    let config = parse("").unwrap();
    assert_eq!(
        Config { file: None, sha256: None, directory: None, written: Default::default(), ..config.clone() },
        Config::default()
    );
    assert!(config.auth.bind.is_loopback());
    assert_eq!(parse("bind = \"localhost\"").unwrap().auth.bind, config.auth.bind);
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
    let known = error("zzz = 1");
    assert!(
        known.starts_with("/etc/guild/guild.toml:1: unknown key `zzz`; known are members, roots, agent, "),
        "{known}"
    );
    for (text, place, meant) in [
        ("[member.a]\nagnt = \"api\"", "[member.KEY]", "agent"),
        ("[member.\"*\"]\nalow = []", "[member.KEY]", "allow"),
        ("[member.a.limits]\nmemory_byte = 1", "[member.KEY.limits]", "memory_bytes"),
        ("[extractive]\nsession = 1", "[extractive]", "sessions"),
        ("[claude]\nbuiltin_tool = true", "[claude]", "builtin_tools"),
        ("[hall]\nhoem = \"x\"", "[hall]", "home"),
        ("[[project]]\npull_request = true", "[[project]]", "pull_requests"),
        ("[api]\nbaseurl = \"x\"", "[api]", "base_url"),
        ("[[prices]]\nmodle = \"x\"", "[[prices]]", "model"),
        ("[web]\nallows = []", "[web]", "allow"),
        ("[web.search]\nprovder = \"x\"", "[web.search]", "provider"),
    ] {
        let error = error(text);
        assert!(error.starts_with("/etc/guild/guild.toml:2: unknown key `"), "{error}");
        assert!(error.ends_with(&format!("` in {place}; did you mean `{meant}`?")), "{error}");
    }
}

#[test]
fn the_hall_and_its_projects_are_read_and_a_project_permits_nothing_more_by_itself() {
    let config = parse(
        "[hall]\nhome = \"hall\"\n[[project]]\npath = \"/srv/book\"\npush = true\npull_requests = true\n\
         [[project]]\npath = \"notes\"\n",
    )
    .unwrap();
    assert_eq!(config.hall.as_deref(), Some(Path::new("/etc/guild/hall")));
    let rule = |path: &str, more| PermittedProject { path: path.into(), push: more, pull_requests: more };
    assert_eq!(config.projects, [rule("/srv/book", true), rule("/etc/guild/notes", false)]);
    assert_eq!(config.hall_home(Some(Path::new("/elsewhere"))).as_deref(), Some(Path::new("/elsewhere")));
}

#[test]
fn what_members_may_do_is_read_as_rules() {
    let config = parse(
        r#"
        strict_imports = true
        [web]
        allow = ["*"]
        [limits]
        note_bytes = 2000
        [member."*"]
        deny = ["web:*.evil.example", "memory:write"]
        [member."*".limits]
        note_bytes = 1000
        [member."team/ann"]
        allow = ["files:docs", "*"]
        "#,
    )
    .unwrap();
    let policy = &config.policy;
    assert!(policy.web && policy.strict_imports);
    let [all, ann] = policy.rules.as_slice() else { panic!("{policy:?}") };
    assert_eq!((all.members.0.as_str(), ann.members.0.as_str()), ("*", "team/ann"));
    assert_eq!(all.deny, [Capability::Host("*.evil.example".into()), Capability::Kind(&MEMORY_WRITE)]);
    assert_eq!((&all.allow, &ann.allow), (&None, &Some(vec![Capability::Root("docs".into()), Capability::All])));
    let narrowed = Limits { note_bytes: 1000, ..config.limits.clone() };
    assert_eq!((all.limits.as_deref(), ann.limits.as_deref()), (Some(&narrowed), None));
    assert_eq!(config.limits_set, ["note_bytes".to_owned()].into());
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
        ("[[project]]\npush = true", 1),
        ("[[project]]\npath = \"p\"\npush = 1", 3),
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
fn an_address_that_others_can_reach_needs_tls_or_a_proxy_that_speaks_it() {
    for public in ["0.0.0.0", "::", "192.168.1.1"] {
        let bind = format!("bind = \"{public}\"\n");
        let error = error(&bind);
        assert!(error.contains("[tls]") && error.contains("behind_proxy") && error.contains("127.0.0.1"), "{error}");
        let tls = "[tls]\ncertificate = \"c.pem\"\nkey = \"/k.pem\"";
        for encrypted in ["behind_proxy = true", tls] {
            assert_eq!(parse(&format!("{bind}{encrypted}")).unwrap().auth.bind.to_string(), public);
        }
        let files = TlsFiles { certificate: "/etc/guild/c.pem".into(), key: "/k.pem".into() };
        assert_eq!(parse(tls).unwrap().auth.tls, Some(files));
    }
    assert!(error("bind = \"127.0.0.1:80\"").contains("without a port"));
    assert!(error("bind = \"example.org\"").contains("is not an address"));
    assert!(
        error("\nhosts = [\"a\", \"b/\"]").starts_with("/etc/guild/guild.toml:2: hosts: \"b/\" is not a host name")
    );
}

#[test]
fn each_wrong_value_is_named_with_file_line_and_what_would_be_right() {
    let runtimes = "the runtimes are extractive, claude, api";
    let price = "[[prices]]\nmodel = \"m\"\noutput = 1.0\n";
    for (text, line, told) in [
        ("agent = \"oracle\"", 1, ["agent: \"oracle\"", runtimes]),
        ("dispatch_agents = [\n\"api\",\n\"oracle\"]", 3, ["dispatch_agents: \"oracle\"", runtimes]),
        ("\n[member.a]\nagent = \"oracle\"", 3, ["member.a.agent: \"oracle\"", runtimes]),
        ("port = 1\n[member.\"..\"]", 2, ["member: ", "\"..\""]),
        ("[member.a.b]\nagent = \"api\"", 1, ["[member.\"a/b\"]", "a/b"]),
        ("[member]\na = 1", 2, ["[member.a]", "table"]),
        ("[member.\"a?\"]", 1, ["member: \"a?\"", "`*` stands for any characters"]),
        ("[member.a]\nallow = [\n\"log\",\n\"fles\"]", 4, ["member.a.allow: \"fles\"", "did you mean \"files\"?"]),
        ("[member.a]\n\ndeny = [\"web:a*b\"]", 3, ["member.a.deny: \"a*b\"", "pattern of hosts"]),
        ("[member.a]\nallow = \"log\"", 2, ["`member.a.allow` is the text \"log\"", "must be a list"]),
        ("[member.a]\nmcp = \"plain\"", 2, ["member.a.mcp: \"plain\"", "write \"any\""]),
        ("[member.a]\nposture = \"pinned\"", 2, ["member.a.posture: \"pinned\"", "write \"free\""]),
        ("[member.a]\nlimits = 3", 2, ["`limits` is a table", "[member.\"a\".limits]"]),
        ("\nweb = 3", 2, ["`web` is a table", "[web]"]),
        ("[web]\nsearch = true", 2, ["`search` is a table", "[web.search]"]),
        ("project = \"/p\"", 1, ["`project` is a list of tables", "[[project]]"]),
        ("hall = \"/h\"", 1, ["`hall` is a table", "[hall]"]),
        ("[hall]\nmanager = \"guild/*\"", 2, ["hall.manager: \"guild/*\" is not a member's key", "`guild members`"]),
        (
            "[[project]]\npath = \"p\"\n[[project]]\npath = \"p\"",
            4,
            ["project.path: /etc/guild/p is the path of another [[project]]", "remove one"],
        ),
        ("roots = [\n\"docs\"]", 2, ["`roots` is a list of tables", "[[roots]]"]),
        ("[tls]\ncert = \"c\"", 2, ["unknown key `cert` in [tls]", "did you mean `certificate`?"]),
        ("[member.a]\nallow = [\"web:d\u{43e}cs.rs\"]", 2, ["member.a.allow: ", "Punycode"]),
        ("[member.a.limits]\nconnections = 1", 2, ["`connections`", "whole host"]),
        ("[member.a.limits]\n\nnote_bytes = 0", 3, ["member.a.limits: ", "above 0"]),
        (
            "[limits]\nnote_bytes = 9\n[member.a.limits]\nnote_bytes = 10",
            4,
            ["note_bytes = 10", "limits.note_bytes = 9"],
        ),
        (
            "[member.a.limits]\nnote_bytes = 10\n[limits]\nnote_bytes = 9",
            2,
            ["note_bytes = 10", "limits.note_bytes = 9"],
        ),
        ("[extractive]\nsessions = 0", 2, ["extractive.sessions", "above 0"]),
        ("[claude]\nsessions = 0", 2, ["claude.sessions", "above 0"]),
        ("[claude]\nsilence_seconds = 0", 2, ["claude.silence_seconds", "above 0"]),
        ("[claude]\nmodel = \" \"", 2, ["claude.model", "empty"]),
        ("[claude]\ncommand = \"\"", 2, ["claude.command", "empty"]),
        ("[claude]\npermissions = \"ask\"", 2, ["\"ask\"", "\"dontAsk\" and \"bypassPermissions\""]),
        ("[claude]\nenvironment = [\"A=1\"]", 2, ["claude.environment", "without its value"]),
        ("\n[claude]\nbuiltin_tools = true\npermissions = \"bypassPermissions\"", 2, ["builtin_tools", "exclude"]),
        ("[api]\nsessions = 0", 2, ["api.sessions", "above 0"]),
        ("[api]\nprovider = \"acme\"", 2, ["\"acme\"", "anthropic, openai, gemini, ollama"]),
        ("[api]\nmodel = \"m\"\nbase_url = \"ftp://h\"", 3, ["api.base_url", "http:// or https://"]),
        ("[api]\nmax_output_tokens = 0", 2, ["api.max_output_tokens", "above 0"]),
        ("[api]\nrequest_seconds = 0", 2, ["api.request_seconds", "above 0"]),
        ("[api]\nunknown_cost_tokens = 0", 2, ["api.unknown_cost_tokens", "above 0"]),
        ("[api]\nkey_env = \"A\"\nkey_file = \"b\"", 3, ["api.key_env and api.key_file", "remove one"]),
        (&format!("{price}input = nan"), 4, ["prices.input", "US dollars"]),
        (&format!("{price}input = -1.0"), 4, ["prices.input", "-1"]),
        (&format!("{price}input = 1\ncache_write = inf"), 5, ["prices.cache_write", "million tokens"]),
        (&format!("{price}input = 1\n{price}input = 2"), 6, ["\"m\"", "remove one of them"]),
        ("[[prices]]\nmodel = \"\"\ninput = 1\noutput = 1", 2, ["prices.model", "empty"]),
        ("[web]\nallow = [\"http://a/\"]", 1, ["[web] allow", "pattern"]),
        ("[web]\nprivate = [\"*\"]", 1, ["[web] private", "each host"]),
        ("[web]\npage_bytes = 0", 2, ["web.page_bytes", "above 0"]),
        ("[web]\npage_seconds = 100000", 1, ["[web] page_seconds", "600"]),
        ("[web.search]\nprovider = \"acme\"", 2, ["\"acme\"", "searxng, brave"]),
        ("[web.search]\nprovider = \"searxng\"", 1, ["searxng", "`url`"]),
        ("[web.search]\nprovider = \"brave\"", 1, ["brave", "`key_env`"]),
        ("[web.search]\nprovider = \"searxng\"\nurl = \"me\"", 1, ["[web.search] url", "address"]),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("/etc/guild/guild.toml:{line}: ")), "{text:?}: {error}");
        assert!(told.iter().all(|told| error.contains(told)), "{text:?}: {error}");
    }
}

#[test]
fn a_key_that_stands_in_the_file_is_refused_and_not_shown() {
    const KEY: &str = "sk-ant-0123456789";
    for text in [
        format!("[api]\nkey = \"{KEY}\""),
        format!("[api]\napi_key = \"{KEY}\""),
        format!("[api]\nkey_env = \"{KEY}\""),
        format!("[web.search]\nkey = \"{KEY}\"\nprovider = \"brave\""),
        format!("[web.search]\nprovider = \"brave\"\nkey_env = \"{KEY}\""),
    ] {
        let error = error(&text);
        assert!(!error.contains(KEY) && error.contains("key_env"), "{text:?}: {error}");
    }
    let error = error(&format!("[api]\nbase_url = \"https://me:{KEY}@h/v1\""));
    assert!(!error.contains(KEY) && error.contains("key_env"), "{error}");
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
    // An empty variable counts as unset, and a relative directory would begin at the working directory.
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
    let absent = load(None, &[("HOME", empty.path())]).unwrap();
    let directory = Some(empty.path().join(".config/guild"));
    assert_eq!(absent, Config { directory, ..Config::default() });
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

const CLUSTER: &str = r#"
    [cluster]
    name = "acme"
    servers = ["tls://n1.example.org:4222", "nats://127.0.0.1:4222"]
    monitor = ["http://n1.example.org:8222"]
    credentials = "host-a.creds"
    key_file = "acme.key"
    host = "host-a"
    url = "https://host-a.example.org:7433"
"#;

#[test]
fn a_cluster_has_its_servers_and_its_key() {
    let cluster = parse(CLUSTER).unwrap().cluster.unwrap();
    assert_eq!((&*cluster.name, &*cluster.host), ("acme", "host-a"));
    assert_eq!(
        cluster.servers.iter().map(|url| url.as_str()).collect::<Vec<_>>(),
        ["tls://n1.example.org:4222", "nats://127.0.0.1:4222"]
    );
    assert_eq!(cluster.credentials.unwrap(), Path::new("/etc/guild/host-a.creds"));
    assert_eq!(cluster.key, KeySource::File("/etc/guild/acme.key".into()));
    assert_eq!((cluster.silent.as_secs(), cluster.stop.as_secs()), (30, 20));
    let longer = parse(&format!("{CLUSTER}silent_seconds = 90\nstop_seconds = 60\n")).unwrap().cluster.unwrap();
    assert_eq!((longer.silent.as_secs(), longer.stop.as_secs()), (90, 60));
    // A host has the name of its machine.
    let named = parse(&CLUSTER.replace("host = \"host-a\"", "")).unwrap().cluster.unwrap().host;
    assert!(!named.is_empty() && named.bytes().all(|c| c != b'.' && !c.is_ascii_uppercase()), "{named}");
}

#[test]
fn a_mistake_in_a_cluster_names_its_key() {
    for (right, wrong, why) in [
        ("tls://n1.example.org:4222", "nats://n1.example.org:4222", "must begin with tls://"),
        ("tls://n1.example.org:4222", "n1:4222", "must begin with tls://"),
        ("http://n1.example.org:8222", "n1", "cluster.monitor: \"n1\" is not a URL"),
        ("\"http://n1.example.org:8222\"", "", "cluster.monitor: name at least one"),
        ("name = \"acme\"", "name = \"Acme corp\"", "cluster.name: \"Acme corp\" has to be"),
        ("name = \"acme\"", "", "`name`"),
        ("key_file = \"acme.key\"", "", "[cluster] needs the cluster's key"),
        ("key_file = \"acme.key\"", "key = \"00\"", "must not contain a key"),
        ("host = \"host-a\"", "host = \"a.b\"", "cluster.host: \"a.b\" has to be"),
        ("https://host-a.example.org:7433", "host-a:7433", "cluster.url"),
        ("https://host-a.example.org:7433", "http://host-a.example.org:7433", "must begin with https://"),
        ("host = \"host-a\"", "silent_seconds = 24", "cluster.silent_seconds: 24 has to be at least 25"),
        ("host = \"host-a\"", "stop_seconds = 14", "cluster.stop_seconds: 14 has to be at least 15"),
        ("host = \"host-a\"", "queued_jobs = 0", "cluster.queued_jobs"),
        ("host = \"host-a\"", "stop_seconds = 26", "cluster.stop_seconds: 26 has to be at least 5 less than"),
    ] {
        let text = CLUSTER.replace(right, wrong);
        assert_ne!(text, CLUSTER, "{right}");
        let error = error(&text);
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
