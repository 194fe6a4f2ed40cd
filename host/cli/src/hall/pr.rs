//! `guild pr`: makes and follows pull requests of a project's `claude/main`, through a running hall.

use guild_client::hall::{CreatePullRequest, MaybeProjectParams, NewPullRequest, SyncAction, SyncProjects};
use serde_json::json;

use super::{Hall, given};
use crate::{
    args::hall::{Pr, PrCreate, PrSync},
    failure::{Failure, exit},
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
    let new = NewPullRequest { project_name: args.project.clone(), title: args.title, body };
    let reply = hall.ask(hall.client.ask::<CreatePullRequest>(&new).await)?;
    if args.hall.json {
        return Ok(print_json(&reply.json)?);
    }
    print(|out| writeln!(out, "{}", one_line(&reply.value.url, usize::MAX)))?;
    if reply.value.existed {
        tell("the pull request was already open, and now has the pushed commits; its title and body are unchanged");
    }
    let project = one_line(&args.project, usize::MAX);
    tell(format_args!("next: merge it, then `guild pr sync {project}`"));
    Ok(())
}

async fn sync(args: PrSync) -> Result<(), Failure> {
    let hall = Hall::open(&args.hall)?;
    let params = MaybeProjectParams { project_name: args.project };
    let reply = hall.ask(hall.client.ask::<SyncProjects>(&params).await)?;
    let results = &reply.value.results;
    let is_bad = |action: SyncAction| action == SyncAction::Error;
    if args.hall.json {
        print_json(&reply.json)?;
    } else {
        print(|out| {
            results.iter().try_for_each(|one| {
                let [project, reason] = [&one.project, &one.reason].map(|text| one_line(text, usize::MAX));
                let action = json!(one.action);
                let (action, style) = (action.as_str().unwrap_or_default(), state_style(is_bad(one.action)));
                writeln!(out, "{STRONG}{project}{STRONG:#}  {style}{action}{style:#}: {reason}")
            })
        })?;
    }
    match results.iter().any(|one| is_bad(one.action)) {
        true => Err(Failure::code(exit::ERROR)),
        false => Ok(()),
    }
}
