//! The commands that talk to a running host.

use std::io::{self, Read};

use guild_client::{Detail, DispatchParams, ListParams, WorkerHandle};
use jiff::Timestamp;

use crate::{
    args::{Dispatch, Endpoint, Job, List, WorkArgs},
    failure::Failure,
    output::{one_line, print, print_json, print_report, tell, write_list, write_status},
};

/// How long a description becomes that is taken from the task.
const DESCRIPTION_CHARS: usize = 80;

/// `guild dispatch`.
pub(crate) async fn dispatch(args: Dispatch) -> Result<(), Failure> {
    let agent = args.agent.map(|agent| agent.to_string());
    let asked = WorkArgs { input: args.work.input.or(args.config), ..args.work };
    let params = DispatchParams { agent, ..work(&args.task, asked)? };
    let reply = connect(&args.endpoint)?.dispatch(&params).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| writeln!(out, "{}", reply.value.job_id))?;
    }
    Ok(())
}

/// `guild list`.
pub(crate) async fn list(args: List) -> Result<(), Failure> {
    // People are always shown the description; JSON is what was asked for.
    let detailed = args.detailed || !args.endpoint.json;
    let params = ListParams { detail: detailed.then_some(Detail::Detailed), filter: args.filter };
    let reply = connect(&args.endpoint)?.list(&params).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else if reply.value.jobs.is_empty() {
        tell("no jobs");
    } else {
        print(|out| write_list(out, &reply.value, args.detailed))?;
    }
    Ok(())
}

/// `guild status`.
pub(crate) async fn status(args: Job) -> Result<(), Failure> {
    let reply = connect(&args.endpoint)?.status(&args.id).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| write_status(out, &reply.value, Timestamp::now()))?;
    }
    Ok(())
}

/// `guild result`.
pub(crate) async fn result(args: Job) -> Result<(), Failure> {
    let reply = connect(&args.endpoint)?.result(&args.id).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
        return Ok(());
    }
    print_report(&reply.value.output)?;
    for artifact in reply.value.artifacts.iter().flatten() {
        tell(format_args!("artifact: {}", one_line(artifact, usize::MAX)));
    }
    Ok(())
}

/// `guild cancel`.
pub(crate) async fn cancel(args: Job) -> Result<(), Failure> {
    let reply = connect(&args.endpoint)?.cancel(&args.id).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| writeln!(out, "{} is {}", reply.value.job_id, reply.value.status))?;
    }
    Ok(())
}

/// `guild delete`.
pub(crate) async fn delete(args: Job) -> Result<(), Failure> {
    let reply = connect(&args.endpoint)?.delete(&args.id).await?;
    if args.endpoint.json {
        print_json(&reply.json)?;
    } else {
        print(|out| writeln!(out, "{} is deleted", reply.value.job_id))?;
    }
    Ok(())
}

/// What is asked for, out of the command line and, where the task is `-`, stdin.
pub(crate) fn work(task: &str, args: WorkArgs) -> Result<DispatchParams, Failure> {
    let task = match task {
        "-" => {
            let mut text = String::new();
            let read = io::stdin().lock().read_to_string(&mut text);
            read.map_err(|e| Failure::error(format!("cannot read the task from stdin: {e}")))?;
            text
        }
        text => text.to_owned(),
    };
    let first_line = task.lines().map(str::trim).find(|line| !line.is_empty());
    let Some(first_line) = first_line else {
        return Err(Failure::error("the task is empty"));
    };
    let description = args.description.unwrap_or_else(|| one_line(first_line, DESCRIPTION_CHARS));
    Ok(DispatchParams { description, task, config: args.input, agent: None })
}

fn connect(endpoint: &Endpoint) -> Result<WorkerHandle, Failure> {
    endpoint.access.client(&endpoint.url, endpoint.member.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_task_describes_it() {
        let nothing = || WorkArgs { description: None, input: None };
        assert_eq!(work("\n  What is\town?\nMore.", nothing()).unwrap().description, "What is own?");
        assert_eq!(work(&"x".repeat(99), nothing()).unwrap().description.chars().count(), DESCRIPTION_CHARS);
        assert!(work(" \n", nothing()).is_err());
    }
}
