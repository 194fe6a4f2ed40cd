//! `cargo xtask modules`: checks that no crate of the host has a cycle among the modules of one parent, at any depth,
//! so that each module can be read after the modules that it uses.
//!
//! An arrow is a path that leads from one module, or a module in it, into another module with the same parent, in code
//! and in macros, except for tests. A name that a module re-exports or imports leads to the module that defines it. A
//! module and its inner modules count as one: they may use each other. Cargo refuses cycles between crates.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item, UseTree, visit::Visit};

use crate::steps::root;

/// The maximum number of imports from a name to the module that defines it.
const MAX_IMPORTS: usize = 8;

/// Checks all crates below `host/`. The error shows a shortest cycle for each parent, with a place for each arrow.
pub(crate) fn check() -> Result<(), String> {
    let read = |e: std::io::Error| format!("host/: {e}");
    let mut crates: Vec<PathBuf> = fs::read_dir(root().join("host"))
        .map_err(read)?
        .map(|entry| Ok(entry.map_err(read)?.path()))
        .collect::<Result<_, String>>()?;
    crates.sort();
    let mut cycles = Vec::new();
    for directory in crates.iter().filter(|path| path.join("src").is_dir()) {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        for (parent, cycle) in Crate::read(&directory.join("src"))?.cycles() {
            let parent = if parent.is_empty() { parent } else { format!("::{parent}") };
            cycles.push(format!("{name}{parent}:\n{}", cycle.join("\n")));
        }
    }
    if cycles.is_empty() {
        return Ok(());
    }
    let cycles = cycles.join("\n");
    Err(format!("modules use each other in a cycle; move what both need into a module below them.\n{cycles}"))
}

/// The names from the root of a crate to a module, or to an item in one.
type ModulePath = Vec<String>;
/// The first place at which one module uses the other, by two modules of one parent.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// A crate's modules, and the paths in them.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<ModulePath>,
    /// The path that a name was imported from, by module and name.
    imported: BTreeMap<(ModulePath, String), ModulePath>,
    uses: Vec<Use>,
}

/// A path in a module that leads to another.
struct Use {
    from: ModulePath,
    to: ModulePath,
    /// The file and line.
    place: String,
}

impl Crate {
    fn read(source: &Path) -> Result<Self, String> {
        let mut this = Self::default();
        let top = ["lib.rs", "main.rs"].into_iter().map(|file| source.join(file)).find(|file| file.is_file());
        let top = top.ok_or_else(|| format!("{}: no lib.rs and no main.rs", source.display()))?;
        this.read_module(&top, source, &[])?;
        Ok(this)
    }

    /// Reads a module's file, and those of the modules in it, which are in the directory `inner`.
    fn read_module(&mut self, file: &Path, inner: &Path, path: &[String]) -> Result<(), String> {
        let parsed = parse(file)?;
        let mut nested = Vec::new();
        Paths { file, module: path.to_vec(), nested: &mut nested, found: self }.visit_file(&parsed);
        for name in nested {
            let directory = inner.join(&name);
            let files = [inner.join(format!("{name}.rs")), directory.join("mod.rs")];
            let path = [path, &[name]].concat();
            for file in files.iter().filter(|file| file.is_file()) {
                self.read_module(file, &directory, &path)?;
            }
        }
        Ok(())
    }

    /// The module that a path leads to.
    fn resolve(&self, path: &[String], imports: usize) -> ModulePath {
        let mut module = ModulePath::new();
        for (at, name) in path.iter().enumerate() {
            let inner = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains(&inner) {
                module = inner;
                continue;
            }
            if let Some(from) = self.imported.get(&(module.clone(), name.clone())).filter(|_| imports > 0) {
                let rest = path.get(at + 1..).unwrap_or_default();
                return self.resolve(&[from, rest].concat(), imports - 1);
            }
            break;
        }
        module
    }

    /// A shortest cycle for each parent that has one, an arrow a line.
    fn cycles(&self) -> Vec<(String, Vec<String>)> {
        let mut parents: BTreeMap<&[String], Arrows> = BTreeMap::new();
        for Use { from, to, place } in &self.uses {
            let to = self.resolve(to, MAX_IMPORTS);
            let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            if let (Some(parent), Some(from), Some(to)) = (from.get(..common), from.get(common), to.get(common)) {
                let arrows = parents.entry(parent).or_default().entry(from.clone()).or_default();
                arrows.entry(to.clone()).or_insert_with(|| place.clone());
            }
        }
        let cycles = parents.into_iter().filter_map(|(parent, arrows)| Some((parent.join("::"), cycle(&arrows)?)));
        cycles.collect()
    }
}

/// A shortest cycle.
fn cycle(arrows: &Arrows) -> Option<Vec<String>> {
    arrows.keys().filter_map(|module| way_back(arrows, module)).min_by_key(Vec::len)
}

/// The shortest way from a module back to it.
fn way_back(arrows: &Arrows, start: &String) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for target in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if before.contains_key(target) {
                continue;
            }
            before.insert(target, module);
            if target != start {
                queue.push_back(target);
                continue;
            }
            let mut cycle = Vec::new();
            let mut to = start;
            loop {
                let from = before.get(to)?;
                let place = arrows.get(*from)?.get(to)?;
                cycle.push(format!("  {from} uses {to} at {place}"));
                to = from;
                if to == start {
                    break;
                }
            }
            cycle.reverse();
            return Some(cycle);
        }
    }
    None
}

fn parse(file: &Path) -> Result<syn::File, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Collects the modules, imports and paths of a file.
struct Paths<'a> {
    file: &'a Path,
    /// The module that is being read.
    module: ModulePath,
    /// Modules in files of their own that it declares.
    nested: &'a mut Vec<String>,
    found: &'a mut Crate,
}

impl Paths<'_> {
    /// A path from the root of the crate; `None` if it does not begin with `crate`, `self` or `super`.
    fn absolute(&self, names: &[String]) -> Option<ModulePath> {
        let begins = names.iter().take_while(|name| matches!(name.as_str(), "crate" | "self" | "super")).count();
        let (begin, rest) = names.split_at(begins);
        let mut path = match begin.first()?.as_str() {
            "crate" => ModulePath::new(),
            _ => self.module.clone(),
        };
        path.truncate(path.len().saturating_sub(begin.iter().filter(|name| *name == "super").count()));
        path.extend_from_slice(rest);
        Some(path)
    }

    /// Records a path with its names as written.
    fn note(&mut self, names: &[String], line: usize) {
        let Some(to) = self.absolute(names) else { return };
        let place = format!("{}:{line}", self.file.strip_prefix(root()).unwrap_or(self.file).display());
        self.found.uses.push(Use { from: self.module.clone(), to, place });
    }

    /// Macros are not parsed: any text with the form of a path counts as a path.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut names: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if names.is_empty() || colons == 2 => {
                    line = name.span().start().line;
                    names.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(colon) if colon.as_char() == ':' => colons += 1,
                other => {
                    self.note(&std::mem::take(&mut names), line);
                    colons = 0;
                    match other {
                        TokenTree::Group(group) => self.note_tokens(group.stream()),
                        TokenTree::Ident(name) => names.push(name.to_string()),
                        _ => {}
                    }
                }
            }
        }
        self.note(&names, line);
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_test) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.to_string();
        self.module.push(name.clone());
        self.found.modules.insert(self.module.clone());
        if module.content.is_some() {
            syn::visit::visit_item_mod(self, module);
        }
        self.module.pop();
        if module.content.is_none() {
            self.nested.push(name);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let line = item.use_token.span.start().line;
        let mut imports = Vec::new();
        leaves(&item.tree, &mut Vec::new(), &mut |path, name| imports.push((path.to_vec(), name.to_owned())));
        for (path, name) in imports {
            self.note(&path, line);
            // A path without a prefix may lead to an inner module.
            let from = self.absolute(&path).unwrap_or_else(|| [&self.module[..], &path].concat());
            self.found.imported.insert((self.module.clone(), name), from);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |part| part.ident.span().start().line);
        self.note(&names, line);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(called.tokens.clone());
        syn::visit::visit_macro(self, called);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Each path of a `use`, and the name that it imports.
fn leaves(tree: &UseTree, path: &mut ModulePath, each: &mut impl FnMut(&[String], &str)) {
    let (last, name) = match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            leaves(&part.tree, path, each);
            path.pop();
            return;
        }
        UseTree::Group(group) => return group.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
        UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
    };
    if last == "self" && !path.is_empty() {
        let module = path.last().cloned().unwrap_or_default();
        let name = if name == "self" { module } else { name };
        return each(path, &name);
    }
    path.push(last);
    each(path, &name);
    path.pop();
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().contains("test")
}
