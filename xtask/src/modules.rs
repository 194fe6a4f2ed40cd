//! No crate of the host has a cycle among its top-level modules: each can be read after those that it uses.
//!
//! An arrow is every path that leads from one module into another, in code and in macros, but for tests. A name that the
//! crate's root re-exports is an arrow to the module that defines it. Cargo refuses cycles between crates.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item, UseTree, visit::Visit};

use crate::steps::root;

/// Checks all crates below `host/`. The error shows a cycle of each that has one, with a place for each arrow.
pub(crate) fn check() -> Result<(), String> {
    let read = |e: std::io::Error| format!("host/: {e}");
    let mut crates: Vec<PathBuf> = fs::read_dir(root().join("host"))
        .map_err(read)?
        .map(|entry| Ok(entry.map_err(read)?.path()))
        .collect::<Result<_, String>>()?;
    crates.sort();
    let mut cycles = Vec::new();
    for source in crates.iter().map(|path| path.join("src")).filter(|source| source.is_dir()) {
        if let Some(cycle) = Crate::read(&source)?.cycle() {
            let name = source.strip_prefix(root()).unwrap_or(&source).display();
            cycles.push(format!("{name}:\n{}", cycle.join("\n")));
        }
    }
    if cycles.is_empty() {
        return Ok(());
    }
    let cycles = cycles.join("\n");
    Err(format!("modules use each other in a cycle; move what both need into a module below them.\n{cycles}"))
}

/// A crate's arrows.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<String>,
    /// What the root re-exports, by the module that it comes from.
    exported: BTreeMap<String, String>,
    /// By the two modules: the first place of such an arrow.
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Crate {
    fn read(source: &Path) -> Result<Self, String> {
        let mut this = Self::default();
        let top = ["lib.rs", "main.rs"].into_iter().map(|file| source.join(file)).find(|file| file.is_file());
        let top = top.ok_or_else(|| format!("{}: no lib.rs and no main.rs", source.display()))?;
        for item in &parse(&top)?.items {
            match item {
                Item::Mod(module) if module.content.is_none() => drop(this.modules.insert(module.ident.to_string())),
                Item::Use(exported) => leaves(&exported.tree, &mut Vec::new(), &mut |path| {
                    let path: Vec<_> = path.iter().filter(|part| !matches!(part.as_str(), "crate" | "self")).collect();
                    if let [module, .., name] = path.as_slice() {
                        this.exported.insert((*name).clone(), (*module).clone());
                    }
                }),
                _ => {}
            }
        }
        for module in this.modules.clone() {
            let inner = source.join(&module);
            let files = [source.join(format!("{module}.rs")), inner.join("mod.rs")];
            for file in files.iter().filter(|file| file.is_file()) {
                this.read_module(file, &inner, std::slice::from_ref(&module))?;
            }
        }
        Ok(this)
    }

    /// Reads a module's file, and those of the modules in it, which lie in `inner`.
    fn read_module(&mut self, file: &Path, inner: &Path, path: &[String]) -> Result<(), String> {
        let parsed = parse(file)?;
        let mut nested = Vec::new();
        let mut paths = Paths { path: path.to_vec(), nested: &mut nested, found: Vec::new() };
        paths.visit_file(&parsed);
        let found = paths.found;
        let Some(own) = path.first() else { return Ok(()) };
        for (name, line) in found {
            let target = if self.modules.contains(&name) { Some(&name) } else { self.exported.get(&name) };
            let Some(target) = target.filter(|target| *target != own && self.modules.contains(*target)) else {
                continue;
            };
            let place = format!("{}:{line}", file.strip_prefix(root()).unwrap_or(file).display());
            self.arrows.entry(own.clone()).or_default().entry(target.clone()).or_insert(place);
        }
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

    /// A shortest cycle, an arrow a line.
    fn cycle(&self) -> Option<Vec<String>> {
        let cycles = self.arrows.keys().filter_map(|module| self.way_back(module));
        cycles.min_by_key(Vec::len)
    }

    /// The shortest way from a module back to it.
    fn way_back(&self, start: &String) -> Option<Vec<String>> {
        let mut before: BTreeMap<&String, &String> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(module) = queue.pop_front() {
            for target in self.arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
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
                    let place = self.arrows.get(*from)?.get(to)?;
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
}

fn parse(file: &Path) -> Result<syn::File, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))
}

/// The paths of a file that lead out of its top-level module: the first name behind `crate`.
struct Paths<'a> {
    /// Where it is: the modules from the root to this one.
    path: Vec<String>,
    /// Modules in files of their own that it declares.
    nested: &'a mut Vec<String>,
    found: Vec<(String, usize)>,
}

impl Paths<'_> {
    /// Takes note of a path, as its names are written.
    fn note(&mut self, names: &[String], line: usize) {
        let mut names = names.iter().map(String::as_str).peekable();
        let mut depth = match names.peek() {
            Some(&"crate") => 0,
            Some(&"super" | &"self") => self.path.len(),
            _ => return,
        };
        while let Some(name) = names.next_if(|name| matches!(*name, "crate" | "self" | "super")) {
            depth -= usize::from(name == "super" && depth > 0);
        }
        if let (0, Some(name)) = (depth, names.next()) {
            self.found.push((name.to_owned(), line));
        }
    }

    /// Macros are not parsed: what is spelled as a path in them is one.
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
        if module.content.is_none() {
            self.nested.push(name);
            return;
        }
        self.path.push(name);
        syn::visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let line = item.use_token.span.start().line;
        let mut paths = Vec::new();
        leaves(&item.tree, &mut Vec::new(), &mut |path| paths.push(path.to_vec()));
        paths.iter().for_each(|path| self.note(path, line));
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

/// Each path of a `use`.
fn leaves(tree: &UseTree, path: &mut Vec<String>, each: &mut impl FnMut(&[String])) {
    let name = match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            leaves(&part.tree, path, each);
            path.pop();
            return;
        }
        UseTree::Group(group) => return group.items.iter().for_each(|tree| leaves(tree, path, each)),
        UseTree::Name(name) => name.ident.to_string(),
        UseTree::Rename(name) => name.ident.to_string(),
        UseTree::Glob(_) => "*".to_owned(),
    };
    path.push(name);
    each(path);
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
