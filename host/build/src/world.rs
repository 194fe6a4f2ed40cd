//! The WIT world of a member.

use std::{fs, io, path::Path};

use guild_contract::manifest::{ComponentSpec, Interface, World};
use rust_embed::Embed;
use wit_parser::{Resolve, SourceMap, WorldId};

/// The package `guild:worker`.
#[derive(Embed)]
#[folder = "../../wit/"]
#[include = "*.wit"]
struct Wit;

/// The name of a member's own world.
pub(crate) const NAME: &str = "component";

/// The text of a world with these imports and the exports of `world`.
fn text(imports: impl IntoIterator<Item = Interface>, world: World) -> String {
    let mut text = format!("package guild:member;\n\nworld {NAME} {{\n");
    for interface in imports {
        text.push_str(&format!("    import guild:worker/{}@0.1.0;\n", interface.as_str()));
    }
    for export in guild_inspect::exports_of(world) {
        text.push_str(&format!("    export guild:worker/{export}@0.1.0;\n"));
    }
    text.push_str("}\n");
    text
}

/// Writes the member's world with the imports that its manifest requests, for tools that import all of a world.
pub(crate) fn write(directory: &Path, spec: &ComponentSpec) -> io::Result<()> {
    let requested = Interface::ALL.iter().copied().filter(|interface| spec.asks(interface.kind()));
    let package = directory.join("deps/worker");
    fs::create_dir_all(&package)?;
    for name in Wit::iter() {
        let file = Wit::get(&name).ok_or(io::ErrorKind::NotFound)?;
        fs::write(package.join(&*name), file.data)?;
    }
    fs::write(directory.join("world.wit"), text(requested, spec.world))
}

/// A world with every import and the exports of `world`, for modules that import only what they call.
pub(crate) fn widest(world: World) -> Result<(Resolve, WorldId), String> {
    let parse = || {
        let mut map = SourceMap::new();
        for name in Wit::iter() {
            let file = Wit::get(&name).map(|file| file.data).unwrap_or_default();
            map.push(Path::new(&*name), String::from_utf8_lossy(&file));
        }
        let mut resolve = Resolve::default();
        resolve.push_group(map.parse().map_err(|(_, e)| e.to_string())?).map_err(|e| e.to_string())?;
        let text = text(Interface::ALL.iter().copied(), world);
        let package = resolve.push_source("member.wit", &text).map_err(|e| format!("{e:#}"))?;
        let world = resolve.select_world(&[package], Some(NAME)).map_err(|e| format!("{e:#}"))?;
        Ok((resolve, world))
    };
    parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_world_has_every_import_that_a_manifest_can_ask_for() {
        for world in World::ALL {
            let (resolve, id) = widest(*world).unwrap();
            assert!(resolve.worlds[id].imports.len() >= Interface::ALL.len(), "{world:?}");
        }
    }
}
