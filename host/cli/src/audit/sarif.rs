//! Renders an audit as SARIF 2.1.0, for tools that collect findings.

use guild_audit::{Audit, Difference, Finding, Rule, Severity};
use serde_json::{Value, json};

/// The whole audit.
pub(super) fn audit(audit: &Audit) -> Value {
    log(audit, audit.findings.iter().map(|finding| result(audit, finding, None)).collect())
}

/// The difference of two audits: new findings, and those that disappeared.
pub(super) fn difference(audit: &Audit, difference: &Difference) -> Value {
    let new = difference.new_findings.iter().map(|finding| result(audit, finding, Some("new")));
    let gone = difference.gone_findings.iter().map(|finding| result(audit, finding, Some("absent")));
    log(audit, new.chain(gone).collect())
}

fn log(audit: &Audit, results: Vec<Value>) -> Value {
    let rules: Vec<_> = Rule::ALL
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id(), "name": rule.name(), "shortDescription": {"text": rule.what()},
                "defaultConfiguration": {"level": level(rule.severity())},
                "properties": {"severity": rule.severity()},
            })
        })
        .collect();
    let identity = &audit.identity;
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "guild audit", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "artifacts": [{
                "location": {"uri": uri(&identity.file)}, "length": identity.bytes, "hashes": {"sha-256": identity.sha256},
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(audit: &Audit, finding: &Finding, baseline: Option<&str>) -> Value {
    let mut result = json!({
        "ruleId": finding.rule.id(),
        "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": level(finding.severity),
        "message": {"text": finding.text},
        "locations": [{
            "physicalLocation": {"artifactLocation": {"uri": uri(&audit.identity.file), "index": 0}},
            "logicalLocations": [{"fullyQualifiedName": finding.place}],
        }],
        "partialFingerprints": {"ruleAndPlace/v1": format!("{}:{}", finding.rule.id(), finding.place)},
        "properties": {"severity": finding.severity},
    });
    if let (Some(accepted), Some(result)) = (&finding.accepted, result.as_object_mut()) {
        let suppression = json!([{"kind": "external", "status": "accepted", "justification": accepted}]);
        result.insert("suppressions".to_owned(), suppression);
    }
    if let (Some(baseline), Some(result)) = (baseline, result.as_object_mut()) {
        result.insert("baselineState".to_owned(), baseline.into());
    }
    result
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    }
}

/// A file's path as a URI reference, with other characters escaped.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
