//! Each case, and the tests that try it. A reviewer reads here what was thought of.
//!
//! Those of this directory check everything that [`harness`](super::harness) does. Where another test is named, it tries
//! the case at the crate or the command that has to withstand it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const BYTES_AND_LOAD: &[(&str, &[&str])] = &[
    ("truncated", &["load::a_file_that_is_cut_short_is_refused"]),
    ("random", &["load::random_bytes_are_refused"]),
    ("empty", &["load::an_empty_file_is_refused"]),
    ("core module only", &["load::a_core_module_is_refused"]),
    ("a precompiled file offered as a component", &["load::a_precompiled_file_is_refused"]),
    ("a tampered entry of the compile cache", &["load::a_tampered_entry_of_the_compile_cache_is_never_used"]),
    ("one of another engine", &["load::an_entry_of_the_compile_cache_from_another_engine_is_never_used"]),
    ("a symlinked one", &["load::a_symlinked_entry_of_the_compile_cache_is_never_followed"]),
    ("a cache that others can write", &["tests/sandbox.rs::a_cache_that_others_can_write_is_refused"]),
    ("an oversized file", &["load::a_file_over_the_limit_is_not_read"]),
    (
        "deeply nested types",
        &["load::types_that_nest_without_end_are_refused", "load::components_that_nest_without_end_are_refused"],
    ),
    ("100,000 functions", &["load::a_hundred_thousand_functions_are_compiled_within_the_time_for_that_or_given_up"]),
    ("thousands of memories or tables", &["load::thousands_of_memories_or_tables_are_refused"]),
    ("a 4 GiB minimum memory", &["load::a_memory_of_4_gib_at_the_beginning_is_over_the_limit"]),
    ("a huge minimum table", &["load::a_table_of_ten_million_elements_at_the_beginning_is_over_the_limit"]),
    ("hundreds of thousands of globals", &["load::hundreds_of_thousands_of_globals_are_refused"]),
    ("an unknown import", &["load::an_import_that_nobody_has_is_refused"]),
    ("an import not asked for", &["load::an_import_that_was_not_asked_for_is_refused"]),
    ("an import not granted", &["load::an_import_that_was_not_granted_answers_so"]),
    ("a missing export", &["load::a_component_without_what_its_world_exports_is_refused"]),
    ("another version of the WIT package", &["load::another_version_of_the_package_is_refused"]),
    (
        "a start function that loops or traps",
        &[
            "load::a_start_function_that_loops_ends_at_the_deadline",
            "load::a_start_function_that_traps_fails_the_dispatch",
        ],
    ),
    (
        "a realloc function that loops, traps or lies",
        &[
            "load::a_realloc_function_that_loops_ends_at_the_deadline",
            "load::a_realloc_function_that_traps_fails_the_dispatch",
            "load::a_realloc_function_that_lies_fails_the_dispatch",
        ],
    ),
    ("a plan that cannot be", &["load::a_plan_that_cannot_be_carried_out_fails_the_dispatch"]),
    (
        "the file replaced between hashing and compiling, or later",
        &[
            "load::a_file_that_is_replaced_while_it_is_loaded_is_the_one_or_the_other",
            "load::a_file_that_is_replaced_while_it_is_in_service_changes_nothing",
            "load::a_component_that_is_a_link_a_pipe_or_a_directory_is_refused",
        ],
    ),
    (
        "nesting and locals that take gigabytes to compile",
        &[
            "compile::a_component_that_takes_gigabytes_to_compile_is_given_up",
            "compile::a_function_with_more_than_the_limits_say_is_not_compiled",
        ],
    ),
    ("a compiler that goes on when it was given up", &["compile::a_compiler_is_ended_when_its_time_is_over"]),
    ("list-tools that loops", &["load::tools_whose_listing_does_not_end_are_not_offered"]),
    (
        "list-tools that returns a gigabyte",
        &[
            "load::tools_whose_listing_is_a_gigabyte_are_not_offered",
            "load::tools_whose_listing_is_not_there_are_not_offered",
        ],
    ),
    ("list-tools that returns invalid JSON", &["load::tools_whose_schema_is_no_json_are_not_offered"]),
];

const CPU_AND_TIME: &[(&str, &[&str])] = &[
    ("a tight loop", &["cpu::a_tight_loop_ends_at_its_deadline", "cpu::a_loop_in_activate_ends_at_its_deadline"]),
    ("a loop of cheap host calls", &["cpu::a_loop_of_cheap_host_calls_ends_at_its_deadline"]),
    ("recursion to the end of the stack", &["cpu::recursion_to_the_end_of_the_stack_is_a_trap"]),
    ("an exit", &["cpu::a_guest_that_exits_ends_its_own_job_only"]),
    ("memory.fill loops", &["cpu::a_loop_that_fills_memory_ends_at_its_deadline"]),
    (
        "sleeping or polling for ever",
        &["cpu::sleeping_for_ever_ends_at_the_deadline", "cpu::polling_for_ever_ends_at_the_deadline"],
    ),
    (
        "a million pollables",
        &[
            "cpu::a_million_pollables_are_over_the_limit_of_handles",
            "cpu::polling_thousands_of_pollables_at_once_ends_at_the_deadline",
        ],
    ),
    ("a host call blocked at the deadline", &["cpu::a_host_call_that_is_blocked_at_the_deadline_is_given_up"]),
    ("and cancelled then", &["cpu::a_host_call_that_is_blocked_is_given_up_when_the_job_is_cancelled"]),
    (
        "one guest's timeout and another; every thread busy",
        &["cpu::every_thread_is_busy_and_each_guest_still_ends_at_its_own_deadline"],
    ),
    ("a storm of cancels", &["cpu::a_storm_of_cancels_cancels_each_job_once_and_for_all"]),
    (
        "cancel against complete",
        &[
            "cpu::of_cancel_and_completion_one_wins_and_the_other_gets_the_outcome",
            "host/jobs/tests/store.rs::cancel_and_completion_race_for_one_outcome",
        ],
    ),
    ("delete while running", &["cpu::a_job_that_runs_is_not_deleted"]),
    (
        "a guest that goes on after its cancel",
        &[
            "cpu::a_guest_does_not_run_on_after_its_cancel",
            "tests/guests.rs::after_the_answer_to_cancel_not_even_the_components_own_files_change",
        ],
    ),
];

const MEMORY: &[(&str, &[&str])] = &[
    ("a grow loop", &["memory::a_loop_that_grows_memory_is_over_the_limit"]),
    ("many memories summed", &["memory::many_memories_are_summed"]),
    ("table growth", &["memory::a_table_that_grows_is_over_the_limit"]),
    (
        "a huge string or list into every host function",
        &[
            "memory::every_host_function_is_given_something_huge",
            "memory::a_text_beyond_the_memory_of_its_guest_is_a_trap_in_every_host_function",
            "memory::a_text_of_20_mib_is_over_what_a_host_call_may_copy_in_every_host_function",
        ],
    ),
    ("leaked handles", &["memory::leaked_descriptors_are_over_the_limit_of_open_files"]),
    ("a flood of empty writes", &["memory::a_flood_of_empty_writes_ends_at_the_deadline"]),
    ("get-random-bytes(u64::MAX)", &["memory::random_bytes_without_end_are_refused"]),
    (
        "a result, or a refusal, of 1 GB",
        &[
            "memory::a_result_beyond_memory_is_a_trap",
            "memory::a_result_over_the_limit_fails_the_job",
            "memory::a_refusal_without_end_is_cut",
        ],
    ),
    ("a million summaries", &["memory::a_million_summaries_end_at_the_deadline"]),
    ("a million results", &["memory::a_million_results_end_at_the_deadline_and_the_last_is_the_result"]),
    ("a million questions", &["memory::a_million_questions_are_bounded"]),
    ("a million decisions", &["memory::a_million_decisions_are_bounded"]),
    ("invalid UTF-8", &["memory::text_that_is_no_utf8_is_a_trap"]),
    (
        "JSON nested 100,000 deep, both ways",
        &[
            "memory::a_config_that_nests_100000_deep_is_refused",
            "memory::a_schema_of_a_guest_that_nests_100000_deep_is_refused",
        ],
    ),
];

const FILES: &[(&str, &[&str])] = &[
    (
        "`..`, absolute, `a/../../b`, trailing slashes, over-long names",
        &[
            "files::no_path_leads_out_of_the_directories",
            "files::a_trailing_slash_leads_nowhere_else",
            "tests/wasi.rs::a_trailing_slash_or_dots_lead_nowhere_else",
            "tests/guests.rs::a_component_finds_its_job_read_only_its_artifacts_writable_and_nothing_else",
        ],
    ),
    ("NUL, or nothing", &["files::a_path_with_a_nul_or_nothing_in_it_is_invalid"]),
    (
        "symlinks absolute, relative, chained, looping, dangling, to /proc/self",
        &[
            "files::symlinks_that_a_guest_makes_lead_nowhere_else",
            "files::a_guest_follows_no_link_that_leads_out",
            "tests/wasi.rs::no_symlink_that_a_component_makes_leads_out_and_none_that_is_there_is_followed_out",
        ],
    ),
    (
        "a symlink swapped in while a path is opened",
        &["files::a_link_that_is_swapped_in_while_a_path_is_opened_leads_nowhere"],
    ),
    (
        "a link planted in artifacts, and then a host write, read, list or delete through it",
        &[
            "files::the_host_follows_no_link_that_was_planted_among_the_artifacts",
            "files::a_guest_follows_no_link_that_leads_out",
            "host/jobs/src/files/artifacts.rs::planted_links_are_neither_followed_nor_listed",
            "host/jobs/tests/store.rs::deleting_follows_no_link",
        ],
    ),
    (
        "meta.json replaced with a directory, a pipe, a 10 GB sparse file",
        &[
            "files::a_record_that_becomes_something_else_delays_nobody",
            "host/jobs/tests/load.rs::files_that_are_traps_are_left_out_of_a_status",
        ],
    ),
    (
        "the job directory renamed while in use",
        &[
            "files::a_job_directory_that_is_renamed_while_it_is_in_use_ends_its_own_job_only",
            "host/jobs/tests/store.rs::a_job_whose_directory_is_taken_away_ends_without_a_trace",
        ],
    ),
    (
        "hard link or rename from the read-only to the writable directory",
        &[
            "files::what_is_read_only_is_not_changed_by_truncate_link_or_rename",
            "tests/wasi.rs::what_is_read_only_stays_so_by_truncate_link_and_rename_too",
        ],
    ),
    ("filling the disk by bytes", &["files::a_disk_is_not_filled_with_bytes"]),
    ("by entries", &["files::a_disk_is_not_filled_with_entries_of_whatever_kind"]),
    (
        "by depth",
        &[
            "files::a_tree_is_not_deeper_than_it_can_be_removed",
            "host/fs/src/tree.rs::a_tree_deeper_than_any_path_is_removed_and_nothing_outside_of_it",
        ],
    ),
    ("a huge truncate", &["files::a_file_does_not_become_huge_without_being_written"]),
    ("running out of descriptors", &["files::descriptors_run_out_for_the_guest_and_not_for_the_host"]),
    (
        "times before 1970 and far in the future",
        &[
            "files::times_that_no_file_can_have_are_refused_or_stored_as_near_as_possible",
            "files::a_guest_reads_files_of_any_time",
        ],
    ),
    (
        "memory keys",
        &["files::only_sound_keys_name_a_memory", "host/jobs/tests/memory.rs::only_valid_keys_are_accepted"],
    ),
    (
        "compaction against store",
        &[
            "files::memories_that_are_stored_while_others_are_condensed_are_whole",
            "host/jobs/tests/memory.rs::what_was_written_meanwhile_stays",
            "host/jobs/tests/memory.rs::an_edit_of_compacted_md_is_not_overwritten",
        ],
    ),
    (
        "a crash between write and unlink",
        &[
            "files::memories_of_a_host_that_died_between_write_and_unlink_are_condensed_by_the_next",
            "host/jobs/tests/memory.rs::a_crash_between_write_and_unlink_is_made_good_by_the_next_compaction",
        ],
    ),
];

const OUTPUT: &[(&str, &[&str])] = &[
    (
        "stdout, stderr and log floods",
        &[
            "output::a_flood_on_stdout_is_cut",
            "output::a_flood_on_stderr_is_cut",
            "output::a_flood_of_log_lines_is_cut",
            "output::a_flood_of_log_lines_before_there_is_a_job_is_cut",
        ],
    ),
    ("newlines and terminal escapes in log lines", &["output::a_log_line_is_one_line_and_cannot_move_a_cursor"]),
    ("in summaries", &["output::a_summary_cannot_forge_what_a_terminal_shows"]),
    ("in questions and decisions", &["output::questions_and_decisions_cannot_forge_what_a_terminal_shows"]),
    (
        "in reasons and refusals",
        &[
            "output::the_reason_of_a_failure_cannot_forge_what_a_terminal_or_the_host_s_log_shows",
            "output::a_refusal_cannot_forge_what_the_host_s_log_shows",
        ],
    ),
    ("in descriptions", &["output::a_description_cannot_forge_what_a_terminal_shows"]),
    ("error texts with host paths or backtraces", &["output::no_error_carries_a_path_of_the_host_or_a_backtrace"]),
];

const NEIGHBOURS_AND_CALLERS: &[(&str, &[&str])] = &[
    (
        "reading what another call left in memory",
        &["tests/tool_calls.rs::nothing_of_a_call_is_left_in_the_next_however_much_it_changed"],
    ),
    (
        "taking the memories of others",
        &["tests/tool_calls.rs::calls_of_a_component_with_many_memories_wait_for_those_and_nobody_waits_with_them"],
    ),
    (
        "guessing another job's or member's id",
        &[
            "neighbours::another_members_job_cannot_be_asked_for_ended_or_removed",
            "tests/jobs.rs::an_id_that_is_not_this_members_is_unknown_whatever_it_looks_like",
        ],
    ),
    (
        "a tool called after the job ended",
        &[
            "neighbours::no_tool_changes_anything_after_the_end_of_its_job",
            "host/jobs/tests/job_tools.rs::after_the_end_every_tool_answers_that_the_job_has_ended",
        ],
    ),
    (
        "a result submitted twice, or before a trap",
        &[
            "neighbours::of_two_results_the_last_is_the_result",
            "neighbours::a_result_and_a_trap_after_it_are_a_completed_job",
        ],
    ),
    (
        "memory that tries to instruct later sessions",
        &[
            "neighbours::a_memory_that_instructs_comes_with_its_origin_and_grants_nothing",
            "tests/memory.rs::the_second_job_sees_what_the_first_one_stored",
            "host/jobs/tests/memory.rs::an_origin_is_given_while_the_text_is_what_was_stored",
            "tests/isolation.rs::a_session_has_the_internal_tools_and_the_read_only_ones",
        ],
    ),
    (
        "foreign Host or Origin",
        &[
            "neighbours::a_foreign_host_or_origin_is_not_answered",
            "host/server/tests/server/http.rs::a_foreign_host_is_403_on_every_path",
            "host/server/tests/server/http.rs::a_foreign_origin_is_403",
        ],
    ),
    (
        "no token or a wrong one",
        &[
            "neighbours::without_a_good_token_nobody_is_let_in",
            "tests/auth.rs::no_token_and_any_that_is_not_good_get_one_and_the_same_answer",
        ],
    ),
    (
        "forging lines of the audit log",
        &[
            "neighbours::nobody_forges_a_line_of_the_audit_log",
            "tests/auth.rs::the_audit_log_has_who_did_what_and_nobody_can_forge_a_line",
        ],
    ),
    ("batches", &["neighbours::a_batch_beyond_the_limit_is_not_carried_out"]),
    (
        "a 1 GB body",
        &["neighbours::a_body_of_1_gb_is_refused_before_it_is_sent", "neighbours::a_body_without_end_is_cut"],
    ),
    ("slow-loris", &["neighbours::clients_that_send_a_byte_now_and_then_are_let_go"]),
    ("duplicate keys", &["neighbours::a_key_that_stands_twice_is_refused"]),
    (
        "answers that are not taken",
        &[
            "neighbours::clients_that_do_not_take_their_answers_are_let_go",
            "tests/auth.rs::a_client_that_does_not_take_its_answers_is_let_go",
        ],
    ),
    (
        "10,000 dispatches at once",
        &[
            "neighbours::ten_thousand_dispatches_at_once_are_taken_or_answered_busy",
            "neighbours::hundreds_of_jobs_that_do_not_end_leave_room_for_others",
            "neighbours::dispatches_beyond_the_limit_of_jobs_are_answered_busy",
        ],
    ),
    ("a pathological glob", &["neighbours::a_pathological_glob_is_answered_in_time"]),
    ("network without a grant", &["neighbours::without_a_grant_no_address_is_asked"]),
    (
        "IPv4-mapped IPv6, metadata addresses",
        &[
            "neighbours::where_every_host_is_granted_private_addresses_are_still_refused",
            "host/web/tests/policy.rs::a_loopback_address_is_refused_in_every_spelling",
            "host/web/tests/policy.rs::the_metadata_services_of_clouds_are_refused",
        ],
    ),
    (
        "redirects to private addresses",
        &[
            "neighbours::a_redirect_to_a_private_address_is_not_followed",
            "host/web/tests/policy.rs::each_redirect_is_checked",
            "tests/guests.rs::a_component_reads_the_web_where_the_operator_opens_it_and_no_further",
        ],
    ),
    (
        "DNS rebinding",
        &["host/web/tests/policy.rs::a_name_is_judged_by_what_it_resolves_to_when_the_connection_is_made"],
    ),
    (
        "a body that drips",
        &[
            "neighbours::a_body_that_drips_is_given_up_in_time",
            "host/web/tests/pages.rs::a_body_that_drips_and_a_server_that_is_silent_end_in_time",
        ],
    ),
    (
        "a kill at every point where the host writes, then a restart",
        &[
            "tests/crash.rs::kill_9_at_any_moment_under_load_loses_nothing",
            "host/jobs/tests/load.rs::a_crash_between_any_two_writes_leaves_a_job_that_is_repaired",
            "host/jobs/tests/load.rs::a_kill_at_any_moment_loses_no_job_and_leaves_none_stuck",
        ],
    ),
];

/// What a validator of schemas can be made to do.
const SCHEMAS: &[(&str, &[&str])] = &[
    ("a pattern of thousands of states", &["schemas::patterns_that_take_a_minute_delay_nobody_and_are_given_up"]),
    ("thousands of patterns that take long to compile", &["schemas::patterns_that_take_long_to_compile_delay_nobody"]),
    (
        "nesting, by references, to the end of a stack",
        &["schemas::a_schema_that_nests_to_the_end_of_a_stack_is_refused"],
    ),
    (
        "a reference that means another place than it says",
        &["schemas::a_reference_that_resolves_elsewhere_than_it_says_is_refused"],
    ),
    (
        "a schema whose work doubles with each level of a value",
        &[
            "schemas::a_schema_that_doubles_with_each_level_of_a_value_is_given_up",
            "schemas::a_configuration_that_its_schema_doubles_with_is_given_up",
        ],
    ),
    (
        "millions of errors",
        &[
            "schemas::a_schema_of_thousands_of_parts_for_a_value_of_thousands_is_reported_as_a_few_problems",
            "schemas::a_schema_of_thousands_of_parts_takes_no_more_memory_than_the_limit",
        ],
    ),
    ("a check that goes on when its caller has gone", &["schemas::a_check_ends_with_its_caller"]),
];

/// What documents can make the host do.
const DOCUMENTS: &[(&str, &[&str])] = &[
    (
        "a pattern that takes long on a file",
        &[
            "documents::a_search_ends_at_its_limit_and_nothing_of_it_runs_on",
            "documents::a_search_ends_with_the_job_that_asked_for_it",
            "documents::a_member_has_so_many_searches_at_a_time",
            "documents::a_search_has_no_more_memory_than_its_limit",
        ],
    ),
    (
        "an ignore file of a megabyte",
        &["documents::an_ignore_file_of_a_megabyte_hides_what_is_below_it_and_costs_little"],
    ),
    ("a line of 60 MiB", &["documents::a_line_of_60_mib_is_read_in_pieces"]),
    (
        "Markdown and HTML that take long to read",
        &[
            "documents::slow_documents_are_left_out_and_delay_nobody_who_may_not_read_them",
            "documents::reading_a_document_ends_with_the_job_that_asked_for_it",
            "documents::a_document_has_no_more_memory_than_its_limit",
            "documents::a_document_whose_reader_is_killed_is_left_out_and_not_for_what_it_costs",
            "documents::whatever_a_document_is_made_of_it_is_read_or_left_out",
        ],
    ),
    ("a page of angle brackets", &["documents::a_page_of_4_mib_of_angle_brackets_is_not_read"]),
];

/// What callers can make the host hold.
const HELD_FOR_CALLERS: &[(&str, &[&str])] = &[
    (
        "what `initialize` or `subscriptions/listen` brings, kept by many sessions and streams",
        &[
            "callers::what_initialize_sends_is_not_stored_while_its_session_lives",
            "callers::what_opens_a_stream_is_small",
        ],
    ),
    (
        "JSON that takes many times its text",
        &[
            "callers::json_that_takes_many_times_its_text_is_refused_whichever_way_it_comes",
            "callers::many_requests_at_once_hold_no_more_than_the_limit_whichever_way_they_come",
            "host/server/tests/server/http.rs::json_that_takes_exactly_the_limit_as_values_is_read_and_one_byte_more_is_32600",
        ],
    ),
    ("bodies that are announced and do not come", &["callers::bodies_that_do_not_come_leave_room_for_others"]),
    (
        "large answers that are not taken",
        &["callers::answers_that_are_not_taken_hold_no_more_than_the_limit_and_leave_room_for_others"],
    ),
    ("all listeners for one token", &["callers::one_token_does_not_take_all_subscriptions"]),
    (
        "a page's request without an Origin",
        &[
            "callers::what_a_page_of_another_site_makes_a_browser_send_is_not_answered",
            "host/server/tests/server/http.rs::what_a_page_of_another_site_makes_a_browser_send_is_403_on_every_path",
        ],
    ),
    (
        "coming by a proxy as if from this machine",
        &[
            "callers::a_caller_behind_a_proxy_needs_a_token_whatever_the_proxy_adds",
            "host/auth/src/names.rs::a_request_that_a_proxy_passed_on_is_known_by_what_the_proxy_added",
        ],
    ),
    (
        "running out of descriptors by connections",
        &[
            "tests/process.rs::a_host_without_descriptors_for_more_connections_says_so_once_and_accepts_again_when_there_are_some",
        ],
    ),
    (
        "keeping a port from the next host",
        &[
            "tests/process.rs::a_host_starts_again_on_its_port_at_once_also_after_a_crash_and_connections_that_it_closed_first",
            "tests/process.rs::of_hosts_that_start_on_one_port_at_the_same_moment_one_has_it_and_the_others_exit_with_2",
        ],
    ),
];

/// What implementations of WASI were found to get wrong in 2025 and 2026.
const ADVISORIES: &[(&str, &[&str])] = &[
    (
        "a trailing slash",
        &["files::a_trailing_slash_leads_nowhere_else", "tests/wasi.rs::a_trailing_slash_or_dots_lead_nowhere_else"],
    ),
    (
        "a symlink that leads out",
        &[
            "files::a_guest_follows_no_link_that_leads_out",
            "tests/wasi.rs::no_symlink_that_a_component_makes_leads_out_and_none_that_is_there_is_followed_out",
        ],
    ),
    (
        "writing what is read-only by truncate, hard link or rename",
        &[
            "files::what_is_read_only_is_not_changed_by_truncate_link_or_rename",
            "tests/wasi.rs::what_is_read_only_stays_so_by_truncate_link_and_rename_too",
        ],
    ),
    (
        "handles without end",
        &[
            "cpu::a_million_pollables_are_over_the_limit_of_handles",
            "memory::leaked_descriptors_are_over_the_limit_of_open_files",
        ],
    ),
    (
        "times before 1970",
        &[
            "files::times_that_no_file_can_have_are_refused_or_stored_as_near_as_possible",
            "files::a_guest_reads_files_of_any_time",
        ],
    ),
    ("a flood of empty writes", &["memory::a_flood_of_empty_writes_ends_at_the_deadline"]),
    (
        "host memory that the limits do not count",
        &[
            "memory::a_text_of_20_mib_is_over_what_a_host_call_may_copy_in_every_host_function",
            "memory::random_bytes_without_end_are_refused",
        ],
    ),
];

/// What a member's directory makes the host hold, write, or allow.
const MEMBERS: &[(&str, &[&str])] = &[
    (
        "schemas that are small as text and large in memory",
        &[
            "members::own_tools_that_the_host_stores_count_as_memory_of_their_component",
            "members::what_the_host_stores_of_listed_tools_is_bounded_by_its_parsed_size",
        ],
    ),
    (
        "lines of the host's log forged by a manifest",
        &[
            "members::a_manifest_forges_no_line_of_the_log_by_its_keys",
            "members::a_manifest_forges_no_line_of_the_log_by_its_values",
            "members::a_manifest_forges_no_line_of_the_log_by_a_schema",
        ],
    ),
    (
        "an `mcp` line that widens what its member may do",
        &[
            "members::a_manifest_gives_its_host_no_read_roots",
            "members::a_manifest_gives_its_host_no_other_policy",
            "members::a_manifest_does_not_move_the_user_s_directories",
            "members::a_manifest_starts_no_host_of_other_members",
            "tests/process.rs::an_operator_allows_a_member_s_own_mcp_line_where_the_line_cannot",
        ],
    ),
    (
        "locks taken by whoever can read",
        &[
            "members::whoever_can_read_a_member_s_directory_does_not_keep_it_from_being_served",
            "members::whoever_can_read_the_configuration_directory_does_not_keep_tokens_from_being_revoked",
            "host/jobs/tests/owner.rs::a_lock_file_that_is_removed_makes_no_second_owner",
        ],
    ),
    (
        "a clock before 1970, or after 9999",
        &[
            "host/jobs/tests/store.rs::a_clock_before_1970_or_at_its_end_makes_jobs_like_any_other",
            "host/fs/src/clock.rs::a_clock_is_valid_from_1970_to_9999",
        ],
    ),
    ("files that a kill left half-written", &["members::what_a_killed_host_left_half_written_is_removed_by_the_next"]),
    (
        "many toolboxes that loop in list-tools",
        &["members::toolboxes_whose_listings_do_not_end_do_not_block_the_loading_of_others"],
    ),
];

const PARAGRAPHS: [&[(&str, &[&str])]; 11] = [
    BYTES_AND_LOAD,
    CPU_AND_TIME,
    MEMORY,
    FILES,
    OUTPUT,
    NEIGHBOURS_AND_CALLERS,
    HELD_FOR_CALLERS,
    SCHEMAS,
    DOCUMENTS,
    ADVISORIES,
    MEMBERS,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where a test is, and its name: without a path it is of this directory.
fn place(test: &str) -> (PathBuf, &str) {
    let (file, name) = test.split_once("::").unwrap();
    let file = if file.ends_with(".rs") { file.to_owned() } else { format!("tests/hostile/{file}.rs") };
    (root().join(file), name)
}

#[test]
fn every_case_has_tests_and_each_of_them_exists() {
    for (case, tests) in PARAGRAPHS.concat() {
        assert!(!tests.is_empty(), "{case}");
        for test in tests {
            let (file, name) = place(test);
            let source = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            assert!(source.contains(&format!("fn {name}(")), "{case}: {test} does not exist");
        }
    }
}

/// Cases that no test tries on a running host with healthy jobs, and why not.
const WITHOUT_A_HOST: [(&str, &str); 8] = [
    ("a cache that others can write", "the host goes on without a cache"),
    ("reading what another call left in memory", "the sandbox alone gives the same memory to call after call"),
    ("taking the memories of others", "the sandbox alone counts how many calls wait"),
    ("DNS rebinding", "names resolve as the system says; a crate's test says it in its place"),
    ("a kill at every point where the host writes, then a restart", "nothing runs next to a host that is killed"),
    ("running out of descriptors by connections", "its neighbours are the connections that it has"),
    ("keeping a port from the next host", "nothing runs next to a host that has no port"),
    ("a clock before 1970, or after 9999", "the system has one clock for all tests, and does not let it be set so"),
];

/// The tests of this directory do what [`harness`](super::harness) does, by themselves or by a function of their file.
#[test]
fn every_case_goes_through_the_harness() {
    const THROUGH: &str = ".attacks(";
    let mut without = Vec::new();
    for (case, tests) in PARAGRAPHS.concat() {
        let own: Vec<&&str> = tests.iter().filter(|test| !test.contains(".rs::")).collect();
        if own.is_empty() {
            without.push(case);
        }
        for test in own {
            let (file, name) = place(test);
            let source = fs::read_to_string(&file).unwrap();
            let functions: Vec<(&str, &str)> =
                source.split("\nfn ").skip(1).map(|function| function.split_once('(').unwrap()).collect();
            let body = functions.iter().find(|(known, _)| *known == name).unwrap().1;
            let by_another = |(known, body): &(&str, &str)| body.contains(THROUGH).then(|| format!("{known}("));
            let through = body.contains(THROUGH)
                || functions.iter().filter_map(by_another).any(|call| body.contains(&call))
                || name == "every_host_function_is_given_something_huge";
            assert!(through, "{case}: {test} brings nothing to a host");
        }
    }
    assert_eq!(without, WITHOUT_A_HOST.map(|(case, _)| case));
}

#[test]
fn every_test_of_this_directory_is_of_some_case() {
    let named: BTreeSet<(PathBuf, &str)> =
        PARAGRAPHS.concat().iter().flat_map(|(_, tests)| *tests).map(|test| place(test)).collect();
    for file in fs::read_dir(root().join("tests/hostile")).unwrap().map(|entry| entry.unwrap().path()) {
        if ["mod.rs", "cases.rs", "harness.rs"].iter().any(|other| file.ends_with(other)) {
            continue;
        }
        let source = fs::read_to_string(&file).unwrap();
        for test in source.split("#[test]\nfn ").skip(1).map(|rest| rest.split_once('(').unwrap().0) {
            assert!(named.contains(&(file.clone(), test)), "{test} is of no case");
        }
    }
}
