//! What monitors ask a host: whether it can take work, and its figures.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    auth::add,
    support::{
        host::{Home, Host, free_port, wait_for},
        mcp::Endpoint,
    },
};

/// The samples of a scrape by name and labels.
fn scrape(host: &Host) -> BTreeMap<String, f64> {
    let answer = Endpoint::new(host, "/metrics").send("GET", "");
    let content_type = answer.header("content-type").unwrap_or_default().to_owned();
    assert_eq!((answer.status, &*content_type), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

#[test]
fn a_scrape_has_what_happened_and_what_is() {
    let home = Home::new();
    home.endless("endless");
    home.quick("quick");
    home.failing("failing");
    let host = home.serve_roster(&[]);
    host.at("endless").start("goes on");
    for (member, status) in [("quick", "completed"), ("failing", "failed")] {
        let client = host.at(member);
        let id = client.start("ends");
        assert_eq!(client.ended(&id)["status"], status);
    }
    assert!(host.at("quick").dispatch(json!({"description": "", "task": ""})).is_err());
    // The host sees a moment later than the client that a connection was closed.
    let samples = wait_for("the earlier connections to be closed", || {
        Some(scrape(&host)).filter(|samples| samples.get("guild_connections") == Some(&1.0))
    });
    for (name, value) in [
        (r#"guild_jobs{member="endless",status="running"}"#, 1.0),
        (r#"guild_jobs{member="quick",status="completed"}"#, 1.0),
        (r#"guild_jobs{member="quick",status="running"}"#, 0.0),
        (r#"guild_jobs_ended_total{member="quick",status="completed"}"#, 1.0),
        (r#"guild_jobs_ended_total{member="failing",status="failed"}"#, 1.0),
        (r#"guild_dispatch_duration_seconds_count{member="quick",outcome="accepted"}"#, 1.0),
        (r#"guild_dispatch_duration_seconds_count{member="quick",outcome="refused"}"#, 1.0),
        (r#"guild_component_call_duration_seconds_count{member="quick",call="activate",outcome="answered"}"#, 1.0),
        (r#"guild_members{state="ready"}"#, 3.0),
        (r#"guild_members{state="error"}"#, 0.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
    }
    for name in [
        r#"guild_http_requests_total{route="mcp",code="200"}"#,
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        assert!(samples.get(name).is_some_and(|value| *value > 0.0), "{name} in {samples:#?}");
    }
}

#[test]
fn figures_are_for_callers_of_all_members_and_the_readiness_is_for_everybody() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "require_token = true\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.quick("quick");
    let (some, all) = (add(&home, &["some", "--members", "quick"]), add(&home, &["all", "--role", "view"]));
    let host = home.serve_roster(&[]);
    let ask = |path: &str, token: Option<&str>| {
        let endpoint = Endpoint::new(&host, path);
        let endpoint =
            token.map_or(endpoint.clone(), |token| endpoint.with("Authorization", &format!("Bearer {token}")));
        endpoint.send("GET", "")
    };
    let status = |path: &str, token: Option<&str>| ask(path, token).status;
    wait_for("the members to be loaded", || (status("/readyz", None) == 200).then_some(()));
    assert_eq!(ask("/readyz", None).text(), "ready\n");
    assert_eq!([None, Some(&*some), Some(&*all)].map(|token| status("/metrics", token)), [401, 403, 200]);
    let figures = ask("/metrics", Some(&all)).text();
    for reason in ["no-token", "all-members"] {
        assert!(figures.contains(&format!(r#"guild_denials_total{{reason="{reason}"}} 1"#)), "{figures}");
    }
}

#[test]
fn a_reached_limit_is_counted_by_its_name() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "[limits]\nrunning_jobs = 1\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let client = host.at("endless");
    client.start("goes on");
    assert!(client.dispatch(json!({"description": "d", "task": "t"})).is_err());
    assert_eq!(scrape(&host).get(r#"guild_limits_reached_total{limit="running_jobs"}"#), Some(&1.0));
}

#[test]
fn each_figure_is_in_the_docs() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let page = include_str!("../docs/monitoring.md");
    let text = Endpoint::new(&host, "/metrics").send("GET", "").text();
    for name in text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()) {
        if name.starts_with("guild_") {
            assert!(page.contains(&format!("`{name}")), "docs/monitoring.md has no {name}");
        }
    }
}

/// A real Prometheus, which ends with the test.
struct Prometheus {
    child: Child,
    port: u16,
    _home: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes this port, with the rules of `deploy/`.
    fn start(scraped: u16) -> Self {
        let (port, home) = (free_port(), tempfile::tempdir().unwrap());
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/monitoring/alerts.yml");
        let config = json!({
            "global": {"scrape_interval": "100ms"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "guild", "static_configs": [{"targets": [format!("127.0.0.1:{scraped}")]}]}],
        });
        let file = home.path().join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", home.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("prometheus: {e}; install it, or leave out test(/real_prometheus/)"));
        Self { child, port, _home: home }
    }

    fn query(&self, query: &str) -> Option<Value> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let endpoint = Endpoint { port: self.port, path: format!("/api/v1/query?query={query}"), headers: Vec::new() };
        // It does not listen at once.
        TcpListener::bind(("127.0.0.1", self.port)).is_err().then_some(())?;
        let answer: Value = serde_json::from_str(&endpoint.send("GET", "").text()).ok()?;
        answer["data"]["result"].get(0)?["value"].get(1).cloned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_scrapes_the_figures() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let client = host.at("quick");
    let id = client.start("ends");
    client.ended(&id);
    let prometheus = Prometheus::start(host.port);
    let asked = |query: &str| wait_for(query, || prometheus.query(query));
    assert_eq!(asked(r#"guild_jobs_ended_total{status="completed"}"#), "1");
    assert_eq!(asked("up"), "1");
    let p99 = "histogram_quantile(0.99, sum by (le) (guild_dispatch_duration_seconds_bucket))";
    let p99: f64 = asked(p99).as_str().unwrap().parse().unwrap();
    assert!(p99 > 0.0 && p99 < Duration::from_secs(60).as_secs_f64(), "{p99}");
}
