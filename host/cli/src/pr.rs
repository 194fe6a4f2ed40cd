//! `guild pr`: pull requests of a project's `claude/main`, asked of the hall that runs.

use crate::{
    failure::{Failure, exit},
    hall::{Hall, given},
    hall_args::{Pr, PrCreate, PrSync},
    output::{STRONG, one_line, print, print_json, state_style, tell},
};

/// `guild pr`.
pub(crate) async fn pr(args: Pr) -> Result<(), Failure> {
    match args {
        Pr::Create(args) => create(args).await,
        Pr::Sync(args) => sync(args).await,
    }
}

async fn create(args: PrCreate) -> Result<(), Failure> {
    let body = args.body.map_or_else(|| Ok(String::new()), |body| given(&body, "body"))?;
    let hall = Hall::open(&args.hall)?;
    let reply = hall.ask(hall.client.create_pull_request(&args.project, &args.title, &body).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    print(|out| writeln!(out, "{}", one_line(&reply.value.url, usize::MAX)))?;
    if reply.value.existed {
        tell("it was open already, and has what was pushed now; its title and body are as they were");
    }
    let project = one_line(&args.project, usize::MAX);
    tell(format_args!("next: merge it, then `guild pr sync {project}`"));
    Ok(())
}

async fn sync(args: PrSync) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let reply = hall.ask(hall.client.sync(args.project.as_deref()).await)?;
    let results = &reply.value.results;
    let is_bad = |action: &str| action == "error";
    if args.hall.json {
        print_json(&reply.json)?;
    } else {
        print(|out| {
            results.iter().try_for_each(|one| {
                let [project, action, reason] =
                    [&one.project, &one.action, &one.reason].map(|text| one_line(text, usize::MAX));
                let style = state_style(is_bad(&one.action));
                writeln!(out, "{STRONG}{project}{STRONG:#}  {style}{action}{style:#}: {reason}")
            })
        })?;
    }
    match results.iter().any(|one| is_bad(&one.action)) {
        true => Err(Failure::code(exit::ERROR)),
        false => Ok(()),
    }
}
