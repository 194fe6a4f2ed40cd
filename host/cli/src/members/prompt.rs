//! `guild prompt`: prints instructions about the workers for a main agent.

use guild_client::{Naming, guidance};

use crate::{
    args::members::Prompt,
    failure::Failure,
    local,
    output::{one_line, print, tell},
};

/// `guild prompt`.
pub(crate) fn prompt(args: &Prompt) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let directory = local::members_directory(args.local.members.as_deref(), &config)?;
    let mut members = Vec::new();
    for found in local::discovered(&directory)? {
        match found.member {
            Ok(member) => members.push(member),
            Err(why) => tell(format_args!("{} is left out: {}", one_line(&found.path, 80), one_line(&why, 400))),
        }
    }
    match guidance::of(members.iter().map(|member| (&member.key, &member.manifest)), Naming::Servers) {
        Some(text) => print(|out| out.write_all(text.as_bytes()))?,
        None => tell(format_args!("no member in {} has the capability `worker`", directory.display())),
    }
    Ok(())
}
