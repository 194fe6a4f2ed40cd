//! Every limit at its boundary: what is within it passes, and what is beyond it ends with the limit's name.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use guild_contract::Limits;
use guild_sandbox::{CallError, LoadError, Plugin};
use guild_session::activation::{Plan, Refusal};
use serde_json::{Value, json};

use crate::support::{
    guest::{self, Guest},
    sandbox::{Bench, autonomous, toolbox, worker},
};

/// Where each limit has its boundary tested.
const TESTED: &[(&str, &str)] = &[
    ("attachments", "tests/attachments.rs::files_that_cannot_be_stored_are_refused_with_their_place_and_leave_nothing"),
    (
        "attachments_bytes",
        "tests/attachments.rs::files_that_cannot_be_stored_are_refused_with_their_place_and_leave_nothing",
    ),
    ("memory_bytes", "tests/sandbox.rs::growing_memory_beyond_the_limit_fails_the_call_and_names_the_limit"),
    ("table_elements", "tests/limits.rs::table_elements_are_summed_over_the_store"),
    ("instances", "tests/limits.rs::instances_tables_and_memories_are_counted"),
    ("tables", "tests/limits.rs::instances_tables_and_memories_are_counted"),
    ("memories", "tests/limits.rs::instances_tables_and_memories_are_counted"),
    ("handles", "tests/limits.rs::handles_are_counted_the_hosts_and_the_components_own"),
    ("open_files", "tests/limits.rs::open_files_are_counted"),
    ("hostcall_bytes", "tests/limits.rs::one_host_call_copies_no_more_than_the_limit"),
    ("random_bytes", "tests/limits.rs::one_call_for_random_bytes_has_a_limit"),
    ("activate_seconds", "tests/sandbox.rs::a_loop_ends_at_its_deadline_and_others_do_not_notice"),
    ("run_seconds", "tests/limits.rs::a_deadline_names_its_origin"),
    ("call_tool_seconds", "tests/limits.rs::a_tool_call_that_loops_or_sleeps_ends_at_its_deadline"),
    ("list_tools_seconds", "tests/tool_calls.rs::a_component_that_cannot_list_its_tools_is_not_loaded"),
    ("live_tool_calls", "tests/tool_calls.rs::a_member_s_tool_calls_leave_room_for_another_s"),
    (
        "listed_tools_bytes",
        "tests/mcp_roster.rs::tools_of_exactly_the_limit_are_listed_and_with_one_byte_less_the_last_is_found",
    ),
    ("tools", "tests/limits.rs::as_many_tools_as_the_limits_allow_are_offered_and_no_more"),
    ("tools_bytes", "tests/limits.rs::as_many_tools_as_the_limits_allow_are_offered_and_no_more"),
    ("live_runs", "tests/jobs.rs::a_queued_job_begins_when_a_live_run_has_ended_and_not_before"),
    (
        "job_sessions",
        "tests/guests.rs::a_component_has_no_more_sessions_at_a_time_and_none_larger_than_the_limits_allow",
    ),
    ("call_tool_wait_seconds", "tests/tool_calls.rs::a_member_s_tool_calls_leave_room_for_another_s"),
    ("dispatch_wait_seconds", "tests/sandbox.rs::the_queue_of_activations_is_bounded_and_answers_busy"),
    ("component_bytes", "tests/limits.rs::a_component_of_exactly_the_limit_is_loaded"),
    ("compile_seconds", "tests/limits.rs::a_component_that_takes_too_long_to_compile_is_given_up"),
    ("compile_memory_bytes", "tests/hostile/compile.rs::a_component_that_takes_gigabytes_to_compile_is_given_up"),
    ("processes_bytes", "host/confine/tests/confine.rs::a_child_waits_until_there_is_room_for_it"),
    ("schema_seconds", "tests/hostile/schemas.rs::patterns_that_take_a_minute_delay_nobody_and_are_given_up"),
    (
        "schema_memory_bytes",
        "tests/hostile/schemas.rs::a_schema_of_thousands_of_parts_takes_no_more_memory_than_the_limit",
    ),
    ("function_bytes", "tests/limits.rs::functions_of_exactly_the_limits_are_compiled"),
    ("function_locals", "tests/limits.rs::functions_of_exactly_the_limits_are_compiled"),
    ("function_nesting", "tests/limits.rs::functions_of_exactly_the_limits_are_compiled"),
    (
        "compile_cache_bytes",
        "tests/limits.rs::a_compile_cache_of_exactly_the_limit_is_kept_and_of_one_byte_more_the_oldest_goes",
    ),
    ("artifacts_bytes", "tests/wasi.rs::exactly_the_limit_of_bytes_can_be_written_and_the_log_names_the_limit_once"),
    ("artifacts_entries", "tests/wasi.rs::exactly_the_limit_of_entries_can_be_made_of_whatever_kind"),
    ("worktree_bytes", "host/hall/tests/hall/tools.rs::what_an_attempt_writes_is_bounded_also_over_a_restart"),
    ("worktree_entries", "host/hall/tests/hall/tools.rs::what_an_attempt_writes_is_bounded_also_over_a_restart"),
    ("project_documents", "host/hall/tests/hall/tools.rs::documents_are_bounded_for_the_whole_project"),
    ("project_documents_bytes", "host/hall/tests/hall/tools.rs::documents_are_bounded_for_the_whole_project"),
    ("git_memory_bytes", "host/git/tests/git/program.rs::a_run_has_no_more_memory_than_its_limit_and_names_it"),
    ("session_seconds", "tests/sessions.rs::the_operator_s_limits_bound_the_turns_the_dollars_and_the_time_of_a_job"),
    ("session_turns", "tests/sessions.rs::the_operator_s_limits_bound_the_turns_the_dollars_and_the_time_of_a_job"),
    (
        "session_budget_usd",
        "tests/sessions.rs::the_operator_s_limits_bound_the_turns_the_dollars_and_the_time_of_a_job",
    ),
    (
        "compaction_budget_usd",
        "host/jobs/tests/memory.rs::a_compaction_begins_one_character_above_the_threshold_and_has_its_own_budget",
    ),
    (
        "tool_result_bytes",
        "host/agent/tests/tool_set.rs::a_result_of_exactly_the_limit_is_whole_and_of_one_byte_more_is_cut",
    ),
    ("resumes", "host/jobs/tests/resume.rs::a_job_is_resumed_as_often_as_is_allowed_and_then_fails"),
    ("resume_trial_seconds", "tests/suspects.rs::a_job_that_survives_its_trial_is_no_suspect_any_more"),
    ("running_bytes", "tests/jobs.rs::a_host_that_stores_as_much_of_running_jobs_as_it_may_answers_busy"),
    ("running_jobs", "tests/jobs.rs::a_host_at_its_limit_of_running_jobs_answers_busy_and_loses_nothing"),
    ("description_bytes", "tests/jobs.rs::a_dispatch_of_exactly_the_limits_is_accepted_and_one_byte_more_makes_no_job"),
    ("task_bytes", "tests/jobs.rs::a_dispatch_of_exactly_the_limits_is_accepted_and_one_byte_more_makes_no_job"),
    ("config_bytes", "tests/jobs.rs::a_dispatch_of_exactly_the_limits_is_accepted_and_one_byte_more_makes_no_job"),
    ("plan_bytes", "tests/limits.rs::a_plan_of_exactly_the_limit_is_accepted"),
    ("summary_bytes", "host/jobs/tests/store.rs::the_worker_s_words_are_bounded"),
    ("note_bytes", "host/jobs/tests/store.rs::the_worker_s_words_are_bounded"),
    ("notes_bytes", "host/jobs/tests/store.rs::the_worker_s_words_are_bounded"),
    ("result_bytes", "host/jobs/tests/store.rs::the_worker_s_words_are_bounded"),
    (
        "log_bytes",
        "host/jobs/tests/store.rs::log_and_transcript_keep_what_just_fits_and_say_once_that_more_was_dropped",
    ),
    (
        "conversation_chars",
        "host/agent/tests/api/converse.rs::a_conversation_of_exactly_the_limit_is_told_whole_and_of_one_character_less_is_not",
    ),
    (
        "transcript_bytes",
        "host/jobs/tests/store.rs::log_and_transcript_keep_what_just_fits_and_say_once_that_more_was_dropped",
    ),
    ("memory_injection_chars", "host/jobs/tests/memory.rs::a_memory_that_could_never_be_injected_is_refused"),
    (
        "memory_compaction_chars",
        "host/jobs/tests/memory.rs::a_compaction_begins_one_character_above_the_threshold_and_has_its_own_budget",
    ),
    ("memory_entries", "host/jobs/tests/memory.rs::a_memory_that_could_never_be_injected_is_refused"),
    (
        "document_seconds",
        "tests/hostile/documents.rs::slow_documents_are_left_out_and_delay_nobody_who_may_not_read_them",
    ),
    ("document_memory_bytes", "tests/hostile/documents.rs::a_document_has_no_more_memory_than_its_limit"),
    ("search_seconds", "tests/hostile/documents.rs::a_search_ends_at_its_limit_and_nothing_of_it_runs_on"),
    ("search_memory_bytes", "tests/hostile/documents.rs::a_search_has_no_more_memory_than_its_limit"),
    ("searches", "tests/hostile/documents.rs::a_member_has_so_many_searches_at_a_time"),
    ("body_bytes", "host/server/tests/server/http.rs::a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_413"),
    ("json_depth", "host/server/tests/server/rpc.rs::json_that_nests_too_deep_is_32600_and_no_stack_is_lost"),
    (
        "parsed_bytes",
        "host/server/tests/server/http.rs::json_that_takes_exactly_the_limit_as_values_is_read_and_one_byte_more_is_32600",
    ),
    (
        "requests_bytes",
        "host/server/tests/server/http.rs::requests_hold_seven_eighths_of_the_limit_of_one_caller_and_one_that_would_hold_more_waits_or_is_503",
    ),
    ("batch", "host/server/tests/server/rpc.rs::an_empty_or_oversized_batch_is_one_32600"),
    (
        "connections",
        "host/server/tests/server/http.rs::a_connection_beyond_the_limit_takes_the_place_of_the_longest_idle",
    ),
    ("mcp_sessions", "tests/mcp.rs::a_host_has_no_more_sessions_than_its_limit_and_an_idle_one_makes_room"),
    ("mcp_session_seconds", "tests/mcp.rs::an_idle_session_is_closed_and_one_with_a_call_under_way_is_not"),
    (
        "connections_per_address",
        "tests/auth.rs::an_address_elsewhere_has_so_many_connections_and_one_more_is_closed_until_one_of_them_ends",
    ),
    ("header_bytes", "host/server/tests/server/http.rs::a_head_of_exactly_the_limit_is_read_and_one_byte_more_is_431"),
    ("headers", "host/server/tests/server/http.rs::as_many_header_fields_as_the_limit_are_read_and_one_more_is_431"),
    ("client_seconds", "host/server/tests/server/http.rs::a_client_that_stops_in_the_middle_is_let_go"),
    (
        "token_requests_per_second",
        "tests/auth.rs::requests_over_the_rate_limit_of_a_token_get_retry_after_and_reach_no_member",
    ),
    (
        "token_dispatches_per_minute",
        "tests/auth.rs::requests_over_the_rate_limit_of_a_token_get_retry_after_and_reach_no_member",
    ),
    ("token_requests_at_once", "tests/auth.rs::a_token_has_so_many_requests_under_way_and_no_more"),
    (
        "commission_memory_chars",
        "tests/commissions.rs::as_many_characters_of_memories_are_given_as_the_limit_and_no_more",
    ),
    ("listeners", "tests/events.rs::as_many_may_subscribe_as_the_limit_and_one_more_gets_retry_after"),
    ("events_kept", "tests/events.rs::as_many_events_are_kept_as_the_limit_and_of_one_more_the_oldest_goes"),
];

#[test]
fn every_limit_has_a_test_of_its_boundary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named: Vec<_> = TESTED.iter().map(|(limit, _)| *limit).collect();
    let all: Vec<_> = Limits::ALL.iter().map(|limit| limit.name).collect();
    let missing: Vec<_> = all.iter().filter(|limit| !named.contains(limit)).collect();
    assert!(missing.is_empty(), "no test is named for {missing:?}");
    for (limit, test) in TESTED {
        assert!(all.contains(limit), "{limit} is no limit");
        let (path, name) = test.split_once("::").unwrap();
        let source = fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(source.contains(&format!("fn {name}(")), "{test}, which is named for {limit}, does not exist");
    }
}

/// An answer of `activate` by which a test sees that nothing stood in its way: an empty refusal.
const FINE: &str = "(i32.store8 (i32.const 4096) (i32.const 1)) (i32.const 4096)";

/// What `activate` of a component comes to under these limits.
async fn activated(limits: Limits, component: &[u8], grants: Value) -> Result<(), CallError> {
    let bench = Bench::new(limits);
    let asked = json!({"file": "guest.wasm", "world": "worker", "grants": grants});
    let plugin = bench.prepare(component, asked).unwrap();
    let outcome = bench.activate(&plugin).await?.outcome;
    assert_eq!(outcome, Err(Refusal::InvalidConfig(String::new())));
    Ok(())
}

fn limit(name: &str, max: u64) -> Result<(), CallError> {
    Err(CallError::Limit { call: "activate", limit: format!("{} = {max}", Limits::cited(name)) })
}

#[tokio::test]
async fn table_elements_are_summed_over_the_store() {
    let grows = |by: u32| {
        let body = format!(
            "(if (i32.eq (table.grow $a (ref.null func) (i32.const {by})) (i32.const -1)) (then unreachable)) {FINE}"
        );
        Guest::default().activate(&body).with("(table $a 10 funcref) (table $b 20 funcref)").build()
    };
    let limits = || Limits { table_elements: 100, ..Limits::default() };
    assert_eq!(activated(limits(), &grows(70), json!({})).await, Ok(()));
    assert_eq!(activated(limits(), &grows(71), json!({})).await, limit("table_elements", 100));
}

#[tokio::test]
async fn what_tables_take_counts_as_memory() {
    let grows = |by: u32| {
        let body = format!(
            "(if (i32.eq (table.grow $a (ref.null func) (i32.const {by})) (i32.const -1)) (then unreachable)) {FINE}"
        );
        Guest::default().activate(&body).with("(table $a 0 funcref)").build()
    };
    let limits = || Limits { memory_bytes: 3 * 65536, ..Limits::default() };
    assert_eq!(activated(limits(), &grows(65536 / 8), json!({})).await, Ok(()));
    assert_eq!(activated(limits(), &grows(65536 / 8 + 1), json!({})).await, limit("memory_bytes", 3 * 65536));
}

/// The least that a component needs of something that is counted, and that one less is refused by name.
async fn counted(name: &str, least: u32, component: &[u8], limits: impl Fn(u32) -> Limits) {
    assert_eq!(activated(limits(least), component, json!({"log": {}})).await, Ok(()), "{name}");
    let below = least - 1;
    assert_eq!(activated(limits(below), component, json!({"log": {}})).await, limit(name, below.into()));
}

#[tokio::test]
async fn instances_tables_and_memories_are_counted() {
    let more = "(table 1 funcref) (table 1 funcref) (memory $second 1) (memory $third 1)";
    let plain = Guest::default().activate(FINE).with(more).build();
    counted("tables", 2, &plain, |tables| Limits { tables, ..Limits::default() }).await;
    counted("memories", 3, &plain, |memories| Limits { memories, ..Limits::default() }).await;
    // The encoder adds two small modules for the imports whose texts need the memory.
    let with_imports = Guest::importing(&["log"]).activate(FINE).build();
    counted("instances", 3, &with_imports, |instances| Limits { instances, ..Limits::default() }).await;
}

#[tokio::test]
async fn handles_are_counted_the_hosts_and_the_components_own() {
    // Each takes two entries of the host: the clock's, and the pollable.
    let sleepers = |count: u32| {
        let body = format!(
            "(local $n i32)
             (loop $more
               (drop (call $monotonic-clock.subscribe-duration (i64.const -1)))
               (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {count}))))
             {FINE}"
        );
        Guest::importing(&["clocks/monotonic-clock"]).activate(&body).build()
    };
    let limits = || Limits { handles: 100, ..Limits::default() };
    assert_eq!(activated(limits(), &sleepers(50), json!({})).await, Ok(()));
    assert_eq!(activated(limits(), &sleepers(51), json!({})).await, limit("handles", 100));

    // Resources of the component itself, of which the host holds nothing.
    let own = |count: u32| {
        let module = format!(
            "(module
               (import \"[export]things\" \"[resource-new]thing\" (func $new (param i32) (result i32)))
               (memory (export \"memory\") 2)
               (func (export \"guild:worker/dispatch@0.1.0#activate\") (param i32) (result i32)
                 (local $n i32)
                 (loop $more
                   (drop (call $new (local.get $n)))
                   (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {count}))))
                 {FINE})
               (func (export \"things#[constructor]thing\") (result i32) unreachable)
               (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const 8192)))"
        );
        let world = format!("{} export things: interface {{ resource thing {{ constructor(); }} }}", guest::WORKER);
        guest::component(&world, &module)
    };
    assert_eq!(activated(limits(), &own(100), json!({})).await, Ok(()));
    assert_eq!(activated(limits(), &own(101), json!({})).await, limit("handles", 100));
}

#[tokio::test]
async fn open_files_are_counted() {
    // Each time it asks, it is given `/memory` anew.
    let asks = |times: u32| {
        let body = format!(
            "(local $n i32)
             (loop $more
               (call $preopens.get-directories (i32.const 4096))
               (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {times}))))
             {FINE}"
        );
        Guest::importing(&["filesystem/types", "filesystem/preopens"]).activate(&body).build()
    };
    let limits = || Limits { open_files: 7, ..Limits::default() };
    assert_eq!(activated(limits(), &asks(7), json!({"memory": {}})).await, Ok(()));
    assert_eq!(activated(limits(), &asks(8), json!({"memory": {}})).await, limit("open_files", 7));
}

#[tokio::test]
async fn one_host_call_copies_no_more_than_the_limit() {
    let logs = |bytes: u32| {
        let call = format!("(call $log.write (i32.const 1) (i32.const 8192) (i32.const {bytes}))");
        Guest::importing(&["log"]).activate(&format!("{call} {call} {FINE}")).build()
    };
    let limits = || Limits { hostcall_bytes: 5000, ..Limits::default() };
    assert_eq!(activated(limits(), &logs(5000), json!({"log": {}})).await, Ok(()));
    assert_eq!(activated(limits(), &logs(5001), json!({"log": {}})).await, limit("hostcall_bytes", 5000));
}

#[tokio::test]
async fn one_call_for_random_bytes_has_a_limit() {
    for interface in ["random", "insecure"] {
        let function =
            if interface == "random" { "random.get-random-bytes" } else { "insecure.get-insecure-random-bytes" };
        let asks = |bytes: i64| {
            let body = format!("(call ${function} (i64.const {bytes}) (i32.const 4096)) {FINE}");
            Guest::importing(&[&format!("random/{interface}")]).activate(&body).build()
        };
        let limits = || Limits { random_bytes: 1000, ..Limits::default() };
        assert_eq!(activated(limits(), &asks(1000), json!({})).await, Ok(()));
        assert_eq!(activated(limits(), &asks(1001), json!({})).await, limit("random_bytes", 1000));
        assert_eq!(activated(limits(), &asks(-1), json!({})).await, limit("random_bytes", 1000));
    }
}

#[test]
fn a_component_of_exactly_the_limit_is_loaded() {
    let component = guest::refusing("fine");
    let size = component.len() as u64;
    let prepared = |component_bytes: u64| -> Result<Arc<Plugin>, LoadError> {
        Bench::new(Limits { component_bytes, ..Limits::default() }).prepare(&component, worker())
    };
    assert!(prepared(size).is_ok());
    assert!(matches!(prepared(size - 1), Err(LoadError::TooLarge { max, .. }) if max == size - 1));
}

#[test]
fn a_component_that_takes_too_long_to_compile_is_given_up() {
    // One function, so that not even many cores are fast.
    let step = "local.get 0 i32.const 31 i32.mul i32.const 7 i32.rotl local.set 0\n";
    let long = format!("(func (param i32) (result i32) {} local.get 0)", step.repeat(400_000));
    let component = Guest::default().activate(FINE).with(&long).build();
    let bench = Bench::new(Limits { compile_seconds: 1, function_bytes: u64::MAX, ..Limits::default() });
    let error = bench.prepare(&component, worker()).err().unwrap();
    assert_eq!(error.to_string(), "compiling the component takes longer than limits.compile_seconds = 1");
    assert!(bench.prepare(&guest::refusing("fine"), worker()).is_ok());
}

#[test]
fn functions_of_exactly_the_limits_are_compiled() {
    let function = format!("(func (local i64 i64 i64) {}{})", "block ".repeat(40), "end ".repeat(40));
    let component = Guest::default().activate(FINE).with(&function).build();
    let prepared = |limits: Limits| Bench::new(limits).prepare(&component, worker());
    let with = |set: &dyn Fn(&mut Limits, u32)| {
        let at = |more: u32| {
            let mut limits = Limits::default();
            set(&mut limits, more);
            prepared(limits)
        };
        (at(0), at(1))
    };
    let said = |refused: Result<Arc<Plugin>, LoadError>| refused.err().unwrap().to_string();
    let (within, beyond) = with(&|limits, less| limits.function_locals = 3 - less);
    assert!(within.is_ok());
    assert!(said(beyond).ends_with("has 3 local variables, more than the fixed limit function_locals = 2"));
    let (within, beyond) = with(&|limits, less| limits.function_nesting = 40 - less);
    assert!(within.is_ok());
    assert!(said(beyond).ends_with("nests deeper than the fixed limit function_nesting = 39"));
    // The other functions of the component are smaller.
    let (within, beyond) = with(&|limits, less| limits.function_bytes = 1 + 2 + 3 * 40 + 1 - u64::from(less));
    assert!(within.is_ok());
    assert!(said(beyond).ends_with("has 124 bytes, more than the fixed limit function_bytes = 123"));
}

#[test]
fn a_compile_cache_of_exactly_the_limit_is_kept_and_of_one_byte_more_the_oldest_goes() {
    // The names, by which component it is, and the sizes of what is cached after three are compiled.
    let cached = |compile_cache_bytes: u64| -> Vec<(String, u64)> {
        let bench = Bench::new(Limits { compile_cache_bytes, ..Limits::default() });
        let mut cached = Vec::new();
        for (n, text) in ["one", "two", "three"].iter().enumerate() {
            bench.prepare(&guest::refusing(text), worker()).unwrap();
            for entry in fs::read_dir(bench.dir.path().join("cache")).unwrap().map(Result::unwrap) {
                let name = entry.file_name().into_string().unwrap();
                if cached.iter().all(|(known, _)| *known != name) {
                    // Far enough apart for the system's clock.
                    let time = SystemTime::now() - Duration::from_secs(60 - n as u64);
                    fs::File::options().append(true).open(entry.path()).unwrap().set_modified(time).unwrap();
                    cached.push((name, entry.metadata().unwrap().len()));
                }
            }
        }
        cached.retain(|(name, _)| bench.dir.path().join("cache").join(name).exists());
        cached
    };
    let all = cached(Limits::default().compile_cache_bytes);
    let bytes = all.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((all.len(), cached(bytes)), (3, all.clone()));
    assert_eq!(cached(bytes - 1), all[1..]);
}

#[tokio::test]
async fn a_plan_of_exactly_the_limit_is_accepted() {
    // ok(session(...)) is zeros; at 4116 and 4124 are the lengths of its two prompts, which begin at 0.
    let planned = |bytes: u32| {
        let half = bytes / 2;
        let body = format!(
            "(i32.store (i32.const 4116) (i32.const {half})) (i32.store (i32.const 4124) (i32.const {}))
             (i32.const 4096)",
            bytes - half
        );
        Guest::default().activate(&body).build()
    };
    let bench = Bench::new(Limits { plan_bytes: 1001, ..Limits::default() });
    let plugin = bench.prepare(&planned(1001), worker()).unwrap();
    assert!(matches!(bench.activate(&plugin).await.unwrap().outcome, Ok(Plan::Session(_))));
    let plugin = bench.prepare(&planned(1002), worker()).unwrap();
    let error = bench.activate(&plugin).await.unwrap_err().to_string();
    assert!(error.contains("the fixed limit plan_bytes = 1001"), "{error}");
}

#[tokio::test]
async fn a_deadline_names_its_origin() {
    let bench = Bench::new(Limits { run_seconds: 1, ..Limits::default() });
    let sleeping = |nanoseconds: i64| {
        let sleep = format!("(call $monotonic-clock.subscribe-duration (i64.const {nanoseconds}))");
        let body = format!("(call $poll.pollable.block {sleep}) (call $ok (i32.const 0) (i32.const 0))");
        Guest::importing(&["io/poll", "clocks/monotonic-clock"]).run(&body).build()
    };
    let in_time = bench.prepare(&sleeping(10_000_000), autonomous()).unwrap();
    assert_eq!(bench.run(&in_time).await.0, Ok(Ok(String::new())));
    let sleeps = sleeping(-1);
    let plugin = bench.prepare(&sleeps, autonomous()).unwrap();
    let error = bench.run(&plugin).await.0.unwrap_err();
    assert_eq!(error.to_string(), "`run` did not end within its deadline of 1 s (limits.run_seconds)");
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&sleeps, autonomous()).unwrap();
    let mut job = bench.job("t");
    job.seconds = 1;
    let error = job.run(&plugin).await.unwrap_err();
    assert_eq!(error.to_string(), "`run` did not end within its deadline of 1 s (the job's own)");
}

#[tokio::test]
async fn a_tool_call_that_loops_or_sleeps_ends_at_its_deadline() {
    let bench = Bench::new(Limits { call_tool_seconds: 1, ..Limits::default() });
    let sleeping = |nanoseconds: i64| {
        let sleep = format!("(call $monotonic-clock.subscribe-duration (i64.const {nanoseconds}))");
        let body = format!("(call $poll.pollable.block {sleep}) (call $ok (local.get 2) (local.get 3))");
        let guest = Guest::importing(&["io/poll", "clocks/monotonic-clock"]);
        guest.tools(&[("do", guest::ANYTHING)]).call(&body).build()
    };
    let in_time = bench.prepare(&sleeping(10_000_000), toolbox()).unwrap();
    assert_eq!(bench.call_tool(&in_time, "do").await, Ok(Ok(json!({}))));
    for component in [sleeping(-1), guest::toolbox("(loop (br 0)) (i32.const 0)")] {
        let plugin = bench.prepare(&component, toolbox()).unwrap();
        let error = bench.call_tool(&plugin, "do").await.unwrap_err();
        let expected = "`call-tool` did not end within its deadline of 1 s (limits.call_tool_seconds)";
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn as_many_tools_as_the_limits_allow_are_offered_and_no_more() {
    let tools = [("one", guest::ANYTHING), ("two", guest::ANYTHING)];
    let component = Guest::default().tools(&tools).build();
    let bytes = tools.iter().map(|(name, schema)| (name.len() + schema.len()) as u64).sum();
    let refused = |limits: Limits| Bench::new(limits).prepare(&component, toolbox()).err().map(|e| e.to_string());
    let limits = || Limits { tools: 2, tools_bytes: bytes, ..Limits::default() };
    assert_eq!(refused(limits()), None);
    let error = refused(Limits { tools: 1, ..limits() }).unwrap();
    assert!(error.contains("2 tools, more than the fixed limit tools = 1"), "{error}");
    let error = refused(Limits { tools_bytes: bytes - 1, ..limits() }).unwrap();
    assert!(
        error.contains(&format!("{bytes} bytes, more than the fixed limit tools_bytes = {}", bytes - 1)),
        "{error}"
    );
}

#[tokio::test]
async fn a_tool_s_output_of_exactly_the_limit_is_an_answer_and_one_byte_more_is_none() {
    let bench = Bench::new(Limits { tool_result_bytes: 12, ..Limits::default() });
    let plugin = bench.prepare(&guest::toolbox("(call $ok (local.get 2) (local.get 3))"), toolbox()).unwrap();
    let echoed = async |input: Value| plugin.call_tool("do", &input, bench.tool_scope()).await;
    assert_eq!(echoed(json!({"a": "1234"})).await, Ok(Ok(json!({"a": "1234"}))));
    let error = echoed(json!({"a": "12345"})).await.unwrap_err().to_string();
    assert_eq!(error, "`call-tool` needs more than the fixed limit tool_result_bytes = 12 for its output of 13 bytes");
}

#[tokio::test]
async fn a_limit_is_the_reason_only_of_what_fails_for_it() {
    let limits = || Limits { memory_bytes: 4 * 65536, open_files: 20, ..Limits::default() };
    let needs_memory = limit("memory_bytes", 4 * 65536);
    let trapped = |why: &str| Err(CallError::Trap { call: "activate", why: why.to_owned() });
    let refused = "(drop (memory.grow (i32.const 100)))";
    let granted = "(drop (memory.grow (i32.const 1)))";
    let fails = |body: &str| Guest::importing(&["cli/exit"]).activate(body).build();
    assert_eq!(activated(limits(), &fails(&format!("{refused} unreachable")), json!({})).await, needs_memory);
    let went_on = fails(&format!("{refused} {granted} unreachable"));
    assert_eq!(activated(limits(), &went_on, json!({})).await, trapped("wasm `unreachable` instruction executed"));
    let exits = fails(&format!("{refused} (call $exit.exit (i32.const 1)) unreachable"));
    assert_eq!(
        activated(limits(), &exits, json!({})).await,
        trapped("it exited with a failure instead of answering (its exit code is not passed on)")
    );
    // The call that opens a file gets an error that there are too many, and may fail for another reason.
    let opens = Guest::importing(&["filesystem/types", "filesystem/preopens"])
        .activate(
            "(local $n i32)
             (call $preopens.get-directories (i32.const 8192))
             (loop $more
               (call $types.descriptor.read-directory (i32.load (i32.load (i32.const 8192))) (i32.const 8400))
               (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 30))))
             unreachable",
        )
        .build();
    let limits = Limits { memory_bytes: 64 << 20, ..limits() };
    let outcome = activated(limits, &opens, json!({"memory": {}})).await;
    assert_eq!(outcome, trapped("wasm `unreachable` instruction executed"));
}

#[tokio::test]
async fn polling_nothing_fails_the_call_and_polling_much_is_bounded() {
    let bench = Bench::new(Limits { activate_seconds: 5, ..Limits::default() });
    let polls = |list: &str| {
        Guest::importing(&["io/poll", "clocks/monotonic-clock"])
            .pages(64)
            .activate(&format!("(call $poll.poll {list} (i32.const 4096)) {FINE}"))
            .build()
    };
    let nothing = bench.prepare(&polls("(i32.const 0) (i32.const 0)"), worker()).unwrap();
    let error = bench.activate(&nothing).await.unwrap_err();
    assert!(matches!(error, CallError::Trap { .. }) && error.to_string().contains("empty poll list"), "{error}");
    // The same pollable, whose handle is what the first call gave: 1,000,000 times.
    let many = "(local $p i32) (local $n i32)
         (local.set $p (call $monotonic-clock.subscribe-duration (i64.const 0)))
         (loop $more
           (i32.store (i32.add (i32.const 8192) (i32.mul (local.get $n) (i32.const 4))) (local.get $p))
           (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000000))))
         (call $poll.poll (i32.const 8192) (i32.const 1000000) (i32.const 4096))";
    let many = Guest::importing(&["io/poll", "clocks/monotonic-clock"])
        .pages(128)
        .realloc("(i32.const 4194304)")
        .activate(&format!("{many} {FINE}"))
        .build();
    let plugin = bench.prepare(&many, worker()).unwrap();
    let ended = bench.activate(&plugin).await;
    assert!(
        matches!(&ended, Err(CallError::Limit { limit, .. }) if limit.starts_with("the fixed limit handles")),
        "{ended:?}"
    );
}
