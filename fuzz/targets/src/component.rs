//! From bytes to a component that could be called: inspected, approved, compiled, linked; never run.

use std::sync::{Arc, OnceLock};

use guild_contract::{
    Grants, Limits, MemberKey, Policy,
    manifest::{
        AgentRequest, ComponentSpec, FilesRequest, HallRequest, MemoryRequest, PlainRequest, RequestedGrants,
        WebRequest,
    },
};
use guild_sandbox::{Candidate, CompileCache, Sandbox, Strategy};

use crate::wasm;

/// Larger inputs are cut: what counts is what a component says, not how much the compiler takes.
const MAX_BYTES: usize = 64 * 1024;

fn sandbox() -> &'static Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    SANDBOX
        .get_or_init(|| Sandbox::new(Arc::new(Limits::default()), Strategy::Cranelift, CompileCache::none()).unwrap())
}

/// What a manifest can say: everything is asked for, or nothing. Which one, the input decides.
pub(crate) fn spec_for(data: &[u8]) -> ComponentSpec {
    let all = RequestedGrants {
        log: Some(PlainRequest {}),
        memory: Some(MemoryRequest { write: true }),
        files: Some(FilesRequest::default()),
        web: Some(WebRequest { search: true, ..WebRequest::default() }),
        job_tools: Some(PlainRequest {}),
        status: Some(PlainRequest {}),
        agent: Some(AgentRequest { own_tools: true }),
        hall: Some(HallRequest { read: true, manage: true }),
        ..RequestedGrants::default()
    };
    let spec = |world: &str, grants: &RequestedGrants| {
        let mut spec: ComponentSpec =
            serde_json::from_value(serde_json::json!({"file": "x.wasm", "world": world})).unwrap();
        spec.grants = grants.clone();
        spec
    };
    match data.len() % 3 {
        0 => spec("worker", &all),
        1 => spec("autonomous-worker", &all),
        _ => spec("worker", &RequestedGrants::default()),
    }
}

/// A component; see [`wasm::component`].
pub fn run(data: &[u8]) {
    let mut bytes = wasm::component(data);
    bytes.truncate(MAX_BYTES);
    let Ok(candidate) = Candidate::of(bytes) else { return };
    let spec = spec_for(data);
    let key: MemberKey = "ann".parse().unwrap();
    let grants = Arc::new(Grants::of(&key, &spec, &Policy::default()));
    let checked = guild_inspect::check(&candidate.outside, &spec, &grants);
    match sandbox().prepare(&key, &candidate, &spec, grants, Arc::new(Limits::default())) {
        Ok(_) => {
            checked.expect("what was refused is loaded");
            let plain = |import: &String| import.starts_with("wasi:") || import.starts_with("guild:worker/");
            assert!(candidate.outside.imports.iter().all(plain), "{:?}", candidate.outside);
        }
        Err(why) => assert!(!why.to_string().is_empty(), "a refusal without a reason"),
    }
}
