//! The pages of a host in a real browser: Chromium, by way of ChromeDriver. `cargo xtask test` leaves these tests out
//! where either is not installed (Debian: `chromium`, `chromium-driver`).

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use reqwest::{Client as HttpClient, Method};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    commissions::Hall,
    support::host::{Client, Home, Host, PATIENCE, free_port, wait_for},
};

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

/// The keys that tests press, as WebDriver names them.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// A browser with a window of its own, which ends with the test. WebDriver is JSON over HTTP, so it needs no library:
/// those that there are bring a second HTTP, Unicode and cookie stack.
pub(crate) struct Browser {
    driver: Child,
    client: HttpClient,
    runtime: Runtime,
    /// The URL of the session.
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.delete(&self.session).send());
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
            "--hide-scrollbars", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            // Nothing is loaded from elsewhere, whatever a page says.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            format!("--user-data-dir={}", profile.path().display()),
        ]});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let (url, client) = (format!("http://127.0.0.1:{port}/session"), HttpClient::new());
        let id = wait_for("a browser", || {
            let begin = client.post(&url).json(&json!({"capabilities": {"alwaysMatch": wanted}})).send();
            let answer = runtime.block_on(async { begin.await.ok()?.json::<Value>().await.ok() })?;
            Some(answer["value"]["sessionId"].as_str()?.to_owned())
        });
        let browser = Self { driver, client, runtime, session: format!("{url}/{id}"), _profile: profile };
        browser.size(1280, 900);
        browser
    }

    /// Carries a command out, and returns its value.
    fn command(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.client.request(method, format!("{}/{path}", self.session));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer: Value = self.runtime.block_on(async { request.send().await?.json().await }).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.command(Method::POST, path, Some(body))
    }

    /// The path of a command for the first element of this selector.
    fn element(&self, selector: &str, command: &str) -> String {
        let found = self.post("element", json!({"using": "css selector", "value": selector}));
        let id = found.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        format!("element/{id}/{command}")
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.post("window/rect", json!({"width": width, "height": height}));
    }

    /// Shows pages as for somebody who prefers this scheme, `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let params = json!({"features": features});
        self.post("goog/cdp/execute", json!({"cmd": "Emulation.setEmulatedMedia", "params": params}));
    }

    pub(crate) fn open(&self, host: &Host, path: &str) {
        self.post("url", json!({"url": format!("http://127.0.0.1:{}{path}", host.port)}));
    }

    pub(crate) fn script(&self, script: &str) -> Value {
        self.post("execute/sync", json!({"script": script, "args": []}))
    }

    pub(crate) fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    fn path(&self) -> String {
        self.script("return location.pathname").as_str().unwrap_or_default().to_owned()
    }

    fn fill(&self, selector: &str, text: &str) {
        self.post(&self.element(selector, "value"), json!({"text": text}));
    }

    fn click(&self, selector: &str) {
        self.post(&self.element(selector, "click"), json!({}));
    }

    fn press(&self, key: &str) {
        let actions = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.post("actions", json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}));
    }

    pub(crate) fn picture(&self) -> Vec<u8> {
        let picture = self.command(Method::GET, "screenshot", None);
        data_encoding::BASE64.decode(picture.as_str().unwrap().as_bytes()).unwrap()
    }

    /// What axe finds serious or critical on the page.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.script("document.querySelectorAll('details').forEach(details => details.open = true)");
        self.script(AXE);
        let found = self.post("execute/async", json!({"script": FINDINGS, "args": []}));
        serde_json::from_value(found).unwrap()
    }

    /// Errors in the console since they were last asked for: scripts that failed, and what the policy refused.
    pub(crate) fn errors(&self) -> Vec<String> {
        let log = self.post("se/log", json!({"type": "browser"}));
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

#[test]
fn the_audit_of_a_member_comes_after_its_page() {
    let home = Home::new();
    home.researcher("researcher");
    let host = home.serve_roster(&[]);
    let browser = Browser::start();
    browser.open(&host, "/page/members/researcher");
    wait_for("the audit", || browser.text().contains("Facts").then_some(()));
    assert_eq!(browser.script("return document.querySelectorAll('#audited path.edge').length > 0"), true);
    browser.check("the audit");
}

/// A host with a hall, a worker whose jobs end, one whose jobs go on, and this text in all that callers write; with its
/// pages by name.
fn busy(said: &str) -> (Hall, Host, Vec<(&'static str, String)>) {
    let hall = Hall::new(&["demo"]);
    hall.home.endless("endless");
    hall.home.quick("quick");
    hall.home.failing("failing");
    hall.home.researcher("researcher");
    hall.home.write("members/quick/memory/luna.md", said);
    hall.home.write("members/quick/posture.md", said);
    let host = hall.serve();
    let mut pages = vec![("now", "/".to_owned())];
    for (member, name) in [("endless", "running"), ("quick", "completed"), ("failing", "failed")] {
        let client = host.at(member);
        let id = client.dispatch(json!({"description": said, "task": said})).unwrap();
        if member != "endless" {
            client.ended(&id);
        }
        pages.push((name, format!("/page/jobs/{id}/{member}")));
    }
    let title: String = said.chars().filter(|char| !char.is_control()).collect();
    let new = |dependencies: &[&str]| json!({"projectName": "demo", "title": title, "workerName": "researcher", "prompt": said, "dependencies": dependencies});
    let commissions = Client::new(host.port, "/hall/mcp");
    let first = commissions.call("commission/create", new(&[])).unwrap()["commissionId"].as_str().unwrap().to_owned();
    commissions.call("commission/create", new(&[&first])).unwrap();
    for (name, path) in [
        ("member", "/page/members/quick".to_owned()),
        // It reads more, and can send more.
        ("researcher", "/page/members/researcher?audit".to_owned()),
        ("sign-in", "/page/sign-in".to_owned()),
        ("usage", "/page/usage".to_owned()),
        ("host", "/page/host?check=now".to_owned()),
        ("hall", "/page/hall".to_owned()),
        ("project", "/page/hall/projects/demo".to_owned()),
        ("commission", format!("/page/hall/projects/demo/commissions/{first}")),
    ] {
        pages.push((name, path));
    }
    (hall, host, pages)
}

#[test]
fn everybody_can_use_each_page_whatever_texts_it_shows() {
    let (_hall, host, pages) = busy(HOSTILE);
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
    browser.press(TAB);
    assert_eq!(browser.script("return document.activeElement.className"), "skip");
    browser.click("main summary");
    browser.fill("#description", "By keyboard");
    browser.fill("#task", "What?");
    let sent = Instant::now();
    for _ in 0..10 {
        browser.press(TAB);
        if browser.script("return document.activeElement.tagName") == "BUTTON" {
            break;
        }
    }
    browser.press(ENTER);
    wait_for("the job's page", || browser.path().starts_with("/page/jobs/").then_some(()));
    assert!(sent.elapsed() < PATIENCE + Duration::from_secs(1));
    wait_for("the report", || browser.text().contains("date").then_some(()));
}
