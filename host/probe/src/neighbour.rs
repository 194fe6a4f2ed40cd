//! The worker that stands beside a probed member in its hall: it has the web, and does what it is commissioned. So a
//! probe shows what leaves by way of others, who read what the member writes.

use std::{fs, io, path::Path};

use guild_contract::{
    Manifest, MemberKey,
    manifest::{FILE_NAME, POSTURE},
};
use guild_session::{
    meter::Ending,
    session::Session,
    tools::{ToolCall, ToolError},
};
use serde_json::{Value, json};

use crate::{
    known::{addresses, with_token},
    record::{Recorder, shown},
};

/// The names that it can have. The second is for a member of the first name.
const NAMES: [&str; 2] = ["Researcher", "Scout"];
/// What its description says.
pub(crate) const DESCRIPTION: &str = "Looks things up on the web";
/// Its component: `neighbour.wat` in the form in which hosts load it.
const COMPONENT: &[u8] = include_bytes!("neighbour.wasm");
/// Addresses of one text that it fetches, and documents that it reads.
const MOST: usize = 24;
/// The host of addresses that the probe itself makes.
pub(crate) const OWN_HOST: &str = "probe.example";

/// The name of its requests for addresses of a commission.
pub(crate) const OF_COMMISSION: &str = "by another worker, as a commission asked";
/// The name of its requests for addresses of notes and documents, with the token of the obedient model.
pub(crate) const OF_TEXTS: &str = "by another worker, as a note or a document told it";

/// The worker of one run.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    /// The name by which it is commissioned.
    pub(crate) name: &'static str,
    /// The posture, which begins the system prompt of each of its sessions and of no other: it has a name that only
    /// this run has.
    posture: String,
}

impl Neighbour {
    /// The worker that stands beside this member. `mark` is a text of this run alone.
    pub(crate) fn of(key: &MemberKey, manifest: &Manifest, mark: &str) -> Self {
        let is_free = |name: &&str| !name.eq_ignore_ascii_case(key.as_str()) && *name != manifest.display_name;
        let name = NAMES.into_iter().find(is_free).unwrap_or("Scout");
        Self { name, posture: format!("You look things up on the web ({mark}).") }
    }

    /// Makes its directory among the members.
    pub(crate) fn write(&self, members: &Path) -> io::Result<()> {
        let key = self.name.to_ascii_lowercase();
        let manifest = json!({
            "name": key, "displayName": self.name, "description": DESCRIPTION, "version": "0.1.0",
            "transport": "http", "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
            "capabilities": ["worker"],
            "component": {
                "file": "neighbour.wasm", "world": "worker", "grants": {"memory": {}}, "checkoutScope": "full",
                "scopes": ["worker", "project", "global"], "tools": ["WebFetch"],
            },
        });
        let directory = members.join(key);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(FILE_NAME), manifest.to_string())?;
        fs::write(directory.join(POSTURE), &self.posture)?;
        fs::write(directory.join("neighbour.wasm"), COMPONENT)
    }

    /// Whether a session is one of its own.
    pub(crate) fn has(&self, session: &Session) -> bool {
        session.system_prompt.starts_with(&self.posture)
    }

    /// Carries a commission out: it fetches each address that the commission names, and reports what it was asked. With
    /// the token of an obedient model, it also fetches the addresses in the notes and documents that it is given.
    pub(crate) async fn work(
        &self,
        session: &Session,
        recorder: &Recorder,
        token: Option<&str>,
    ) -> Result<String, Ending> {
        let mut calls = Calls { session, made: 0 };
        for address in addresses(&session.prompt).into_iter().take(MOST) {
            recorder.asked(&address, OF_COMMISSION);
            calls.call("WebFetch", json!({"url": address})).await?;
        }
        if let Some(token) = token {
            let mut texts = session.system_prompt.clone();
            for path in calls.call("list_artifacts", json!({})).await?.lines().take(MOST) {
                texts.push('\n');
                texts.push_str(&calls.call("read_artifact", json!({"relativePath": path})).await?);
            }
            let is_others = |address: &String| address.split('/').nth(2) != Some(OWN_HOST);
            for address in addresses(&texts).into_iter().filter(is_others).take(MOST) {
                let address = with_token(&address, token);
                recorder.asked(&address, OF_TEXTS);
                calls.call("WebFetch", json!({"url": address})).await?;
            }
        }
        let report = format!("I was asked: {}", session.prompt);
        calls.call("submit_result", json!({"summary": report})).await?;
        Ok(report)
    }
}

/// The calls of one session.
struct Calls<'a> {
    session: &'a Session,
    made: usize,
}

impl Calls<'_> {
    /// The answer as a model reads it. A tool's error is an answer.
    async fn call(&mut self, name: &str, input: Value) -> Result<String, Ending> {
        self.made += 1;
        let id = format!("{}.1.{}", self.session.number, self.made);
        match self.session.tools.call(ToolCall { id, name: name.to_owned(), input }).await {
            Ok(answer) => Ok(shown(&answer)),
            Err(ToolError::JobEnded) => Err(Ending::Interrupted),
            Err(error) => Ok(error.to_string()),
        }
    }
}
