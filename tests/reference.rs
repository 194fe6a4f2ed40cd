//! `docs/reference/` has the keys of `guild.toml` and the limits as the code has them, and each command has a man page.
//!
//! The parts of the reference that are made here are between a line `<!-- made: NAME -->` and a line `<!-- end -->`.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use guild_config::Config;
use guild_contract::{
    Limits,
    capability::KINDS,
    limits::{Limit, Setting},
};
use serde_json::{Value, json};
use syn::{Attribute, Expr, Fields, GenericArgument, Item, ItemStruct, Lit, Meta, PathArguments, Type};

/// Where the types are that `guild.toml` is read into, and which of them have the keys outside of all tables.
const CONFIG: &str = "host/config/src";
const OUTSIDE: [&str; 2] = ["Written", "WrittenAuth"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn the_reference_has_the_keys_and_limits_of_the_code() {
    let parts = [
        ("configuration", "keys", keys(&tables())),
        ("configuration", "grants", grants()),
        ("limits", "limits", limits()),
    ];
    for (page, name, part) in parts {
        let path = root().join(format!("docs/reference/{page}.md"));
        let written = fs::read_to_string(&path).unwrap();
        let (before, rest) = written.split_once(&format!("<!-- made: {name} -->\n")).expect(name);
        let (_, after) = rest.split_once("<!-- end -->").expect(name);
        let made = format!("{before}<!-- made: {name} -->\n\n{}\n\n<!-- end -->{after}", part.trim());
        if env::var_os("UPDATE_REFERENCE").is_some() {
            fs::write(&path, &made).unwrap();
        } else {
            let differs = made.lines().zip(written.lines()).find(|(made, written)| made != written);
            assert!(
                made == written,
                "{} is not current, the first difference is {differs:?}; \
                 `UPDATE_REFERENCE=1 cargo test -p guild --test host reference::` writes it",
                path.display()
            );
        }
    }
}

#[test]
fn each_command_has_a_man_page_with_its_description() {
    let pages = tempfile::tempdir().unwrap();
    let guild = || Command::new(env!("CARGO_BIN_EXE_guild"));
    assert!(guild().arg("man").arg(pages.path()).status().unwrap().success());
    let mut count = 0;
    let mut commands = vec![vec![]];
    while let Some(command) = commands.pop() {
        let output = guild().args(&command).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let name = [&["guild".to_owned()], &command[..]].concat().join("-");
        let page = fs::read_to_string(pages.path().join(format!("{name}.1"))).expect(&name);
        let (_, description) = page.split_once(".SH DESCRIPTION\n").expect(&name);
        assert!(description.lines().next().is_some_and(|line| line.len() > 10 && !line.starts_with('.')), "{name}");
        count += 1;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names =
            listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
        let inner = names.filter(|name| *name != "help").map(str::to_owned);
        commands.extend(inner.map(|name| [&command[..], &[name]].concat()));
    }
    assert_eq!(fs::read_dir(pages.path()).unwrap().count(), count);
    assert!(count > 40, "only {count} commands");
}

#[test]
fn every_default_of_a_key_that_the_reference_names_holds() {
    let read = |text: &str| Config::parse(Path::new("/etc/guild/guild.toml"), text).map_err(|e| e.to_string());
    let mut checked = 0;
    for Table { heading, keys, .. } in tables() {
        let heading = match heading.as_str() {
            // A table that has to have more keys.
            "[cluster]" => {
                "[cluster]\nname = \"x\"\nhost = \"a\"\nkey_env = \"KEY\"\nservers = [\"nats://127.0.0.1:4222\"]\n\
                 monitor = [\"http://127.0.0.1:8222\"]"
                    .to_owned()
            }
            heading => heading.replace("PATTERN", "\"*\""),
        };
        for (key, _, about) in keys {
            let Some((_, default)) = about.rsplit_once("Default: `") else { continue };
            let value = default.strip_suffix("`.").expect(&about);
            let without = read(&format!("{heading}\n")).unwrap();
            let with = read(&format!("{heading}\n{key} = {value}\n")).unwrap();
            // Lines about how the file is written differ.
            let Config { sha256, written, .. } = without.clone();
            assert_eq!(Config { sha256, written, ..with }, without, "{key} = {value} is not the default of {heading}");
            checked += 1;
        }
    }
    assert!(checked > 25, "only {checked} keys have a default");
}

/// A table of `guild.toml`.
struct Table {
    /// As it begins in the file; empty for what is outside of all tables.
    heading: String,
    /// What it is for, as its type's documentation has it.
    about: String,
    /// Each key, the type of its value, and what it says.
    keys: Vec<(String, String, String)>,
}

/// The keys of `guild.toml`, out of the types that it is read into.
fn tables() -> Vec<Table> {
    let mut structs = BTreeMap::new();
    let mut paths = vec![root().join(CONFIG)];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
        let found =
            file.items.into_iter().filter_map(|item| if let Item::Struct(item) = item { Some(item) } else { None });
        structs.extend(found.map(|item| (item.ident.to_string(), item)));
    }
    let mut tables = vec![Table { heading: String::new(), about: String::new(), keys: Vec::new() }];
    OUTSIDE.iter().for_each(|name| add(&structs, name, 0, "", &mut tables));
    tables
}

/// Adds the fields of a type to a table, and the tables that it has as fields.
fn add(structs: &BTreeMap<String, ItemStruct>, name: &str, table: usize, path: &str, tables: &mut Vec<Table>) {
    let Fields::Named(fields) = &structs.get(name).unwrap_or_else(|| panic!("{CONFIG} has no {name}")).fields else {
        panic!("{name} has no named fields");
    };
    for field in &fields.named {
        let key = field.ident.as_ref().unwrap().to_string();
        let (kind, inner) = kind(&field.ty);
        let Some(inner_struct) = structs.get(&inner) else {
            let about = doc(&field.attrs).replace('\n', " ");
            assert!(!about.is_empty(), "{name}::{key} has no documentation");
            tables[table].keys.push((key, kind, about));
            continue;
        };
        let path = format!("{path}{key}");
        let heading = match kind.as_str() {
            kind if kind.starts_with("list") => format!("[[{path}]]"),
            kind if kind.starts_with("table of") => format!("[{path}.PATTERN]"),
            _ => format!("[{path}]"),
        };
        tables.push(Table { heading, about: doc(&inner_struct.attrs), keys: Vec::new() });
        add(structs, &inner, tables.len() - 1, &format!("{path}."), tables);
    }
}

/// What the file has for a type, and the type below all that wraps it.
fn kind(written: &Type) -> (String, String) {
    let Type::Path(path) = written else { panic!("a key's type is no path") };
    let last = path.path.segments.last().unwrap();
    let inner = || {
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { panic!("{} wraps nothing", last.ident) };
        let GenericArgument::Type(inner) = arguments.args.last().unwrap() else { panic!("{}", last.ident) };
        kind(inner)
    };
    let name = last.ident.to_string();
    match name.as_str() {
        "Option" | "Spanned" => inner(),
        "Vec" => (format!("list of {}s", inner().0), inner().1),
        "BTreeMap" => (format!("table of {}s", inner().0), inner().1),
        "String" => ("text".to_owned(), name),
        "PathBuf" => ("path".to_owned(), name),
        "bool" => ("boolean".to_owned(), name),
        "u16" | "u32" | "u64" | "f64" | "NonZeroU32" => ("number".to_owned(), name),
        "Value" => ("value".to_owned(), name),
        _ => ("table".to_owned(), name),
    }
}

/// What can be granted, and how `guild.toml` spells it.
fn grants() -> String {
    let rows = [
        ("everything", "*"),
        ("one read root, by its name; a `*` in it stands for any characters", "files:handbook"),
        (
            "hosts, by the patterns of `[web]`, out of those that `[web]` opens; names beyond ASCII in Punycode (`xn--...`)",
            "web:*.example.org",
        ),
    ];
    let rows = KINDS.iter().map(|kind| (kind.what, kind.name)).chain(rows);
    let rows: String = rows.map(|(what, name)| format!("| {what} | `{name}` |\n")).collect();
    format!("| what | in `allow` and `deny` |\n|---|---|\n{rows}")
}

/// The documentation of an item, line by line.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => match &doc.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn keys(tables: &[Table]) -> String {
    let mut text = String::new();
    for Table { heading, about, keys } in tables {
        if !heading.is_empty() {
            write!(text, "### `{heading}`\n\n{about}\n\n").unwrap();
        }
        text.push_str("| key | type | what it says |\n|---|---|---|\n");
        for (key, kind, about) in keys {
            writeln!(text, "| `{key}` | {kind} | {about} |").unwrap();
        }
        text.push('\n');
    }
    text
}

fn limits() -> String {
    let mut text =
        String::from("| name | default | for one member | a change holds | what it bounds |\n|---|---|---|---|---|\n");
    let mut fixed = String::from("| name | value | what it bounds |\n|---|---|---|\n");
    let limits = json!(Limits::default());
    for Limit { name, about, of_member, setting, .. } in Limits::ALL {
        let (value, about) = (spelled(name, &limits[name]), about.trim());
        let member = if *of_member { "yes" } else { "" };
        let change = match setting {
            Setting::Key => "at once",
            Setting::KeyAtStart => "at the next start",
            Setting::Fixed => {
                writeln!(fixed, "| `{name}` | {value} | {about} |").unwrap();
                continue;
            }
        };
        writeln!(text, "| `{name}` | {value} | {member} | {change} | {about} |").unwrap();
    }
    format!("{text}\n## Fixed limits\n\nThese are no keys. Messages name them as `limits.NAME`, too.\n\n{fixed}")
}

/// A limit, with its unit where that is not in its name.
fn spelled(name: &str, value: &Value) -> String {
    const MIB: u64 = 1024 * 1024;
    match value.as_u64() {
        Some(bytes) if name.ends_with("_bytes") && bytes % MIB == 0 => format!("{} MiB", bytes / MIB),
        Some(bytes) if name.ends_with("_bytes") => format!("{} KiB", bytes / 1024),
        Some(count) => {
            let digits = count.to_string();
            let groups: Vec<_> =
                digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
            groups.join(",")
        }
        None => format!("{:.2}", value.as_f64().unwrap()),
    }
}
