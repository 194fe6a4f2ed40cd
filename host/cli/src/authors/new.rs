//! `guild new`: writes the source of a new member.

use guild_build::Language;

use crate::{args::New, failure::Failure, output::tell};

/// `guild new`.
pub(crate) fn new(args: &New) -> Result<(), Failure> {
    guild_build::new(&args.directory, args.kind, args.lang).map_err(|e| Failure::error(e.to_string()))?;
    let shown = args.directory.display();
    tell(format_args!("{shown} has a new {}. Next:\n\n  cd {shown}", args.kind));
    for command in first_commands(args.lang) {
        tell(format_args!("  {command}"));
    }
    tell("  guild build\n\nREADME.md has the other commands.");
    Ok(())
}

/// The commands that install what a new member of this language is built with.
fn first_commands(language: Language) -> &'static [&'static str] {
    match language {
        Language::Js | Language::Ts => &["npm install"],
        Language::Python => &["python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt"],
        Language::Rust | Language::Go | Language::C => &[],
    }
}
