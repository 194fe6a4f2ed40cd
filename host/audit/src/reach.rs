//! Computes a member's reach: its grants, as far as there is something to be reached where it is installed.

use guild_contract::{
    capability::{
        FILES, HALL, Kind, LORE_WRITE, MANAGER, MEMORY, MEMORY_GLOBAL_WRITE, MEMORY_PROJECT_WRITE, MEMORY_WRITE,
        SEARCH, WEB, WORKTREE_WRITE,
        grants::{Grants, wildcard},
    },
    manifest::{CheckoutScope, ComponentSpec, FILE_TOOLS, Scope},
};

use crate::{evidence::hosts, flows::Reach, subject::Places};

impl Reach {
    /// What a member with the manifest's `spec` can reach with `grants`. `imports` tells whether its component imports an
    /// interface that a capability needs; of one that was not read, say that it imports all that it asks for.
    pub fn of(spec: &ComponentSpec, grants: &Grants, places: &Places, imports: impl Fn(&Kind) -> bool) -> Self {
        let has_jobs = spec.world.exports_dispatch();
        let imported = |kind: &Kind| grants.holds(kind) && imports(kind);
        let has_tool = |of: &[&str]| has_jobs && grants.sessions.tools.iter().any(|tool| of.contains(&tool.as_str()));
        // Without a provider, WebSearch searches the read roots.
        let searches_roots = has_tool(&["WebSearch"]) && !(places.has_provider && grants.sessions.search);
        let reads_files = imported(&FILES) || has_tool(&FILE_TOOLS) || searches_roots;
        let reads_web = imported(&WEB) || has_tool(&["WebFetch"]);
        let roots =
            grants.roots.as_ref().filter(|_| reads_files).map(|names| {
                places.roots.iter().filter(|root| names.grant(root, wildcard)).cloned().collect::<Vec<_>>()
            });
        let hosts = grants.hosts.as_ref().filter(|_| reads_web).map(|names| {
            let all_of = names.all_of.iter().fold(places.hosts.clone(), |hosts, patterns| both(&hosts, patterns));
            let is_denied = |host: &String| names.none_of.iter().any(|denied| hosts::matches(denied, host));
            all_of.into_iter().filter(|host| !is_denied(host)).collect::<Vec<_>>()
        });
        let by_component = imported(&WEB) && grants.holds(&SEARCH);
        let base = &grants.base;
        let in_commissions = |kind: &Kind| has_jobs && (base.holds(kind) || grants.holds(kind));
        let reads = |scope: Scope| match Kind::of_scope(scope) {
            None => grants.memory && (has_jobs || imported(&MEMORY)),
            Some(kind) => grants.memory && in_commissions(kind),
        };
        let stores = (has_jobs && grants.sessions.memory) || (imported(&MEMORY) && grants.holds(&MEMORY_WRITE));
        let writes = |scope: Scope| {
            stores
                && match scope {
                    Scope::Worker => true,
                    Scope::Project => has_jobs && base.holds(&MEMORY_PROJECT_WRITE),
                    Scope::Global => has_jobs && base.holds(&MEMORY_GLOBAL_WRITE),
                }
        };
        let scopes = [Scope::Worker, Scope::Project, Scope::Global];
        let is_full = spec.checkout_scope.unwrap_or_default() == CheckoutScope::Full;
        let manages = has_jobs && grants.holds(&MANAGER);
        Self {
            roots: roots.unwrap_or_default(),
            reads_memory: scopes.into_iter().filter(|scope| reads(*scope)).collect(),
            reads_documents: has_jobs,
            reads_worktree: has_jobs && is_full && FILE_TOOLS.iter().any(|tool| base.has(tool)),
            reads_hall: imported(&HALL) || manages,
            has_callers: true,
            hosts: hosts.unwrap_or_default(),
            searches: places.has_provider && (by_component || (has_tool(&["WebSearch"]) && grants.sessions.search)),
            toolboxes: spec.toolboxes.iter().map(ToString::to_string).filter(|_| has_jobs).collect(),
            writes_memory: scopes.into_iter().filter(|scope| writes(*scope)).collect(),
            writes_artifacts: has_jobs && grants.artifacts,
            writes_documents: in_commissions(&LORE_WRITE),
            writes_worktree: in_commissions(&WORKTREE_WRITE),
            manages,
            reports: has_jobs,
            answers_tools: spec.world.exports_toolbox(),
        }
    }
}

/// The hosts that a pattern of each list has.
fn both(some: &[String], others: &[String]) -> Vec<String> {
    let mut hosts: Vec<_> = some.iter().flat_map(|a| others.iter().filter_map(move |b| narrower(a, b))).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The hosts of both patterns: the narrower name, with the port that either names.
fn narrower(a: &str, b: &str) -> Option<String> {
    let parts = |pattern: &str| match pattern.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) => (host.to_owned(), Some(port.to_owned())),
        _ => (pattern.to_owned(), None),
    };
    let ((a_host, a_port), (b_host, b_port)) = (parts(a), parts(b));
    let host = if hosts::matches(&b_host, &a_host) {
        a_host
    } else if hosts::matches(&a_host, &b_host) {
        b_host
    } else {
        return None;
    };
    match (a_port, b_port) {
        (Some(a), Some(b)) if a != b => None,
        (Some(port), _) | (_, Some(port)) => Some(format!("{host}:{port}")),
        (None, None) => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_patterns_the_narrower_one_holds() {
        let of = |a: &[&str], b: &[&str]| {
            let [a, b] = [a, b].map(|list| list.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>());
            both(&a, &b)
        };
        assert_eq!(of(&["*"], &["docs.rs", "*.example.org"]), ["*.example.org", "docs.rs"]);
        assert_eq!(of(&["*.example.org"], &["a.example.org", "docs.rs"]), ["a.example.org"]);
        assert_eq!(of(&["docs.rs"], &["docs.rs:443"]), ["docs.rs:443"]);
        assert_eq!(of(&["*:443"], &["docs.rs"]), ["docs.rs:443"]);
        assert!(of(&["example.org"], &["*.example.org"]).is_empty());
        assert!(of(&["docs.rs:80"], &["docs.rs:443"]).is_empty());
    }
}
