//! Bytes and load: what a file may hold that is offered as a component.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::harness::{Case, Hostile, OnDrop, Plant, eventually, task};
use crate::support::guest::{self, Guest};

/// A file that is no component that this host loads. Its member says so, and no other notices.
fn is_not_loaded(bytes: impl Into<Vec<u8>>, why: &str) {
    Hostile::worker(bytes).attacks(|case| refused(case, why));
}

/// How the error that a caller gets begins.
const STATE: &str = "member hostile is in state error: ";

fn refused(case: &Case, why: &str) {
    case.refused(-32603, &format!("{STATE}{why}"));
}

/// An error of the file itself names no line of the manifest, which has nothing to do with it.
const NO_COMPONENT: &str = "the file is not a WebAssembly component: ";

/// One section of a component: its number, and what is in it.
fn section(number: u8, content: &[u8]) -> Vec<u8> {
    let mut section = vec![number];
    let mut size = content.len();
    while size > 0x7f {
        section.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    section.push(size as u8);
    section.extend_from_slice(content);
    section
}

/// The first bytes of each component.
const COMPONENT: [u8; 8] = [0, b'a', b's', b'm', 0x0d, 0, 1, 0];

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let whole = guest::worker("unreachable");
    is_not_loaded(&whole[..whole.len() / 2], &format!("{NO_COMPONENT}unexpected end-of-file"));
}

#[test]
fn an_empty_file_is_refused() {
    is_not_loaded([], &format!("{NO_COMPONENT}it does not begin like WebAssembly"));
}

#[test]
fn random_bytes_are_refused() {
    // As good as random, and the same each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = Vec::from(COMPONENT);
    for _ in 0..100_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        random.push(state as u8);
    }
    is_not_loaded(&random[8..], &format!("{NO_COMPONENT}it does not begin like WebAssembly"));
    Hostile::worker(random).attacks(|case| {
        let error = case.client().dispatch(task(1)).unwrap_err();
        let expected = format!("{STATE}{NO_COMPONENT}");
        assert!(error.code == -32603 && error.message.starts_with(&expected), "{error:?}");
    });
}

#[test]
fn a_core_module_is_refused() {
    let why = "it is a core module; build for wasm32-wasip2, or wrap it with `wasm-tools component new`";
    is_not_loaded(wat::parse_str("(module)").unwrap(), &format!("{NO_COMPONENT}{why}"));
}

fn entries(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A component that completes its job.
fn good() -> Vec<u8> {
    Guest::default().with("(data (i32.const 1024) \"good\")").run("(call $ok (i32.const 1024) (i32.const 4))").build()
}

#[test]
fn a_precompiled_file_is_refused() {
    let (_hostile, cache) = Hostile::autonomous(good()).with_own_cache();
    // A real one, without the digest before it.
    let precompiled = fs::read(&entries(&cache)[0]).unwrap()[32..].to_vec();
    let why = "it is precompiled; use the component itself, which the host compiles";
    is_not_loaded(precompiled, &format!("{NO_COMPONENT}{why}"));
}

#[test]
fn a_tampered_entry_of_the_compile_cache_is_never_used() {
    let (hostile, cache) = Hostile::autonomous(good()).with_own_cache();
    for entry in entries(&cache) {
        let mut bytes = fs::read(&entry).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0xcc);
        fs::write(&entry, bytes).unwrap();
    }
    hostile.attacks(|case| assert_eq!(case.completes(1).1, "good"));
}

#[test]
fn an_entry_of_the_compile_cache_from_another_engine_is_never_used() {
    let (hostile, cache) = Hostile::autonomous(good()).with_own_cache();
    // Its name says which engine it is of.
    for entry in entries(&cache) {
        let name = entry.file_stem().unwrap().to_str().unwrap();
        let (rest, last) = name.split_at(name.len() - 1);
        let foreign = format!("{rest}{}.component", if last == "0" { "1" } else { "0" });
        fs::rename(&entry, entry.with_file_name(foreign)).unwrap();
    }
    let before = entries(&cache).len();
    hostile.attacks(|case| {
        assert_eq!(case.completes(1).1, "good");
        eventually("entries of the cache", || entries(&cache).len(), |now| *now > before);
    });
}

#[test]
fn a_symlinked_entry_of_the_compile_cache_is_never_followed() {
    let (hostile, cache) = Hostile::autonomous(good()).with_own_cache();
    for entry in entries(&cache) {
        let elsewhere = cache.with_file_name(entry.file_name().unwrap());
        fs::rename(&entry, &elsewhere).unwrap();
        symlink(&elsewhere, &entry).unwrap();
    }
    hostile.attacks(|case| {
        assert_eq!(case.completes(1).1, "good");
        let replaced = || entries(&cache).iter().filter(|entry| entry.is_symlink()).count();
        eventually("links in the cache", replaced, |left| *left == 0);
    });
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let mut large = guest::worker("unreachable");
    large.extend(section(0, &[&b"\x04junk"[..], &vec![0; 200 * 1024]].concat()));
    Hostile::worker(large).limit("component_bytes = 131072").attacks(|case| {
        refused(case, "the component `guest.wasm` is larger than limits.component_bytes = 131072");
    });
}

/// A worker that has this section too, and is good but for that.
fn worker_with(section: Vec<u8>) -> Vec<u8> {
    [guest::worker("unreachable"), section].concat()
}

#[test]
fn types_that_nest_without_end_are_refused() {
    // A list of lists of lists: each type is a list of the one before it.
    let depth = 20_000;
    let outer = (0..depth).flat_map(|n| [vec![0x70], leb(n)].concat());
    let types = [leb(depth + 1), vec![0x70, 0x7d], outer.collect()].concat();
    // In a component of their own, where the first of them is type 0.
    let nested = [&COMPONENT[..], &section(7, &types)].concat();
    Hostile::worker(worker_with(section(4, &nested))).attacks(not_compiled);
}

/// Refused with the compiler's message, which says where in the file the error is.
fn not_compiled(case: &Case) {
    let error = case.client().dispatch(task(1)).unwrap_err();
    let expected = format!("{STATE}the file is no valid component: ");
    assert!(error.code == -32603 && error.message.starts_with(&expected), "{error:?}");
    assert!(!error.message.contains(case.home.path("").to_str().unwrap()), "{error:?}");
}

fn leb(mut n: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n > 0x7f {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

#[test]
fn components_that_nest_without_end_are_refused() {
    let mut nested = Vec::from(COMPONENT);
    for _ in 0..2000 {
        nested = [&COMPONENT[..], &section(4, &nested)].concat();
    }
    is_not_loaded(nested, &format!("{NO_COMPONENT}its parts are nested more than 100 deep"));
}

#[test]
fn a_hundred_thousand_functions_are_compiled_within_the_time_for_that_or_given_up() {
    let component = Guest::default().with(&"(func (result i32) (i32.const 1))".repeat(100_000)).build();
    // Memory that the compiler's threads do not free: 40 MiB of what it had.
    Hostile::worker(component).limit("compile_seconds = 1").growth_mib(96).attacks(|case| {
        refused(case, "compiling the component takes longer than limits.compile_seconds = 1");
    });
}

#[test]
fn thousands_of_memories_or_tables_are_refused() {
    for more in ["(memory 0)", "(table 0 funcref)"] {
        let module = wat::parse_str(format!("(module {})", more.repeat(5000))).unwrap();
        Hostile::worker(worker_with(section(1, &module))).attacks(not_compiled);
    }
}

#[test]
fn a_memory_of_4_gib_at_the_beginning_is_over_the_limit() {
    Hostile::worker(Guest::default().pages(65536).build())
        .attacks(|case| refused(case, "the component begins with more than limits.memory_bytes = 67108864"));
}

#[test]
fn a_table_of_ten_million_elements_at_the_beginning_is_over_the_limit() {
    Hostile::worker(Guest::default().with("(table 10000000 funcref)").build())
        .attacks(|case| refused(case, "the component begins with more than the fixed limit table_elements = 100000"));
}

#[test]
fn hundreds_of_thousands_of_globals_are_refused() {
    let component = Guest::default().with(&"(global i32 (i32.const 0))".repeat(300_000)).build();
    let why = "the component cannot be loaded: an instance of it would take more than 4194304 bytes of the host, for its globals, \
               its functions in tables and its imports";
    // Memory that the compiler's threads do not free.
    Hostile::worker(component).growth_mib(128).attacks(|case| refused(case, why));
}

#[test]
fn an_import_that_nobody_has_is_refused() {
    let component = "(component (import \"evil:exfil/socket@1.0.0\" (instance (export \"open\" (func)))))";
    let why = "guild-member.json:1: the component imports `evil:exfil/socket@1.0.0`, which this host does not have; a plugin can use \
               guild:worker and WASI 0.2 only";
    is_not_loaded(wat::parse_str(component).unwrap(), why);
}

#[test]
fn an_import_that_was_not_asked_for_is_refused() {
    let why = "guild-member.json:1: the component imports `guild:worker/web@0.1.0`, which its manifest does not ask for; add the line \
               `\"web\": {}` to `component.grants`";
    Hostile::worker(Guest::importing(&["web"]).build())
        .grants(serde_json::json!({}))
        .attacks(|case| refused(case, why));
}

/// It is linked, and every call of it says so.
#[test]
fn an_import_that_was_not_granted_answers_so() {
    let component = Guest::importing(&["job-tools"])
        .with("(data (i32.const 1024) \"x\")")
        .run("(call $job-tools.submit-result (i32.const 1024) (i32.const 1) (i32.const 8192)) (call $outcome)")
        .build();
    Hostile::autonomous(component).policy("[member.hostile]\ndeny = [\"job-tools\"]\n").attacks(|case| {
        case.fails(
            "the operator did not grant `job-tools` to this member: [member.\"hostile\"] in guild.toml denies it; \
             take \"job-tools\" out of its `deny` to allow it",
        );
    });
}

#[test]
fn another_version_of_the_package_is_refused() {
    let component = "(component (import \"guild:worker/log@0.2.0\" (instance (export \"write\" (func)))))";
    let why = "guild-member.json:1: the component uses `guild:worker/log@0.2.0`; this host has guild:worker@0.1.0, which serves \
               0.1.0 up to 0.1.0";
    is_not_loaded(wat::parse_str(component).unwrap(), why);
}

/// `start` runs when the component is instantiated, which is part of each call.
#[test]
fn a_start_function_that_loops_ends_at_the_deadline() {
    let component = Guest::default().with("(func $begin (loop (br 0))) (start $begin)").build();
    Hostile::worker(component).limit("activate_seconds = 2").attacks(|case| {
        case.refused(-32603, "`activate` did not end within its deadline of 2 s (limits.activate_seconds)");
    });
}

#[test]
fn a_start_function_that_traps_fails_the_dispatch() {
    let component = Guest::default().with("(func $begin unreachable) (start $begin)").build();
    Hostile::worker(component).attacks(|case| {
        case.refused(-32603, "the component failed in `activate`: wasm `unreachable` instruction executed");
    });
}

#[test]
fn a_realloc_function_that_loops_ends_at_the_deadline() {
    Hostile::worker(Guest::default().realloc("(loop (br 0)) unreachable").build())
        .limit("activate_seconds = 2")
        .attacks(|case| {
            case.refused(-32603, "`activate` did not end within its deadline of 2 s (limits.activate_seconds)");
        });
}

#[test]
fn a_realloc_function_that_traps_fails_the_dispatch() {
    Hostile::worker(Guest::default().realloc("unreachable").build()).attacks(|case| {
        case.refused(-32603, "the component failed in `activate`: wasm `unreachable` instruction executed");
    });
}

#[test]
fn a_realloc_function_that_lies_fails_the_dispatch() {
    let out = "the component failed in `activate`: realloc return: beyond end of memory";
    Hostile::worker(Guest::default().realloc("(i32.const -8)").build()).attacks(|case| case.refused(-32603, out));
    let odd = "the component failed in `activate`: realloc return: result not aligned";
    Hostile::worker(Guest::default().realloc("(i32.const 65537)").build()).attacks(|case| case.refused(-32603, odd));
}

#[test]
fn a_plan_that_cannot_be_carried_out_fails_the_dispatch() {
    let plans_its_own_run = Guest::default().build();
    Hostile::worker(plans_its_own_run).attacks(|case| {
        let why = "it plans to run itself, but exports no `run`";
        case.refused(-32603, &format!("the component's answer to `activate` is not valid: {why}"));
    });
}

#[test]
fn a_component_without_what_its_world_exports_is_refused() {
    let why = "guild-member.json:1: the manifest says `\"world\": \"autonomous-worker\"`, but the component does not \
        export `run`; write `\"world\": \"worker\"`, for which it was built";
    Hostile::autonomous(guest::worker("unreachable")).attacks(|case| refused(case, why));
}

/// The component's file is read once: what was hashed is what is compiled, and what runs.
#[test]
fn a_file_that_is_replaced_while_it_is_in_service_changes_nothing() {
    Hostile::autonomous(good()).attacks(|case| {
        assert_eq!(case.completes(1).1, "good");
        fs::write(case.member.join("new"), guest::autonomous("unreachable")).unwrap();
        fs::rename(case.member.join("new"), case.member.join("guest.wasm")).unwrap();
        assert_eq!(case.completes(1).1, "good");
        fs::write(case.member.join("guest.wasm"), "in place").unwrap();
        assert_eq!(case.completes(1).1, "good");
    });
}

#[test]
fn a_file_that_is_replaced_while_it_is_loaded_is_the_one_or_the_other() {
    let text = |text: &str| {
        let data = format!("(data (i32.const 1024) {text:?})");
        Guest::default().with(&data).run("(call $ok (i32.const 1024) (i32.const 4))").build()
    };
    let both = [text("heat"), text("cold")];
    let hostile = Hostile::autonomous(both[0].clone());
    let member = hostile.member();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = OnDrop(&stop);
        scope.spawn(|| {
            for bytes in both.iter().cycle() {
                // Before the member is there, and when it is gone, nothing is replaced.
                let _ = fs::write(member.join("next"), bytes);
                let _ = fs::rename(member.join("next"), member.join("guest.wasm"));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        hostile.attacks(|case| {
            let (_, first) = case.completes(1);
            assert!(["heat", "cold"].contains(&first.as_str()), "{first}");
            assert_eq!(case.completes(1).1, first, "and it stays the one that was loaded");
        });
    });
}

#[test]
fn a_component_that_is_a_link_a_pipe_or_a_directory_is_refused() {
    let plants: [(Plant, &str); 3] = [
        (
            |path| symlink("/etc/passwd", path).unwrap(),
            "`guest.wasm` is a symbolic link to /etc/passwd, which leads out of the member's directory, or cannot be followed; put the file itself there",
        ),
        (
            |path| {
                let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
                assert!(made.success());
            },
            "it is no regular file; name the component's file in `component.file` of the manifest",
        ),
        (
            |path| fs::create_dir(path).unwrap(),
            "it is a directory; name the component's file in `component.file` of the manifest",
        ),
    ];
    for (plant, why) in plants {
        Hostile::worker("").plant("guest.wasm", plant).attacks(|case| {
            refused(case, &format!("the component `guest.wasm` cannot be read: {why}"));
        });
    }
}

/// A worker whose `list-tools` is this WAT. Its member says so, and no other notices.
fn tools_are_not_listed(list: &str, why: &str) {
    let guest = Guest::default().activate("unreachable").pages(32).list(list);
    // Memory that the allocator does not return after a listing was copied up to the limit.
    let hostile = Hostile::hybrid(guest.build()).limit("list_tools_seconds = 1").growth_mib(96);
    hostile.attacks(|case| refused(case, &format!("the component's tools cannot be offered: {why}")));
}

#[test]
fn tools_whose_listing_does_not_end_are_not_offered() {
    let why = "`list-tools` did not end within its deadline of 1 s (the fixed limit list_tools_seconds)";
    tools_are_not_listed("(loop (br 0)) (i32.const 0)", why);
}

/// A listing of so many tools, all of which have the mebibyte of memory behind the first as their schema.
fn listing(tools: u32) -> String {
    format!(
        "(local $at i32) (local $end i32)
         (local.set $at (i32.const 1114112)) (local.set $end (i32.add (local.get $at) (i32.const {})))
         (i32.store (i32.const 4096) (local.get $at)) (i32.store (i32.const 4100) (i32.const {tools}))
         (memory.fill (i32.const 65536) (i32.const 32) (i32.const 1048576))
         (loop $more
           (i32.store offset=28 (local.get $at) (i32.const 65536))
           (i32.store offset=32 (local.get $at) (i32.const 1048576))
           (local.set $at (i32.add (local.get $at) (i32.const 52)))
           (br_if $more (i32.lt_u (local.get $at) (local.get $end))))
         (i32.const 4096)",
        tools * 52
    )
}

#[test]
fn tools_whose_listing_is_a_gigabyte_are_not_offered() {
    tools_are_not_listed(&listing(1024), "`list-tools` needs more than the fixed limit hostcall_bytes = 16777216");
}

#[test]
fn tools_whose_listing_is_not_there_are_not_offered() {
    let nowhere =
        "(i32.store (i32.const 4096) (i32.const 65536)) (i32.store (i32.const 4100) (i32.const -1)) (i32.const 4096)";
    let why = "the component failed in `list-tools`: list pointer/length out of bounds of memory";
    tools_are_not_listed(nowhere, why);
}

#[test]
fn tools_whose_schema_is_no_json_are_not_offered() {
    let guest = Guest::default().activate("unreachable").tools(&[("t", "{")]);
    let why = "the component's tools cannot be offered: the input schema of the tool \"t\" is no JSON object";
    Hostile::hybrid(guest.build()).attacks(|case| refused(case, why));
}
