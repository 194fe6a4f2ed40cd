//! Takes the pictures of docs/screenshots/: `cargo xtask screenshots` runs this, and names the directory.

use std::fs;

use guild_fakes::{Gate, OpenAi, Received, Reply};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    browser::Browser,
    commissions::Hall,
    support::host::{Client, Host, wait_for},
};

/// The model of the sessions, and one of earlier jobs.
const MODELS: [&str; 2] = ["large-1", "small-1"];

const REPORT: &str = "# Retries of the billing service\n\nA failed charge is tried again **four times** within a day \
[docs/billing.md:7].\n\n| Try | After |\n|---|---|\n| 1 | 5 minutes |\n| 2 | 1 hour |\n| 3 | 6 hours |\n| 4 | 24 \
hours |\n\nA charge that the bank declined for good is not tried again [docs/billing.md:9].\n";

const BILLING: &str = "# Billing\n\nThe service charges cards at night.\n\n## Retries\n\nA failed charge is tried \
again after 5 minutes, 1 hour, 6 hours and 24 hours.\n\nA charge that the bank declined for good is not tried again.\n";

/// The answer of the model, by the task and the turn.
fn answer(request: &Received, held: &Gate) -> Reply {
    let asked = request.body["messages"].to_string();
    let decision = json!({"question": "Which branch of the documents counts?", "decision": "main",
        "reasoning": "The others are drafts."});
    match (request.turn(), asked.contains("# Retries"), asked.contains("Survey")) {
        (_, _, _) if asked.contains("Introduce yourself") || asked.contains("agenda") => Reply::text(
            "I have read the agenda. The open points are the **currency** of refunds and who approves them.",
        ),
        (0, ..) => Reply::call("update_summary", json!({"summary": "Looking for what the documents say of retries."}))
            .and_call("Grep", json!({"pattern": "retr|charge", "output_mode": "content"})),
        (1, ..) => Reply::call("Read", json!({"file_path": "docs/billing.md"})).and_call("record_decision", decision),
        (2, _, true) => Reply::call("update_summary", json!({"summary": "Read 3 of 12 documents."})),
        (3, _, true) => Reply::text("Done.").behind(held),
        (2, ..) if request.tool_names().contains("report_progress") => {
            Reply::call("write_artifact", json!({"relativePath": "reports/retries.md", "content": REPORT}))
                .and_call("report_progress", json!({"summary": "The page is written."}))
        }
        (2, ..) => Reply::call("log_question", json!({"question": "Does the night job run on holidays?"}))
            .and_call("Grep", json!({"pattern": "declined"})),
        (3, ..) if request.tool_names().contains("report_progress") => {
            Reply::call("submit_result", json!({"summary": REPORT, "artifacts": ["reports/retries.md"]}))
        }
        (3, ..) => Reply::call("submit_result", json!({"output": REPORT})),
        _ => Reply::text("Done."),
    }
}

/// Jobs of thirty days, as hosts have left them.
fn earlier_jobs(hall: &Hall) {
    for (n, member) in (0..90_u32)
        .zip(["analyst", "digest", "analyst", "digest", "analyst", "digest", "researcher"].into_iter().cycle())
    {
        let hours = i64::from(n) * 8 + 5;
        let at = Timestamp::now() - SignedDuration::from_hours(hours);
        let begun = at - SignedDuration::from_secs(i64::from(20 + n * 7 % 90));
        let tokens = 9_000 + (n * 7919) % 40_000;
        let model = MODELS[usize::from(n % 4 == 1)];
        let usage = json!({"agent": "api", "models": [model], "turns": 4 + n % 7, "inputTokens": tokens,
            "cachedTokens": tokens / 2, "outputTokens": tokens / 12, "costUsd": f64::from(tokens) / 250_000.0,
            "wallSeconds": 20 + n * 7 % 90});
        let (status, error) = match n % 11 {
            10 => ("failed", Some("the session did not submit a result")),
            _ => ("completed", None),
        };
        let topics = ["refunds", "invoices in other currencies", "the night job", "dunning letters", "tax rates"];
        let description = format!("What is written about {}?", topics[n as usize % topics.len()]);
        let mut meta = json!({"status": status, "description": description, "startedAt": begun.to_string(),
            "completedAt": at.to_string(), "usage": usage});
        if let Some(error) = error {
            meta["error"] = json!(error);
        }
        hall.home.write(&format!("members/{member}/jobs/earlier-{n}/task.md"), &description);
        hall.home.write(&format!("members/{member}/jobs/earlier-{n}/result.md"), REPORT);
        hall.home.job(member, &format!("earlier-{n}"), meta);
    }
}

fn dispatched(host: &Host, description: &str, task: &str) -> String {
    let client = host.at("researcher");
    client.dispatch(json!({"description": description, "task": task})).unwrap()
}

/// A project with commissions in several states, and a meeting; with the paths of their pages.
fn project(host: &Host) -> Vec<(&'static str, String)> {
    let hall = Client::new(host.port, "/hall/mcp");
    let new = |title: &str, dependencies: &[&str]| -> String {
        let params = json!({"projectName": "billing", "title": title, "workerName": "researcher", "prompt":
            format!("{title}. # Retries"), "dependencies": dependencies});
        hall.call("commission/create", params).unwrap()["commissionId"].as_str().unwrap().to_owned()
    };
    let first = new("List what is retried", &[]);
    let second = new("Write the page on retries", &[&first]);
    new("Review the page on retries", &[&second]);
    new("Compare with the old service", &[]);
    hall.call("commission/dispatch", json!({"projectName": "billing", "commissionId": first})).unwrap();
    wait_for("the commission", || {
        let params = json!({"projectName": "billing", "commissionId": first});
        let read: Value = hall.call("commission/read", params).unwrap();
        (read["commission"]["status"] == "completed").then_some(())
    });
    let params = json!({"projectName": "billing", "workerName": "researcher", "prompt": "Refunds: the agenda"});
    let meeting = hall.call("meeting/create", params).unwrap();
    let meeting = meeting["meetingId"].as_str().unwrap();
    let at = "/page/hall/projects/billing";
    vec![
        ("hall", "/page/hall".to_owned()),
        ("project", at.to_owned()),
        ("commission", format!("{at}/commissions/{first}")),
        ("meeting", format!("{at}/meetings/{meeting}")),
    ]
}

#[test]
#[ignore = "cargo xtask screenshots"]
fn pictures_of_each_page() {
    let folder = std::env::var("SCREENSHOTS").expect("SCREENSHOTS names a directory");
    let (runtime, held) = (Runtime::new().unwrap(), Gate::closed());
    let of_model = held.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| answer(request, &of_model)));
    let hall = Hall::new(&["billing"]);
    for member in ["researcher", "analyst", "digest"] {
        hall.home.shipped(member);
    }
    hall.home.write("members/researcher/memory/sources.md", "The documents of billing are in `docs/`.");
    hall.home.write("docs/billing.md", BILLING);
    let (url, docs) = (provider.url(), hall.home.path("docs"));
    let prices: String =
        MODELS.map(|model| format!("[[prices]]\nmodel = \"{model}\"\ninput = 2.0\noutput = 8.0\n")).concat();
    hall.configure(&format!(
        "{prices}[[roots]]\nname = \"docs\"\npath = {docs:?}\n[api]\nprovider = \"openai\"\nmodel = \"large-1\"\n\
         base_url = \"{url}/v1/\"\n[web]\nallow = [\"*.example.org\"]"
    ));
    let config = hall.home.path("config/guild/guild.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("agent = \"api\"\n{text}")).unwrap();
    earlier_jobs(&hall);
    let host = hall.serve();
    let done = dispatched(&host, "How are failed charges retried?", "How are failed charges retried? # Retries");
    host.at("researcher").ended(&done);
    let running = dispatched(&host, "Survey of the billing documents", "Survey all documents on billing.");
    wait_for("the survey", || {
        let status = host.at("researcher").status(&running).unwrap();
        (status["summary"] == "Read 3 of 12 documents.").then_some(())
    });
    let mut pages = project(&host);
    pages.extend([
        ("now", "/".to_owned()),
        ("job", format!("/page/jobs/{done}/researcher")),
        ("running", format!("/page/jobs/{running}/researcher")),
        ("member", "/page/members/researcher?audit".to_owned()),
        ("usage", "/page/usage?range=30d".to_owned()),
        ("host", "/page/host".to_owned()),
        ("sign-in", "/page/sign-in".to_owned()),
    ]);
    let browser = Browser::start();
    for (name, path) in &pages {
        browser.size(1100, 900);
        browser.open(&host, path);
        assert_eq!(browser.errors(), Vec::<String>::new(), "{name}");
        // The window is as high as the page, and not endless.
        let height = browser.script("return document.documentElement.scrollHeight").as_u64().unwrap();
        browser.size(1100, u32::try_from(height.clamp(500, 1500)).unwrap() + 140);
        fs::write(format!("{folder}/{name}.png"), browser.picture()).unwrap();
    }
    held.open();
}
