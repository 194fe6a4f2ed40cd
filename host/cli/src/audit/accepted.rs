//! Reads `.guildaudit.toml`: findings that a company accepts, each with a reason and an end.
//!
//! It is found next to `guild.toml` or named, and never looked for in a member's or in the working directory: a member must
//! not bring along what is accepted of it.

use std::path::{Path, PathBuf};

use guild_audit::{Audit, Finding, Rule, Severity};
use guild_config::{Config, text::line_of};
use guild_contract::grants::wildcard;
use jiff::civil::Date;
use serde::Deserialize;
use toml::value::Datetime;

use super::{fail, read_file};
use crate::{failure::Failure, output::tell};

/// Its name, next to `guild.toml`.
const FILE: &str = ".guildaudit.toml";

/// What it says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    #[serde(default)]
    accept: Vec<Entry>,
}

/// A finding that is accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The member's key, or of a file its name; `*` stands for any characters.
    member: String,
    rule: Rule,
    /// The finding's place, as it stands there; all places of the rule, where it is left out.
    place: Option<String>,
    /// The most severe that is accepted: what becomes worse is a finding again. The rule's own severity, where it is left out.
    severity: Option<Severity>,
    /// Why.
    reason: String,
    /// The last day on which it counts.
    until: Datetime,
}

/// Marks the findings of an audit that are accepted on a day.
pub(super) fn mark(audit: &mut Audit, named: Option<&Path>, config: &Config, today: Date) -> Result<(), Failure> {
    let found = config.directory.as_ref().map(|directory| directory.join(FILE)).filter(|file| file.exists());
    let Some(file) = named.map(PathBuf::from).or(found) else { return Ok(()) };
    let file = file.display().to_string();
    let bytes = read_file(&file)?;
    let text = str::from_utf8(&bytes).map_err(|_| fail(format!("{file} is not UTF-8")))?;
    let accepted: Accepted = toml::from_str(text).map_err(|e| {
        let line = line_of(text, e.span().unwrap_or_default().start);
        fail(format!("{file}:{line}: {}", e.message()))
    })?;
    let subject = audit.identity.member.as_ref().unwrap_or(&audit.identity.file).clone();
    for entry in accepted.accept.iter().filter(|entry| wildcard(&entry.member, &subject)) {
        let Entry { rule, place, severity, reason, until, .. } = entry;
        let most = severity.unwrap_or(rule.severity());
        if reason.trim().is_empty() {
            return Err(fail(format!("{file}: {} of {} is accepted without a reason", rule.id(), entry.member)));
        }
        let date = until.date.and_then(|date| {
            Date::new(date.year.try_into().ok()?, date.month.try_into().ok()?, date.day.try_into().ok()?).ok()
        });
        let Some(date) = date else { return Err(fail(format!("{file}: {until} is no day"))) };
        if date < today {
            tell(format_args!("{file}: {} of {} was accepted until {until} only", rule.id(), entry.member));
            continue;
        }
        let findings = audit.findings.iter_mut();
        let is_meant = |finding: &&mut Finding| {
            finding.rule == *rule
                && finding.severity >= most
                && place.as_ref().is_none_or(|place| *place == finding.place)
        };
        for finding in findings.filter(is_meant) {
            finding.accepted = Some(format!("{reason} (until {until})"));
        }
    }
    Ok(())
}
