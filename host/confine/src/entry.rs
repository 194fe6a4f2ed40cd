//! What the program's main function calls first: a child's part is chosen by its first argument.

use std::{env, process::ExitCode};

use crate::{Task, child, supervisor};

/// If this process is a child, runs the task, or supervises the program, that the command line names until the host closes
/// the connection. A program that uses any of these tasks, or supervisors, calls this before it does anything else.
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
