//! `guild probe`: runs a member where nothing can leave, and shows what it does.

mod html;
mod text;

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use guild_probe::{Options, Probe};

use crate::{
    args::members::{Probe as Args, ProbeFinding},
    failure::{Failure, exit},
    local,
    output::{escaped_json, print, tell},
};

/// `guild probe`.
pub(crate) async fn probe(args: Args) -> Result<(), Failure> {
    let options = Options {
        config: local::config(&args.policy).map_err(|failure| Failure { code: exit::NOT_PROBED, ..failure })?,
        directory: args.directory.clone(),
        obedient: args.obedient,
        seed: args.seed,
        time: Duration::from_secs(args.seconds.into()),
    };
    let playing = |name: &str, at: usize, of: usize| {
        if !args.json {
            tell(format_args!("run {} of {of}: {name}", at + 1));
        }
    };
    let probe = guild_probe::probe(&options, playing).await.map_err(|e| invalid(e.to_string()))?;
    if let Some(path) = &args.html {
        write(path, &html::page(&probe))?;
    }
    let shown = match args.json {
        true => json(&probe)?,
        false => text::screen(&probe),
    };
    print(|out| out.write_all(shown.as_bytes()))?;
    let wanted: BTreeSet<ProbeFinding> = args.fail_on.iter().copied().collect();
    match wanted.iter().any(|finding| found(&probe, *finding) > 0) {
        true => Err(Failure::code(exit::FINDINGS)),
        false => Ok(()),
    }
}

/// The number of findings of a kind.
fn found(probe: &Probe, finding: ProbeFinding) -> usize {
    match finding {
        ProbeFinding::Canary => probe.canaries.len(),
        ProbeFinding::Difference => probe.differences.len(),
        ProbeFinding::UnexpectedRequest => probe.unexpected_requests.len(),
        ProbeFinding::PlantedFile => probe.planted.len(),
        ProbeFinding::ActiveArtifact => probe.active.len(),
    }
}

fn json(probe: &Probe) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(probe).map_err(|e| invalid(format!("cannot write JSON: {e}")))?;
    Ok(escaped_json(&text).into_owned() + "\n")
}

fn write(path: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|e| invalid(format!("{} cannot be written: {e}", path.display())))
}

/// A failure without a probe.
fn invalid(why: String) -> Failure {
    Failure { code: exit::NOT_PROBED, message: Some(why) }
}
