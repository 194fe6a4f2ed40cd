//! Reads `.guildaudit.toml`: findings that a company accepts, each with a reason and a last day.
//!
//! The file is next to `guild.toml` or named on the command line. It is never read from a member's directory or the
//! working directory, since a member must not decide which of its findings are accepted.

use std::path::{Path, PathBuf};

use guild_audit::{Audit, Finding, Rule, Severity};
use guild_config::{Config, text::line_of};
use guild_contract::capability::grants::wildcard;
use guild_fs::regular_file;
use jiff::civil::Date;
use serde::Deserialize;
use toml::value::Datetime;

/// The file's name, next to `guild.toml`.
const FILE: &str = ".guildaudit.toml";
/// The most bytes of it.
const MAX_BYTES: u64 = 1024 * 1024;

/// The contents of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    #[serde(default)]
    accept: Vec<Entry>,
}

/// An accepted finding.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The member's key, or the name of a file; `*` matches any characters.
    member: String,
    rule: Rule,
    /// The finding's place, as the audit spells it; all places of the rule by default.
    place: Option<String>,
    /// The highest accepted severity: a finding that becomes more severe counts again. By default the rule's own
    /// severity.
    severity: Option<Severity>,
    /// The reason.
    reason: String,
    /// The last day of the acceptance.
    until: Datetime,
}

/// Marks the findings of an audit that are accepted on the day `today`. The file is `named`, or next to `guild.toml`.
/// Returns a notice for each acceptance that has expired. It blocks.
///
/// # Errors
///
/// Returns an error, for a person, when the file cannot be read.
pub fn mark(audit: &mut Audit, named: Option<&Path>, config: &Config, today: Date) -> Result<Vec<String>, String> {
    let found = config.directory.as_ref().map(|directory| directory.join(FILE)).filter(|file| file.exists());
    let Some(file) = named.map(PathBuf::from).or(found) else { return Ok(Vec::new()) };
    let bytes = regular_file::read(&file, MAX_BYTES).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let file = file.display().to_string();
    let text = str::from_utf8(&bytes).map_err(|_| format!("{file} is not UTF-8"))?;
    let accepted: Accepted = toml::from_str(text).map_err(|e| {
        let line = line_of(text, e.span().unwrap_or_default().start);
        format!("{file}:{line}: {}", e.message())
    })?;
    let mut expired = Vec::new();
    let subject = audit.identity.member.as_ref().unwrap_or(&audit.identity.file).clone();
    for entry in accepted.accept.iter().filter(|entry| wildcard(&entry.member, &subject)) {
        let Entry { rule, place, severity, reason, until, .. } = entry;
        let most = severity.unwrap_or(rule.severity());
        if reason.trim().is_empty() {
            return Err(format!("{file}: {} of {} is accepted without a reason", rule.id(), entry.member));
        }
        let date = until.date.and_then(|date| {
            Date::new(date.year.try_into().ok()?, date.month.try_into().ok()?, date.day.try_into().ok()?).ok()
        });
        let Some(date) = date else { return Err(format!("{file}: {until} is not a date")) };
        if date < today {
            expired.push(format!("{file}: {} of {} was accepted until {until} only", rule.id(), entry.member));
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
    Ok(expired)
}
