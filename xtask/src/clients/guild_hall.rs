//! Runs the unchanged command line and web UI of the original Guild Hall against the socket of a host, and its parsers
//! on the host's files. A browser drives the web UI.
//!
//! The checkout is not part of this repository; its path is an argument. Its sources are built for Node, since they are
//! written for another runtime.

use std::{ffi::OsStr, fs, io, path::Path, process::Command};

use serde_json::json;

use super::{
    Running,
    fixture::{ENDLESS, FOUND, Fixture, QUESTION, WORKER},
    install::{Bundler, copy_all, sources},
    web,
};
use crate::{
    guests,
    steps::{begin_repository, build, root, run},
};

/// The project of the commissions.
const PROJECT: &str = "vellmar";
/// The project's files besides documents: an image, a page with a script, and a standing order.
const FILES: [(&str, &str); 3] = [
    ("lantern.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"17\" height=\"17\"><circle r=\"9\"/></svg>\n"),
    (
        "mockup.html",
        "<!doctype html><p></p><script>document.querySelector('p').textContent = 'from a script';</script>\n",
    ),
    ("heartbeat.md", "# Heartbeat\n\n## Standing Orders\n\n- Count the lanterns.\n"),
];
/// The member that manages the hall.
const MANAGER: &str = "guild-master";

/// The topics of the meetings that the worker requests; the test accepts, declines and answers them.
const REQUESTS: [&str; 3] = ["the winter", "the market", "the brass"];

/// Builds the guests, the host and the checkout, and lets the original Guild Hall work with a host.
pub(crate) fn original(checkout: &Path) -> Result<(), String> {
    let cli = checkout.join("apps/cli/index.ts");
    if !cli.is_file() {
        return Err(format!("{} is not a checkout of Guild Hall: it has no apps/cli/index.ts", checkout.display()));
    }
    guests::build()?;
    let [guild] = build(["guild"], &[])?;
    let bundler = Bundler::ready()?;
    let bundles = root().join("target/clients/guild-hall-bundle");
    for (module, name) in [(cli, "cli.mjs"), (checkout.join("lib/commissions.ts"), "parsers.mjs")] {
        bundler.bundle(&module, &bundles.join(name))?;
    }
    let (site, browser) = (web::site(&bundler, checkout)?, web::browser()?);
    let mut fixture = Fixture::furnished("guild-hall")?;
    fixture.appoint(MANAGER)?;
    let home = fixture.directory().join("hall");
    let project = fixture.directory().join("project");
    let lore = project.join(".lore");
    let copied = fs::create_dir_all(&lore).and_then(|()| copy_all(&fixture.documents(), &lore));
    let made = copied.and_then(|()| FILES.iter().try_for_each(|(name, text)| fs::write(lore.join(name), text)));
    made.map_err(|e| format!("{}: {e}", lore.display()))?;
    request_meetings(&lore.join("work/meetings")).map_err(|e| format!("{}: {e}", lore.display()))?;
    begin_repository(&project)?;
    let mut add = fixture.command(&guild);
    run(add.args(["project", "add", "--name", PROJECT, "--home"]).arg(&home).arg(&project))?;
    fixture.serve(&guild, &[OsStr::new("--hall"), home.as_os_str()])?;
    let plan = json!({
        "node": bundler.node, "cli": bundles.join("cli.mjs"), "parsers": bundles.join("parsers.mjs"), "home": home,
        "project": PROJECT, "worker": WORKER, "endless": ENDLESS, "question": QUESTION, "found": FOUND,
        "packages": bundler.packages, "site": site, "browser": browser, "directory": fixture.directory(),
    });
    let file = fixture.directory().join("plan.json");
    fs::write(&file, plan.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
    let go = |name, script: &str| {
        let mut flows = Command::new(&bundler.node);
        flows.arg(sources().join("guild-hall").join(script)).arg(&file);
        Running::start(name, flows).and_then(Running::end)
    };
    // The web UI comes first: it tests the dashboard of an unused hall.
    let ended = go("Guild Hall web UI", "web.mjs").and_then(|()| go("Guild Hall", "flows.mjs"));
    if ended.is_err() {
        eprintln!("The host's log is {}", fixture.log().display());
    }
    ended.and(fixture.close())
}

/// Writes the records of [`REQUESTS`] in the format of the original.
fn request_meetings(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (n, about) in REQUESTS.iter().enumerate() {
        let record = format!(
            "---\ntitle: \"Follow-up with Researcher\"\ndate: 2026-04-01\nstatus: requested\ntags: [meeting]\n\
             worker: Researcher\nworkerDisplayTitle: \"Researcher\"\nagenda: \"Talk about {about}\"\n\
             deferred_until: \"\"\nlinked_artifacts: []\nmeeting_log:\n  - timestamp: 2026-04-01T12:00:00.000Z\n    \
             event: requested\n    reason: \"Meeting requested\"\n---\n"
        );
        fs::write(directory.join(format!("followup-Researcher-20260401-12000{n}.md")), record)?;
    }
    Ok(())
}
