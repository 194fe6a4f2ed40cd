//! Commands about projects, commissions and meetings, and their connection to the running hall.

pub(crate) mod commission;
pub(crate) mod meet;
pub(crate) mod meeting;
pub(crate) mod pr;
pub(crate) mod project;

use std::{
    env,
    io::{self, Read as _},
};

use guild_client::{Error, HallClient, Options, Reply, hall::Overrides};
use guild_config::shell_word;
use guild_hall::SOCKET;

use crate::{
    args::hall::HallArgs,
    client::URL_VARIABLE,
    failure::Failure,
    local,
    output::{one_line, print, print_json},
};

/// The maximum length of a text on a line.
pub(crate) const TEXT_CHARS: usize = 200;

/// A connection to a hall, with its name for the user.
pub(crate) struct Hall {
    pub(crate) client: HallClient,
    /// A hint for the case that it cannot be reached.
    hint: String,
}

impl Hall {
    pub(crate) fn open(args: &HallArgs) -> Result<Self, Failure> {
        let variable = || env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty() && args.home.home.is_none());
        if let Some(url) = args.url.clone().or_else(variable) {
            let client = HallClient::at_url(&url, &args.access.options(&url)?)?;
            let hint =
                format!("no host answers at {}; start one with `guild serve --hall`", one_line(&url, TEXT_CHARS));
            return Ok(Self { client, hint });
        }
        let config = local::config(&args.home.policy)?;
        let home = local::hall_home(args.home.home.as_deref(), "--home", &config)?;
        let hint = format!(
            "no host serves the hall in {}; start one with `guild serve --hall {}`, or name another with --home or \
             --url",
            home.display(),
            shell_word(&home)
        );
        Ok(Self { client: HallClient::at_socket(&home.join(SOCKET), &Options::default())?, hint })
    }

    /// The answer, or the failure for its error.
    pub(crate) fn ask<T>(&self, answer: Result<T, Error>) -> Result<T, Failure> {
        answer.map_err(|error| match error {
            Error::Unreachable { reason, .. } => Failure::error(format!("{} ({reason})", self.hint)),
            // The hall's message includes the remedy.
            Error::Http { text, .. } if !text.is_empty() => Failure::error(one_line(&text, usize::MAX)),
            Error::Http { status, .. } if status.as_u16() == 404 => {
                Failure::error("that host has no hall; `guild serve --hall` starts a host with a hall")
            }
            error => error.into(),
        })
    }
}

/// Finds the item with this id or unique prefix. `kind` has the items' name, and the prefixes that may be left out.
pub(crate) fn pick<T>(
    all: Vec<T>,
    id: impl Fn(&T) -> &str,
    wanted: &str,
    (kind, prefixes): (&str, &[&str]),
) -> Result<T, Failure> {
    let matches = |one: &T, fits: fn(&str, &str) -> bool| {
        let id = id(one);
        fits(id, wanted) || prefixes.iter().filter_map(|prefix| id.strip_prefix(prefix)).any(|id| fits(id, wanted))
    };
    let (exact, longer): (Vec<T>, Vec<T>) = all
        .into_iter()
        .filter(|one| matches(one, |id, wanted| id.starts_with(wanted)))
        .partition(|one| matches(one, |id, wanted| id == wanted));
    let mut found = if exact.is_empty() { longer } else { exact };
    let shown = one_line(wanted, 128);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(Failure::error(format!("there is no {kind} {shown}; `guild {kind} list` shows the {kind}s"))),
        (Some(last), false) => {
            found.push(last);
            let ids: Vec<_> = found.iter().map(|one| one_line(id(one), 128)).collect();
            Err(Failure::error(format!("{shown} matches each of {}; write more of the id", ids.join(", "))))
        }
    }
}

/// The limits that override a worker's own, on one line; `None` if there are none.
pub(crate) fn overridden(overrides: &Overrides) -> Option<String> {
    let Overrides { model, max_turns, max_budget_usd } = overrides;
    let parts = [
        model.as_ref().map(|model| format!("model {model}")),
        max_turns.map(|turns| format!("{turns} turns")),
        max_budget_usd.map(|usd| format!("{usd} dollars")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| one_line(&parts.join(", "), TEXT_CHARS))
}

/// Prints the result of a change of a commission or a meeting.
pub(crate) fn changed<T>(args: &HallArgs, reply: &Reply<T>, id: &str, what: &str) -> Result<(), Failure> {
    Ok(if args.json { print_json(&reply.json) } else { print(|out| writeln!(out, "{id} {what}")) }?)
}

/// A text from the command line, or from stdin.
pub(crate) fn given(text: &str, what: &str) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    let read = io::stdin().lock().read_to_string(&mut text);
    read.map_err(|e| Failure::error(format!("cannot read the {what} from stdin: {e}")))?;
    if text.trim().is_empty() { Err(Failure::error(format!("the {what} is empty"))) } else { Ok(text) }
}
