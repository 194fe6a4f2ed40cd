//! What an audit says of any bytes: the same each time, no more than is sensible, and never less than what a host refuses.

use std::time::{Duration, Instant};

use guild_audit::{
    Audit, Difference, Member, Subject,
    inspect::{self, InspectError},
    model::Kind,
};
use guild_contract::{Bounds, Grants, Limits, Manifest, MemberKey, Policy, manifest::ComponentSpec};
use serde_json::json;

use crate::{component::specs, wasm};

/// What no component of some KiB takes, on a machine that is busy, in a build that is watched.
const PATIENCE: Duration = Duration::from_secs(4);
/// Bytes of the JSON of an audit, whatever was audited.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A component; see [`wasm::component`].
pub fn run(data: &[u8]) {
    let bytes = wasm::component(data);
    let begun = Instant::now();
    let outside = inspect::outside(&bytes);
    let alone = audit(&bytes, None);
    assert_eq!(alone.identity.kind == Kind::Component, outside.is_ok(), "{:?}", alone.identity);
    assert_eq!(alone.identity.problem.is_some(), outside.is_err());
    // One of them each time: it is the same for all that it says of the bytes.
    let specs = specs();
    for spec in &specs[data.len() % specs.len()..][..1] {
        let lenient = audit(&bytes, Some((spec, &Policy { web: true, ..Policy::default() })));
        let strict = audit(&bytes, Some((spec, &Policy { strict_imports: true, ..Policy::default() })));
        let Ok(outside) = &outside else { continue };
        let (lenient, strict) = (refusal(&lenient, outside, spec), refusal(&strict, outside, spec));
        assert!(!lenient || strict, "strict is more lenient");
    }
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());

    fn refusal(audit: &Judged, outside: &inspect::Outside, spec: &ComponentSpec) -> bool {
        let refused = inspect::check(outside, spec, &audit.grants);
        if let Err(why) = &refused {
            assert!(!why.to_string().is_empty(), "a refusal without a reason");
            let says_so = !audit.audit.findings.is_empty() || matches!(why, InspectError::NotGranted { .. });
            assert!(says_so, "a host refuses it, and the audit has nothing to say: {why}");
        }
        refused.is_err()
    }
}

/// An audit, and what it was told of grants.
struct Judged {
    audit: Audit,
    grants: Grants,
}

impl std::ops::Deref for Judged {
    type Target = Audit;

    fn deref(&self) -> &Audit {
        &self.audit
    }
}

/// Audits twice, and writes and reads the outcome.
fn audit(bytes: &[u8], member: Option<(&ComponentSpec, &Policy)>) -> Judged {
    let key: MemberKey = "ann".parse().unwrap();
    let manifest = json!({"name": "ann", "displayName": "Ann", "description": "d", "version": "1", "plugin": {}});
    let manifest = Manifest::parse(manifest.to_string().as_bytes()).unwrap();
    let grants = member.map(|(spec, policy)| Grants::of(&key, spec, policy)).unwrap_or_default();
    let bounds = Bounds { max_turns: Some(3), ..Bounds::default() };
    let member = member.map(|(spec, _)| Member { key: &key, manifest: &manifest, spec, grants: &grants, bounds });
    let limits = Limits { component_bytes: 4096, ..Limits::default() };
    let subject = Subject { file: "x.wasm", bytes, member, limits: &limits, signature: None };
    let audit = Audit::of(&subject);
    let json = serde_json::to_string(&audit).unwrap();
    assert!(json.len() < MAX_BYTES, "an audit of {} bytes", json.len());
    assert_eq!(Audit::of(&subject), audit, "the same bytes are audited otherwise");
    assert_eq!(serde_json::from_str::<Audit>(&json).unwrap(), audit, "it is not what was written");
    let difference = Difference::between(&audit, &audit);
    assert_eq!(difference, Difference::default(), "it differs from itself");
    assert_eq!(audit.identity.bytes, bytes.len() as u64);
    assert!(audit.imports.is_sorted_by(|a, b| a.name <= b.name), "the imports are not sorted");
    Judged { audit, grants }
}
