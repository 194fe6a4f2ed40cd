//! Minimal components, made of WAT.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::Outcome;

/// A component of this module, which exports an interface of `wit/`.
pub(crate) fn component(interface: &str, module: &str) -> Outcome<Vec<u8>> {
    let mut resolve = Resolve::default();
    resolve.push_dir("wit")?;
    let world = format!("package bench:guest; world guest {{ export guild:worker/{interface}@0.1.0; }}");
    let package = resolve.push_str("guest.wit", &world)?;
    let world = resolve.select_world(&[package], Some("guest"))?;
    let mut module = wat::parse_str(module)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    Ok(ComponentEncoder::default().module(&module)?.validate(true).encode()?)
}
