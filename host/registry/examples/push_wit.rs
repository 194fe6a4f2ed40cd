//! Pushes a WIT package to a registry, in the form that `wkg` reads: `cargo xtask wit REF`.

#![allow(clippy::print_stdout, reason = "the output is for the person who runs the command")]

use std::{error::Error, path::Path};

use guild_registry::{Artifact, Reference, Registry};
use wit_parser::Resolve;

/// Pushes the package of a directory: the first argument. The second argument is the reference, whose tag is the
/// version of the package if it has none.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(reference)) = (arguments.next(), arguments.next()) else {
        return Err("usage: push_wit DIR REF".into());
    };
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(&directory))?;
    let name = &resolve.packages.get(package).ok_or("the directory has no package")?.name;
    let version = name.version.as_ref().ok_or("the package has no version")?.to_string();
    let artifact = Artifact::of_wit(wit_component::encode(&resolve, package)?, &version)?;
    let reference: Reference = reference.parse()?;
    let reference = if reference.tag.is_some() { reference } else { reference.with_tag(&version) };
    Registry::of(&reference)?.push(&reference, &artifact).await?;
    println!("{reference}@{}", artifact.digest);
    Ok(())
}
