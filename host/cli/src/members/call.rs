//! `guild call`: calls a tool of a member's component, as an MCP client would.

use std::io::{self, Read as _};

use guild_client::{CallResult, Error};
use guild_contract::rpc::code;
use guild_roster::{HostOptions, Target};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    args::members::Call,
    failure::{Failure, exit},
    jobs::{find, hosted::Terms, worker::Worker},
    local,
    output::{one_line, print_json, print_text, tell_error},
};

/// The largest input that is read from stdin. No host accepts a larger one.
const INPUT_BYTES: u64 = 64 * 1024 * 1024;

/// Calls the tool, and returns its result.
async fn called(args: &Call) -> Result<Box<RawValue>, Failure> {
    let input = input(&args.input)?;
    let called = match open(args).await? {
        Worker::Owner(worker) => match worker.call_tool(&args.tool, &input).await {
            Ok(reply) => reply.json,
            Err(error) => {
                let is_unknown = matches!(error, Error::Refused { code: code::INVALID_PARAMS, .. });
                let tools = if is_unknown { worker.tools().await.unwrap_or_default() } else { Vec::new() };
                let names: Vec<_> = tools.into_iter().map(|tool| tool.name).collect();
                if is_unknown && !names.contains(&args.tool) {
                    return Err(unknown(args, &names));
                }
                return Err(error.into());
            }
        },
        Worker::Here { member, _host } => {
            let names = member.tool_names().await?;
            if !names.contains(&args.tool) {
                return Err(unknown(args, &names));
            }
            let called = guild_server::mcp::call_tool(&member, &args.tool, input).await?;
            serde_json::from_slice::<Box<RawValue>>(&called).map_err(unreadable)?
        }
    };
    Ok(called)
}

/// `guild call`.
pub(crate) async fn call(args: Call) -> Result<(), Failure> {
    let called = called(&args).await.map_err(|failure| with_approval(&args, failure))?;
    let CallResult { content, is_error } = serde_json::from_str(called.get()).map_err(unreadable)?;
    let text = content.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n");
    if args.json {
        print_json(&called)?;
    } else if !is_error {
        print_text(&text)?;
    }
    if is_error {
        tell_error(text);
        return Err(Failure::code(exit::ERROR));
    }
    Ok(())
}

/// Opens the member: at the host that is named, or that serves the member; or else in this process.
async fn open(args: &Call) -> Result<Worker, Failure> {
    if args.url.is_some() {
        return served(args).await;
    }
    let mut config = local::config(&args.local.policy)?;
    let directory = match local::member_directory(&args.member, &args.local, &config) {
        Ok(directory) => directory,
        Err(nowhere) if args.local.members.is_none() => return served(args).await.map_err(|_| nowhere),
        Err(nowhere) => return Err(nowhere),
    };
    config.members = local::members_directory(args.local.members.as_deref(), &config).ok();
    let member = local::member(&directory, &args.local, &config).map_err(Failure::error)?;
    let limits = config.limits.clone();
    let terms = Terms::new(&args.local, &[], None, &config)?;
    let target = Target::Member(directory.clone());
    let options = HostOptions {
        config,
        target,
        sources: Vec::new(),
        agent: None,
        hall: None,
        has_passed_socket: false,
        fakes: None,
    };
    let worker = Worker::open(&directory, options, &terms, &args.access).await?;
    worker.prepared(&member, &limits, &args.access).await?;
    Ok(worker)
}

/// Adds the command that approves the member to a failure for want of an approval, if the member is local.
fn with_approval(args: &Call, failure: Failure) -> Failure {
    let found = local::config(&args.local.policy)
        .and_then(|config| Ok((local::member_directory(&args.member, &args.local, &config)?, config)));
    match found {
        Ok((directory, config)) if args.url.is_none() => {
            local::with_approval(failure, &directory, &args.local, &config)
        }
        _ => failure,
    }
}

/// The member at a running host.
async fn served(args: &Call) -> Result<Worker, Failure> {
    let key = args.member.parse().map_err(|e| Failure::error(format!("{}: {e}", args.member)))?;
    let url = args.url.clone().unwrap_or_else(crate::client::default_url);
    let members = find::served_at(&url, Some(&key), &args.access.options(&url)?).await?;
    let one = members.into_iter().next().ok_or_else(|| Failure::error(format!("no member {key} at {url}")))?;
    Ok(Worker::Owner(one.worker))
}

fn unknown(args: &Call, names: &[String]) -> Failure {
    let (member, tool) = (one_line(&args.member, 80), one_line(&args.tool, 80));
    Failure::error(match names {
        [] => format!("{member} offers no tools"),
        names => format!("{member} has no tool {tool}; it has {}", one_line(&names.join(", "), usize::MAX)),
    })
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::error(format!("the tool's answer cannot be read: {error}"))
}

/// The input: the argument, or stdin if the argument is `-`.
fn input(argument: &str) -> Result<Map<String, Value>, Failure> {
    let mut text = argument.as_bytes().to_vec();
    if argument == "-" {
        text.clear();
        let read = io::stdin().lock().take(INPUT_BYTES + 1).read_to_end(&mut text);
        read.map_err(|e| Failure::error(format!("cannot read the input from stdin: {e}")))?;
        if text.len() as u64 > INPUT_BYTES {
            return Err(Failure::error(format!("the input from stdin is longer than {INPUT_BYTES} bytes; shorten it")));
        }
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err(Failure::error("a tool's input is a JSON object, such as {\"text\": \"b\\na\"}")),
        Err(e) => Err(Failure::error(format!("the input is not JSON: {e}"))),
    }
}
