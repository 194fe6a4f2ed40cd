//! What an audit says of any bytes: the same each time, no more than is sensible, and never less than what a host refuses.

use std::time::{Duration, Instant};

use guild_audit::{Audit, Difference, Member, Operator, Package, Subject, subject::Places};
use guild_contract::{Bounds, Grants, Limits, Manifest, MemberKey, Policy, manifest::ComponentSpec};
use serde_json::json;

use crate::{component::spec_for, wasm};

/// What no component of some KiB takes, on a machine that is busy, in a build that is watched.
const PATIENCE: Duration = Duration::from_secs(4);
/// Bytes of the JSON of an audit, whatever was audited.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A component; see [`wasm::component`].
pub fn run(data: &[u8]) {
    let bytes = wasm::component(data);
    let begun = Instant::now();
    let outside = guild_inspect::outside(&bytes);
    let alone = audit(&bytes, None);
    assert!(outside.is_ok() || alone.is_refused(), "nobody can read it, and nothing is found");
    let spec = spec_for(data);
    let refused = |policy: &Policy| {
        let grants = Grants::of(&"ann".parse().unwrap(), &spec, policy);
        let audit = audit(&bytes, Some((&spec, &grants)));
        let Ok(outside) = &outside else { return true };
        let Err(why) = guild_inspect::check(outside, &spec, &grants) else { return false };
        assert!(!why.to_string().is_empty(), "a refusal without a reason");
        assert!(audit.is_refused(), "a host refuses it, and the audit finds nothing: {why}");
        true
    };
    let lenient = refused(&Policy { web: true, ..Policy::default() });
    let strict = refused(&Policy { strict_imports: true, ..Policy::default() });
    assert!(!lenient || strict, "strict is more lenient");
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());
}

/// Audits twice, and writes and reads the outcome.
fn audit(bytes: &[u8], member: Option<(&ComponentSpec, &Grants)>) -> Audit {
    let key: MemberKey = "ann".parse().unwrap();
    let manifest = json!({"name": "ann", "displayName": "Ann", "description": "d", "version": "1", "plugin": {}});
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).unwrap();
    let bounds = Bounds { max_turns: Some(3), ..Bounds::default() };
    let operator = Operator {
        grants: member.map(|(_, grants)| grants.clone()).unwrap_or_default(),
        places: Places { roots: vec!["docs".to_owned()], hosts: vec!["*".to_owned()], has_provider: true },
        ..Operator::default()
    };
    // The same bytes are a posture too: any bytes may stand there.
    let package = Package { posture: Some(bytes), ..Package::default() };
    let member = member.map(|(spec, grants)| Member {
        key: &key,
        manifest: &manifest,
        spec,
        grants,
        bounds,
        package,
        operator: &operator,
    });
    let limits = Limits::default();
    let subject =
        Subject { file: "x.wasm", bytes, member, limits: &limits, signature: None, trusted: None, whole: None };
    let audit = Audit::of(&subject);
    let json = serde_json::to_string(&audit).unwrap();
    assert!(json.len() < MAX_BYTES, "an audit of {} bytes", json.len());
    assert_eq!(Audit::of(&subject), audit, "the same bytes are audited otherwise");
    assert_eq!(serde_json::from_str::<Audit>(&json).unwrap(), audit, "it is not what was written");
    let difference = Difference::between(&audit, &audit);
    assert_eq!(difference, Difference::default(), "it differs from itself");
    assert_eq!(audit.identity.bytes, bytes.len() as u64);
    assert!(audit.imports.is_sorted_by(|a, b| a.name <= b.name), "the imports are not sorted");
    audit
}
