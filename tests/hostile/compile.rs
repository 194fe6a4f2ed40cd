//! The compiler as a victim: components that are small, and take gigabytes or minutes to compile.

use super::harness::{Case, Hostile, children};
use crate::support::{guest::Guest, host::wait_for};

/// A function in which each of so many locals is read below so many loops: for the compiler, each is a value of each loop.
fn loops_times_locals(loops: usize, locals: usize) -> String {
    let names: Vec<String> =
        (0..locals).map(|local| format!("(local.set {local} (i32.add (local.get {local}) (i32.const 1)))")).collect();
    format!(
        "(func (local{}) {}{} {})",
        " i32".repeat(locals),
        "(loop ".repeat(loops),
        names.concat(),
        "(br_if 0 (local.get 0)))".repeat(loops)
    )
}

/// A function that takes seconds to compile, and next to nothing to say.
fn long() -> String {
    let step = "local.get 0 i32.const 31 i32.mul i32.const 7 i32.rotl local.set 0\n";
    format!("(func (param i32) (result i32) {} local.get 0)", step.repeat(80_000))
}

fn refused(case: &Case, why: &str) {
    case.refused(-32603, &format!("member hostile is in state error: {why}"));
}

#[test]
fn a_component_that_takes_gigabytes_to_compile_is_given_up() {
    let component = Guest::default().activate("unreachable").with(&loops_times_locals(3000, 6000)).build();
    assert!(component.len() < 102 * 1024, "{}", component.len());
    Hostile::worker(component).limit("compile_memory_bytes = 268435456").attacks(|case| {
        refused(case, "compiling the component takes more memory than limits.compile_memory_bytes = 268435456")
    });
}

#[test]
fn a_compiler_is_ended_when_its_time_is_over() {
    let component = Guest::default().activate("unreachable").with(&long().repeat(8)).build();
    Hostile::worker(component).limit("compile_seconds = 1").attacks(|case| {
        refused(case, "compiling the component takes longer than limits.compile_seconds = 1");
        wait_for("the compiler to be gone", || children(&case.host).is_empty().then_some(()));
    });
}

#[test]
fn a_function_with_more_than_the_limits_say_is_not_compiled() {
    let nested = format!("(func {}{})", "(block ".repeat(11), ")".repeat(11));
    let component = Guest::default().activate("unreachable").with("(func (local i64 i64 i64))").with(&nested).build();
    for (limit, why) in [
        ("function_nesting = 10", "nests deeper than the fixed limit function_nesting = 10"),
        ("function_locals = 2", "has 3 local variables, more than the fixed limit function_locals = 2"),
    ] {
        Hostile::worker(component.clone()).limit(limit).attacks(|case| {
            let error = case.client().dispatch(super::harness::task(1)).unwrap_err();
            assert!(
                error.message.contains("the component cannot be compiled: function ") && error.message.ends_with(why),
                "{error:?}"
            );
        });
    }
}
