//! `guild new`: writes the source of a new member.

use crate::{args::authors::New, failure::Failure, output::tell};

/// `guild new`.
pub(crate) fn new(args: &New) -> Result<(), Failure> {
    guild_build::new(&args.directory, args.kind, args.lang)?;
    let shown = guild_config::shell_word(&args.directory);
    let setup = guild_build::setup(args.lang);
    tell(format_args!(
        "{shown} has a new {}. Next:\n\n  cd {shown}\n  {setup}\n  guild build\n\nREADME.md there has the other commands.",
        args.kind
    ));
    Ok(())
}
