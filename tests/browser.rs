//! The pages of a host in a real browser: Chromium, by way of ChromeDriver. `cargo xtask test` leaves these tests out
//! where either is not installed (Debian: `chromium`, `chromium-driver`).

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource, KeyAction, KeyActions},
    error::CmdError,
    key::Key,
    wd::WebDriverCompatibleCommand,
};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::support::host::{Home, Host, PATIENCE, free_port, wait_for};

/// Finds what keeps people from using a page; `browser/README.md` says whose it is.
const AXE: &str = include_str!("browser/axe.min.js");

/// Runs axe, whose findings of these two impacts are errors.
const FINDINGS: &str = "
    const done = arguments[arguments.length - 1];
    axe.run().then(
        found => done(found.violations
            .filter(rule => ['serious', 'critical'].includes(rule.impact))
            .map(rule => rule.id + ': ' + rule.nodes.map(node => node.html + ' ' + node.failureSummary).join('; '))),
        error => done(['axe failed: ' + error]));";

/// A text that would run a script or load a picture, where it is not escaped.
pub(crate) const HOSTILE: &str =
    "</textarea></title><script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1> `${1}` \u{202e}\u{1b}[2J";

/// A command of ChromeDriver that is none of WebDriver's.
#[derive(Debug)]
struct Own {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

/// A browser with a window of its own, which ends with the test.
pub(crate) struct Browser {
    driver: Child,
    client: Client,
    runtime: Runtime,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close());
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    pub(crate) fn start() -> Self {
        let (port, profile, runtime) = (free_port(), tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let driver = Command::new("chromedriver")
            .args([&format!("--port={port}"), "--log-level=OFF"])
            .env("HOME", profile.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("chromedriver: {e}; install it, or leave out test(/^browser::/)"));
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            // Nothing is loaded from elsewhere, whatever a page says.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            format!("--user-data-dir={}", profile.path().display()),
        ]});
        let capabilities = Map::from_iter([
            ("goog:chromeOptions".to_owned(), options),
            ("goog:loggingPrefs".to_owned(), json!({"browser": "ALL"})),
        ]);
        let url = format!("http://127.0.0.1:{port}");
        let client = wait_for("a browser", || {
            let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
            runtime.block_on(builder.capabilities(capabilities.clone()).connect(&url)).ok()
        });
        let browser = Self { driver, client, runtime, _profile: profile };
        browser.size(1280, 900);
        browser
    }

    fn run<T>(&self, command: impl Future<Output = Result<T, CmdError>>) -> T {
        self.runtime.block_on(command).unwrap()
    }

    fn own(&self, path: &'static str, body: Value) -> Value {
        self.run(self.client.issue_cmd(Own { path, body }))
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.run(self.client.set_window_size(width, height));
    }

    /// Shows pages as for somebody who prefers this scheme, `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.own("goog/cdp/execute", body);
    }

    pub(crate) fn open(&self, host: &Host, path: &str) {
        self.run(self.client.goto(&format!("http://127.0.0.1:{}{path}", host.port)));
    }

    pub(crate) fn script(&self, script: &str) -> Value {
        self.run(self.client.execute(script, Vec::new()))
    }

    pub(crate) fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    fn path(&self) -> String {
        self.run(self.client.current_url()).path().to_owned()
    }

    fn fill(&self, selector: &str, text: &str) {
        self.run(async { self.client.find(Locator::Css(selector)).await?.send_keys(text).await });
    }

    fn click(&self, selector: &str) {
        self.run(async { self.client.find(Locator::Css(selector)).await?.click().await });
    }

    fn press(&self, key: Key) {
        let key = char::from(key);
        let press =
            KeyActions::new("keys".to_owned()).then(KeyAction::Down { value: key }).then(KeyAction::Up { value: key });
        self.run(self.client.perform_actions(press));
    }

    /// What axe finds serious or critical on the page.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.script(AXE);
        let found = self.run(self.client.execute_async(FINDINGS, Vec::new()));
        serde_json::from_value(found).unwrap()
    }

    /// Errors in the console since they were last asked for: scripts that failed, and what the policy refused.
    pub(crate) fn errors(&self) -> Vec<String> {
        let log = self.own("se/log", json!({"type": "browser"}));
        let lines = log.as_array().cloned().unwrap_or_default().into_iter();
        lines.filter(|line| line["level"] == "SEVERE").map(|line| line["message"].to_string()).collect()
    }

    /// Asserts that everybody can use the page that is open, and that nothing of it failed or ran that should not.
    pub(crate) fn check(&self, what: &str) {
        assert_eq!(self.findings(), Vec::<String>::new(), "{what}");
        assert_eq!(self.errors(), Vec::<String>::new(), "{what}");
        assert_eq!(self.script("return window.pwned"), Value::Null, "{what}");
        // Nothing is wider than the window, except within a region that scrolls.
        let wide = self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "{what}");
    }
}

/// A host with a worker whose jobs end, one whose jobs go on, and hostile texts.
fn busy() -> (Home, Host, Vec<(&'static str, String)>) {
    let home = Home::new();
    home.endless("endless");
    home.quick("quick");
    home.failing("failing");
    let host = home.serve_roster(&[]);
    let mut pages = vec![("now", "/".to_owned())];
    for (member, name) in [("endless", "running"), ("quick", "completed"), ("failing", "failed")] {
        let client = host.at(member);
        let id = client.dispatch(json!({"description": HOSTILE, "task": HOSTILE})).unwrap();
        if member != "endless" {
            client.ended(&id);
        }
        pages.push((name, format!("/page/jobs/{id}/{member}")));
    }
    pages.extend([("member", "/page/members/quick".to_owned()), ("sign-in", "/page/sign-in".to_owned())]);
    (home, host, pages)
}

#[test]
fn everybody_can_use_each_page_whatever_texts_it_shows() {
    let (_home, host, pages) = busy();
    let browser = Browser::start();
    for (scheme, width) in [("light", 1280), ("dark", 390)] {
        browser.prefer(scheme);
        browser.size(width, 900);
        for (name, path) in &pages {
            browser.open(&host, path);
            browser.check(&format!("{name}, {scheme}, {width} px"));
        }
    }
}

#[test]
fn the_first_page_goes_on_by_itself() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let browser = Browser::start();
    browser.open(&host, "/");
    browser.script("window.same = true");
    let client = host.at("quick");
    client.ended(&client.start("Shown without a reload"));
    wait_for("the job on the page", || browser.text().contains("Shown without a reload").then_some(()));
    assert_eq!(browser.script("return window.same"), true);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn a_job_is_dispatched_with_the_keyboard_alone() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let browser = Browser::start();
    browser.open(&host, "/page/members/quick");
    // The first thing that the keyboard reaches leads past the navigation.
    browser.press(Key::Tab);
    assert_eq!(browser.script("return document.activeElement.className"), "skip");
    browser.click("main summary");
    browser.fill("#description", "By keyboard");
    browser.fill("#task", "What?");
    let sent = Instant::now();
    for _ in 0..10 {
        browser.press(Key::Tab);
        if browser.script("return document.activeElement.tagName") == "BUTTON" {
            break;
        }
    }
    browser.press(Key::Enter);
    wait_for("the job's page", || browser.path().starts_with("/page/jobs/").then_some(()));
    assert!(sent.elapsed() < PATIENCE + Duration::from_secs(1));
    wait_for("the report", || browser.text().contains("date").then_some(()));
}

/// Takes the pictures of the documentation: `cargo xtask screenshots` names the directory.
#[test]
#[ignore = "cargo xtask screenshots"]
fn pictures_of_each_page() {
    let folder = std::env::var("SCREENSHOTS").expect("SCREENSHOTS names a directory");
    let (_home, host, pages) = busy();
    let browser = Browser::start();
    for (name, path) in &pages {
        browser.open(&host, path);
        fs::write(format!("{folder}/{name}.png"), browser.run(browser.client.screenshot())).unwrap();
    }
}
