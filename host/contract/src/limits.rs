//! Lists every limit of the host with its value or default.
//!
//! Each limit is enforced, and there is no way to spell "unlimited". The limits that an operator may want to change are
//! keys of `[limits]` in `guild.toml`, by these names. The others are fixed, because another value has no use, or
//! because much depends on the value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The description of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name, as `guild.toml` spells it.
    pub name: &'static str,
    /// The limit in a sentence: `limits.NAME` for a key, and `the fixed limit NAME` for a limit that is none.
    pub cited: &'static str,
    /// The bounded quantity, from which the table of `docs/reference/limits.md` is made.
    pub about: &'static str,
    /// Whether the limit bounds a component or its jobs. Such a key can be narrowed for one member, to at most the
    /// value for all members.
    pub of_member: bool,
    /// The way to set it.
    pub setting: Setting,
}

/// The way to set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Setting {
    /// A key of `[limits]` sets it; a change takes effect at once.
    Key,
    /// A key of `[limits]` sets it; a change takes effect at the next start of a host, since pools and queues depend on
    /// it.
    KeyAtStart,
    /// The limit is fixed.
    Fixed,
}

impl Limit {
    /// Whether the limit is a key of `[limits]`. A debug build accepts the fixed limits too, so that tests can reach
    /// them.
    pub fn is_key(&self) -> bool {
        self.setting != Setting::Fixed || cfg!(debug_assertions)
    }
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $([$member:ident])? $(@$setting:ident)? $name:ident: $type:ty = $default:expr;)+) => {
        /// The host's limits. Sizes are bytes and times are seconds unless a field's name or text says otherwise.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// All limits.
            pub const ALL: &'static [Limit] = &[$(Limit {
                name: stringify!($name),
                cited: limits!(@cited $name $($setting)?),
                about: concat!($($doc),+),
                of_member: limits!(@member $($member)?),
                setting: limits!(@setting $($setting)?),
            }),+];

            /// Keeps the running host's values of [`Setting::KeyAtStart`].
            pub fn keep_at_start(&mut self, running: &Self) {
                $(if limits!(@setting $($setting)?) == Setting::KeyAtStart {
                    self.$name = running.$name;
                })+
            }

            /// Refuses a limit of zero, which would silently stop the host's work.
            pub fn check(&self) -> Result<(), String> {
                $(let above_zero = self.$name > <$type>::default();
                if !above_zero {
                    return Err(format!("limits.{} must be above 0", stringify!($name)));
                })+
                Ok(())
            }

            /// The smaller value of each limit, and the names of the limits that are smaller in `other`.
            pub(crate) fn smaller(&self, other: &Self) -> (Self, Vec<&'static str>) {
                let (mut least, mut names) = (self.clone(), Vec::new());
                $(if other.$name < self.$name {
                    least.$name = other.$name;
                    names.push(stringify!($name));
                })+
                (least, names)
            }

            /// Refuses a limit that is above its `ceiling`.
            fn within(&self, ceiling: &Self) -> Result<(), String> {
                $(if self.$name > ceiling.$name {
                    let (name, most) = (stringify!($name), ceiling.$name);
                    return Err(format!("{name} = {} is above limits.{name} = {most}, which holds for all members", self.$name));
                })+
                Ok(())
            }
        }
    };
    (@cited $name:ident fixed) => { concat!("the fixed limit ", stringify!($name)) };
    (@cited $name:ident $($setting:ident)?) => { concat!("limits.", stringify!($name)) };
    (@member) => { false };
    (@member member) => { true };
    (@setting) => { Setting::Key };
    (@setting start) => { Setting::KeyAtStart };
    (@setting fixed) => { Setting::Fixed };
}

impl Limits {
    /// A limit in a sentence; see [`Limit::cited`].
    pub fn cited(name: &str) -> &'static str {
        let limit = Self::ALL.iter().find(|limit| limit.name == name);
        debug_assert!(limit.is_some(), "there is no limit {name:?}");
        limit.map_or("a limit", |limit| limit.cited)
    }

    /// Whether an operator cannot set a limit.
    pub fn is_fixed(name: &str) -> bool {
        Self::ALL.iter().any(|limit| limit.name == name && limit.setting == Setting::Fixed)
    }

    /// Whether a component that was loaded under `other` has the same limits: all limits of a component and its jobs,
    /// and the time that its callers wait for their turn.
    pub fn same_for_components(&self, other: &Self) -> bool {
        const WAITS: [&str; 2] = ["call_tool_wait_seconds", "dispatch_wait_seconds"];
        let (Ok(one), Ok(other)) = (serde_json::to_value(self), serde_json::to_value(other)) else { return false };
        let of_members = Self::ALL.iter().filter(|limit| limit.of_member).map(|limit| limit.name);
        of_members.chain(WAITS).all(|name| one.get(name) == other.get(name))
    }

    /// Replaces one limit with a member's smaller value; `name` is a limit with `of_member`.
    ///
    /// # Errors
    ///
    /// Returns a sentence with the reason if the value is invalid, or greater than the value for all members.
    pub fn narrowed(&self, name: &str, value: Value) -> Result<Self, String> {
        let unsound = |e: serde_json::Error| e.to_string();
        let mut whole = serde_json::to_value(self).map_err(unsound)?;
        if let Some(whole) = whole.as_object_mut() {
            whole.insert(name.to_owned(), value);
        }
        let narrowed: Self = serde_json::from_value(whole).map_err(unsound)?;
        narrowed.check()?;
        narrowed.within(self)?;
        Ok(narrowed)
    }
}

// `[member]` marks a bound of a component or its jobs, `@start` a key whose change takes effect at the next start of
// the host, and `@fixed` a limit that is not a key of guild.toml.
limits! {
    /// Memory of a component, summed over its Store: linear memories, tables, and the host's memory for its open
    /// streams, listings and sessions.
    [member]
    @start memory_bytes: u64 = 64 * MIB;
    /// Table elements of a component, summed over its Store.
    [member]
    @fixed table_elements: u64 = 100_000;
    /// Core instances in a component's Store.
    [member]
    @fixed instances: u32 = 100;
    /// Tables in a component's Store.
    [member]
    @fixed tables: u32 = 100;
    /// Linear memories in a component's Store.
    [member]
    @fixed memories: u32 = 16;
    /// Resource handles that a component may hold at a time.
    [member]
    @fixed handles: u32 = 4096;
    /// Files, directories, streams and listings that a component may have open at a time. All components together may use
    /// half of the process's descriptors.
    [member]
    @fixed open_files: u32 = 256;
    /// Bytes that one host call may copy out of a component.
    [member]
    @fixed hostcall_bytes: u64 = 16 * MIB;
    /// Bytes that one call to `wasi:random` may request.
    [member]
    @fixed random_bytes: u64 = MIB;
    /// Time for `activate`: component, host calls and blocking I/O together.
    [member]
    activate_seconds: u32 = 10;
    /// Time for `run`: component, host calls and blocking I/O together.
    [member]
    run_seconds: u32 = 3600;
    /// Live `run` instances on a host; further ones are queued before they are instantiated.
    @start live_runs: u32 = 256;
    /// Memory of all child processes that work on untrusted input together, counted by their own limits; further
    /// processes wait.
    @start processes_bytes: u64 = 8192 * MIB;
    /// Time to check a schema that came with a member, or a value against such a schema, in a child process.
    @fixed schema_seconds: u32 = 2;
    /// Memory of a child process that checks a schema or a value.
    @fixed schema_memory_bytes: u64 = 256 * MIB;
    /// Time for `call-tool`: component, host calls and blocking I/O together.
    [member]
    call_tool_seconds: u32 = 25;
    /// Time for `list-tools`, when a component is loaded. A component that exceeds it is retried after those that have
    /// not been tried yet.
    [member]
    @fixed list_tools_seconds: u32 = 5;
    /// Tool calls of components at a time on a host; further calls wait.
    @start live_tool_calls: u32 = 64;
    /// Components' tools that a roster's `/mcp` lists, as JSON: a model reads the whole list. The tool `find_tools`
    /// finds the tools beyond it.
    listed_tools_bytes: u64 = 24 * KIB;
    /// Tools of a component.
    [member]
    @fixed tools: u32 = 128;
    /// All definitions of a component's tools: names, texts and schemas.
    [member]
    @fixed tools_bytes: u64 = 256 * KIB;
    /// Agent sessions that a component may have at a time, including queued ones.
    [member]
    job_sessions: u32 = 64;
    /// Time that a dispatch waits for its check before it is answered "busy".
    @fixed dispatch_wait_seconds: u32 = 20;
    /// Time that a tool call waits before it is answered "busy": its caller may give up after 30 s.
    @fixed call_tool_wait_seconds: u32 = 4;
    /// Size of a component's file.
    [member]
    component_bytes: u64 = 64 * MIB;
    /// Time to compile a component.
    @start compile_seconds: u32 = 120;
    /// Memory of the process that compiles a component.
    @start compile_memory_bytes: u64 = 2048 * MIB;
    /// Size of the body of one function of a component.
    @fixed function_bytes: u64 = MIB;
    /// Local variables of one function of a component.
    @fixed function_locals: u32 = 20_000;
    /// Nesting depth of blocks, loops and branches in one function of a component.
    @fixed function_nesting: u32 = 4000;
    /// Size of the compile cache, all entries together.
    @start compile_cache_bytes: u64 = 1024 * MIB;
    /// Wall-clock time of a session, or of one turn in a meeting, unless the plan asks for less.
    [member]
    session_seconds: u32 = 3600;
    /// Turns of all sessions of a job, or of one turn in a meeting, unless the plan asks for fewer.
    [member]
    session_turns: u32 = 500;
    /// US dollars of all sessions of a job, or of one turn in a meeting, unless the plan asks for less.
    [member]
    session_budget_usd: f64 = 5.0;
    /// US dollars for compacting the memories of a scope once.
    [member]
    @fixed compaction_budget_usd: f64 = 0.05;
    /// Size of a tool's answer to a session; a longer answer is cut, and ends with a note. The answer of a component's
    /// tool must not exceed it.
    [member]
    @fixed tool_result_bytes: u64 = 128 * KIB;
    /// Characters of a conversation that a model is given; the oldest part of a longer conversation is left out.
    /// `claude` keeps its own conversations; this limit applies if it lost one.
    [member]
    conversation_chars: u64 = 400_000;
    /// Number of times that a job is resumed after interruptions by host restarts; after that it fails.
    [member]
    resumes: u32 = 3;
    /// Time that a resumed job runs before it is no longer suspected of a crash. A job that is suspected already runs
    /// alone for that time, before the next one is resumed.
    @fixed resume_trial_seconds: u32 = 30;
    /// Running jobs on a host; at the limit a dispatch is answered "busy".
    @start running_jobs: u32 = 10_000;
    /// Host memory for running jobs, queued ones included: tasks, prompts, and parsed configurations, which take up to
    /// 150 times their text. One member may use seven eighths of it; beyond it a dispatch is answered "busy".
    @start running_bytes: u64 = 1024 * MIB;
    /// Size of all files under a job's `artifacts/`, whichever writer they are from.
    [member]
    artifacts_bytes: u64 = 256 * MIB;
    /// Files and directories under a job's `artifacts/`, whichever writer they are from.
    [member]
    @fixed artifacts_entries: u64 = 4096;
    /// Size of all files that the tools of one attempt at a commission wrote in its worktree; each file counts with its
    /// last size.
    [member]
    worktree_bytes: u64 = 64 * MIB;
    /// Files and directories that the tools of one attempt at a commission created or wrote in its worktree.
    [member]
    @fixed worktree_entries: u64 = 4096;
    /// Documents of a project, below `.lore/` of `claude/main`, without the hall's records.
    @fixed project_documents: u64 = 10_000;
    /// Size of the documents of a project together.
    @start project_documents_bytes: u64 = 256 * MIB;
    /// Memory of one run of `git` or `gh`, and of each process that it starts. Mapped packs and indexes do not count.
    @start git_memory_bytes: u64 = 1024 * MIB;
    /// Size of the `description` of a dispatch.
    [member]
    @fixed description_bytes: u64 = KIB;
    /// Size of the `task` of a dispatch.
    [member]
    task_bytes: u64 = MIB;
    /// Size of the `config` of a dispatch, as JSON.
    [member]
    @fixed config_bytes: u64 = 256 * KIB;
    /// Files that come with a dispatch.
    [member]
    @fixed attachments: u32 = 64;
    /// Size of the files that come with a dispatch, together.
    [member]
    attachments_bytes: u64 = 2 * MIB;
    /// Size of the prompts and names of a plan, and of the prompts and own tools of a session that a component starts.
    [member]
    @fixed plan_bytes: u64 = 4 * MIB;
    /// Size of a job's summary.
    [member]
    @fixed summary_bytes: u64 = 64 * KIB;
    /// Size of one question or one decision.
    [member]
    @fixed note_bytes: u64 = 16 * KIB;
    /// Size of all questions and decisions of a job.
    [member]
    @fixed notes_bytes: u64 = MIB;
    /// Size of a job's result.
    [member]
    result_bytes: u64 = 8 * MIB;
    /// Size of a job's log; further lines are dropped, and one line notes it.
    [member]
    @fixed log_bytes: u64 = MIB;
    /// Size of a job's `transcript.jsonl`; further entries are dropped, and one entry notes it.
    [member]
    transcript_bytes: u64 = 16 * MIB;
    /// Characters of memories that an activation is given outside of commissions and meetings; also the largest memory
    /// that can be stored.
    [member]
    memory_injection_chars: u64 = 8000;
    /// Characters of memories of all scopes that an attempt at a commission, or a meeting, is given; if there are more,
    /// each scope that has more than a third of the limit is compacted. `memoryLimit` of a project in `config.yaml`, in
    /// tokens of four characters, takes precedence.
    [member]
    commission_memory_chars: u64 = 32_000;
    /// Characters of a member's own memories above which they are compacted when a dispatched job stores one.
    [member]
    @fixed memory_compaction_chars: u64 = 16_000;
    /// Memories of one scope: of a member, of a project, or of all projects.
    [member]
    @fixed memory_entries: u32 = 1024;
    /// Time to read one document of the read roots in a child process. A document that takes longer is left out.
    @fixed document_seconds: u32 = 5;
    /// Memory for reading one document of the read roots in a child process.
    @start document_memory_bytes: u64 = 512 * MIB;
    /// Time for one Grep or Glob, or for listing the files of the read roots, in a child process. The search may wait
    /// for the same time before it starts.
    @fixed search_seconds: u32 = 20;
    /// Memory for one Grep or Glob, or for listing the files of the read roots, in a child process.
    @fixed search_memory_bytes: u64 = 256 * MIB;
    /// Searches of the read roots by one member at a time; further searches wait.
    @fixed searches: u32 = 4;
    /// Size of a request's body.
    body_bytes: u64 = 4 * MIB;
    /// Nesting depth of a request's JSON.
    @fixed json_depth: u32 = 64;
    /// Estimated memory of a request's parsed JSON, which is 20 to 100 times the text if the text is mostly structure.
    @fixed parsed_bytes: u64 = 64 * MIB;
    /// Bodies, parsed JSON, and answers of all requests in progress; one caller may use seven eighths of it. A request
    /// beyond it waits 2 s, and is then answered "busy".
    @start requests_bytes: u64 = 512 * MIB;
    /// Requests in a JSON-RPC batch.
    @fixed batch: u32 = 100;
    /// Connections at a time, of the port and of a hall's socket each. Beyond it, the connection that has waited
    /// longest for its client is closed; if all have requests in progress, new connections wait.
    @start connections: u32 = 4096;
    /// Connections of one address (of IPv6: of one /64) other than loopback at a time; further connections are closed.
    @start connections_per_address: u32 = 256;
    /// MCP sessions that are open at a time on a host. Beyond it, the session that was unused longest is closed; if all
    /// are in use, `initialize` is answered 503.
    @start mcp_sessions: u32 = 256;
    /// Time that an unused MCP session stays open. A session is unused while none of its requests is in progress and no
    /// stream is open.
    @fixed mcp_session_seconds: u32 = 1800;
    /// Size of a request's head: its first line and its header fields.
    @fixed header_bytes: u64 = 16 * KIB;
    /// Header fields of a request.
    @fixed headers: u32 = 100;
    /// Time for a client to send a request or to read 64 KiB of an answer; also the time that an idle connection stays
    /// open.
    @start client_seconds: u32 = 60;
    /// Requests with one token per second; each request of a batch counts. As many may come at once.
    token_requests_per_second: u32 = 200;
    /// Dispatches with one token per minute; as many may come at once.
    token_dispatches_per_minute: u32 = 600;
    /// Requests with one token that are in progress.
    token_requests_at_once: u32 = 64;
    /// Subscribers to `/events`, and MCP streams that announce changes, at a time; one caller may have seven eighths of
    /// them. Further callers are asked to retry.
    @start listeners: u32 = 1024;
    /// Events that are kept for subscribers that reconnect, with as many KiB at most.
    @fixed events_kept: u32 = 4096;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_limit_can_be_zero() {
        assert!(Limits::default().check().is_ok());
        let none = Limits { memory_bytes: 0, ..Limits::default() };
        assert!(none.check().unwrap_err().contains("limits.memory_bytes"));
        let nan = Limits { session_budget_usd: f64::NAN, ..Limits::default() };
        assert!(nan.check().is_err());
    }

    #[test]
    fn a_sentence_cites_a_limit_as_a_key_only_if_it_is_one() {
        assert_eq!(Limits::cited("task_bytes"), "limits.task_bytes");
        assert_eq!(Limits::cited("memory_bytes"), "limits.memory_bytes");
        assert_eq!(Limits::cited("plan_bytes"), "the fixed limit plan_bytes");
    }

    #[test]
    fn a_member_s_limit_is_at_most_the_operator_s() {
        let all = Limits::default();
        let own = |bytes: Value| all.narrowed("memory_bytes", bytes);
        let narrowed = own(json!(65536)).unwrap().narrowed("session_budget_usd", json!(0.5)).unwrap();
        assert_eq!(narrowed, Limits { memory_bytes: 65536, session_budget_usd: 0.5, ..Limits::default() });
        assert!(own(json!(all.memory_bytes)).is_ok());
        let above = own(json!(all.memory_bytes + 1)).unwrap_err();
        assert!(above.contains("above limits.memory_bytes = 67108864"), "{above}");
        assert!(own(json!(0)).unwrap_err().contains("above 0"));
        assert!(own(json!("x")).is_err());
    }

    #[test]
    fn the_smaller_of_each_limit_holds() {
        let all = Limits::default();
        let other = Limits { tables: 1, note_bytes: all.note_bytes + 1, ..all.clone() };
        assert_eq!(all.smaller(&other), (Limits { tables: 1, ..all.clone() }, vec!["tables"]));
    }

    #[test]
    fn an_unknown_limit_is_refused() {
        assert!(serde_json::from_str::<Limits>(r#"{"memory_byte": 1}"#).is_err());
    }
}
