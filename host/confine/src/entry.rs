//! The entry point of child processes, which the program's main function calls first.

use std::{env, process::ExitCode};

use crate::{Task, child, supervisor};

/// If this process is a child, runs the task, or supervises the program, in its command line until the host closes the
/// connection. A program that uses tasks or supervisors must call this before anything else.
pub fn serve_if_asked(tasks: &[&Task]) -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next() {
        Some(command) if command == child::COMMAND => Some(child::serve_task(tasks, arguments)),
        Some(command) if command == supervisor::COMMAND => Some(supervisor::supervise(arguments)),
        _ => {
            child::set_served();
            None
        }
    }
}
