//! Renders an audit as SARIF 2.1.0, for tools that collect results.

use guild_audit::{Audit, Difference, Fact, FactName};
use serde_json::{Value, json};

/// The whole audit.
pub(super) fn audit(audit: &Audit) -> Value {
    log(audit, audit.facts.iter().map(|fact| result(audit, fact, None)).collect())
}

/// The difference of two audits: new facts, and those that disappeared.
pub(super) fn difference(audit: &Audit, difference: &Difference) -> Value {
    let new = difference.new_facts.iter().map(|fact| result(audit, fact, Some("new")));
    let gone = difference.gone_facts.iter().map(|fact| result(audit, fact, Some("absent")));
    log(audit, new.chain(gone).collect())
}

fn log(audit: &Audit, results: Vec<Value>) -> Value {
    let rules: Vec<_> = FactName::ALL
        .iter()
        .map(|name| {
            json!({
                "id": name.as_str(), "shortDescription": {"text": name.what()},
                "defaultConfiguration": {"level": level(name.is_refused())},
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

fn result(audit: &Audit, fact: &Fact, baseline: Option<&str>) -> Value {
    let mut result = json!({
        "ruleId": fact.name.as_str(),
        "ruleIndex": FactName::ALL.iter().position(|name| *name == fact.name),
        "level": level(fact.refused),
        "message": {"text": fact.text},
        "locations": [{
            "physicalLocation": {"artifactLocation": {"uri": uri(&audit.identity.file), "index": 0}},
            "logicalLocations": [{"fullyQualifiedName": fact.place}],
        }],
        "partialFingerprints": {"nameAndPlace/v1": format!("{}:{}", fact.name.as_str(), fact.place)},
        "properties": {"refused": fact.refused},
    });
    if let (Some(baseline), Some(result)) = (baseline, result.as_object_mut()) {
        result.insert("baselineState".to_owned(), baseline.into());
    }
    result
}

/// What a host refuses is an error; other facts are for a reader to weigh.
fn level(refused: bool) -> &'static str {
    if refused { "error" } else { "note" }
}

/// A file's path as a URI reference, with other characters escaped.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
