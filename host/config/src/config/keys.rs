//! Checks the keys of `guild.toml`: an unknown key is an error that names the nearest known one.

use std::collections::BTreeSet;

use guild_contract::{
    Limits,
    capability::grants::Pattern,
    limits::{Limit, Setting},
    text::nearest::hint,
};
use serde::de::DeserializeOwned;
use serde_aux::serde_introspection::serde_introspect;
use toml::de::{DeTable, DeValue};

use crate::{
    agents::{WrittenApi, WrittenClaude, WrittenExtractive, WrittenPrice, WrittenScripted, spend::WrittenSpend},
    audit::WrittenAudit,
    auth::{WrittenAuth, WrittenTls},
    cluster::WrittenCluster,
    config::written::{Written, WrittenRoot},
    hall::{WrittenHall, WrittenProject},
    policy::WrittenMember,
    retention::WrittenRetention,
    value::Wrong,
    web::{WrittenSearch, WrittenWeb},
    webhooks::WrittenWebhook,
};

/// The keys of a table, with the table's heading in the file.
struct Keys {
    table: &'static str,
    /// The fields of the types that the table is read into.
    known: fn() -> Vec<&'static str>,
}

fn fields<T: DeserializeOwned>() -> Vec<&'static str> {
    serde_introspect::<T>().to_vec()
}

const ROOT: Keys = Keys { table: "", known: || [fields::<Written>(), fields::<WrittenAuth>()].concat() };
const MEMBER: Keys = Keys { table: "[member.KEY]", known: fields::<WrittenMember> };
const MEMBER_LIMITS: Keys =
    Keys { table: "[member.KEY.limits]", known: || limits(|limit| limit.of_member && limit.is_key()) };

fn limits(which: fn(&Limit) -> bool) -> Vec<&'static str> {
    Limits::ALL.iter().filter(|limit| which(limit)).map(|limit| limit.name).collect()
}

/// Tables that may occur once. An inner table follows its outer one.
const TABLES: [Keys; 13] = [
    Keys { table: "[hall]", known: fields::<WrittenHall> },
    Keys { table: "[audit]", known: fields::<WrittenAudit> },
    Keys { table: "[spend]", known: fields::<WrittenSpend> },
    Keys { table: "[retention]", known: fields::<WrittenRetention> },
    Keys { table: "[tls]", known: fields::<WrittenTls> },
    Keys { table: "[limits]", known: || limits(Limit::is_key) },
    Keys { table: "[extractive]", known: fields::<WrittenExtractive> },
    Keys { table: "[claude]", known: fields::<WrittenClaude> },
    Keys { table: "[api]", known: fields::<WrittenApi> },
    Keys { table: "[scripted]", known: fields::<WrittenScripted> },
    Keys { table: "[web]", known: fields::<WrittenWeb> },
    Keys { table: "[web.search]", known: fields::<WrittenSearch> },
    Keys { table: "[cluster]", known: fields::<WrittenCluster> },
];

/// Tables that may occur several times.
const LISTS: [Keys; 4] = [
    Keys { table: "[[roots]]", known: fields::<WrittenRoot> },
    Keys { table: "[[project]]", known: fields::<WrittenProject> },
    Keys { table: "[[prices]]", known: fields::<WrittenPrice> },
    Keys { table: "[[webhook]]", known: fields::<WrittenWebhook> },
];

/// Names under which a secret may be written into the file.
const SECRETS: [&str; 5] = ["key", "api_key", "token", "secret", "password"];

/// Refuses the first unknown key, and names the nearest known one.
pub(crate) fn check(root: &DeTable<'_>) -> Result<(), Wrong> {
    ROOT.check(root)?;
    for keys in &TABLES {
        let mut found = Some(root);
        for name in keys.name().split('.') {
            found = found.map(|parent| table(parent, name, keys.table)).transpose()?.flatten();
        }
        found.map_or(Ok(()), |found| keys.check(found))?;
    }
    for keys in &LISTS {
        let name = keys.name();
        let Some(list) = root.get(name) else { continue };
        let wrong = |span| Wrong::at(span, format!("`{name}` is a list of tables: write {} for each", keys.table));
        let DeValue::Array(tables) = list.get_ref() else { return Err(wrong(list.span())) };
        for table in tables.iter() {
            let DeValue::Table(inner) = table.get_ref() else { return Err(wrong(table.span())) };
            keys.check(inner)?;
        }
    }
    for (key, member) in table(root, "member", "[member.KEY]")?.into_iter().flatten() {
        check_member(key.get_ref(), member.get_ref()).map_err(|text| Wrong::at(key.span(), text))?;
        if let DeValue::Table(member) = member.get_ref() {
            MEMBER.check(member)?;
            if let Some(limits) = table(member, "limits", &format!("[member.{:?}.limits]", key.get_ref()))? {
                MEMBER_LIMITS.check(limits)?;
            }
        }
    }
    Ok(())
}

/// A table within a table; `written` is its heading in the file.
fn table<'a, 'i>(parent: &'a DeTable<'i>, name: &str, written: &str) -> Result<Option<&'a DeTable<'i>>, Wrong> {
    let Some(found) = parent.get(name) else { return Ok(None) };
    match found.get_ref() {
        DeValue::Table(table) => Ok(Some(table)),
        _ => Err(Wrong::at(found.span(), format!("`{name}` is a table: write {written}, and its keys below it"))),
    }
}

/// The keys that a table of the file has.
pub(crate) fn names(root: &DeTable<'_>, name: &str) -> BTreeSet<String> {
    let keys = table(root, name, name).ok().flatten().into_iter().flat_map(DeTable::keys);
    keys.map(|key| key.get_ref().to_string()).collect()
}

/// Checks `[member.KEY]`, where KEY may be a pattern; the key of a member in a group, X/Y, has to be quoted.
fn check_member(key: &str, member: &DeValue<'_>) -> Result<(), String> {
    key.parse::<Pattern>().map_err(|why| format!("member: {why}"))?;
    // The table is `[member.X.Y]`.
    let is_inner = |(name, value): &(&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        matches!(value.get_ref(), DeValue::Table(_)) && name.get_ref() != "limits"
    };
    match member {
        DeValue::Table(member) => match member.iter().find(is_inner) {
            Some((inner, _)) => {
                Err(format!("the member {key}/{inner} is written [member.\"{key}/{inner}\"]", inner = inner.get_ref()))
            }
            None => Ok(()),
        },
        _ => Err(format!("the settings of a member are a table: [member.{key}]")),
    }
}

impl Keys {
    fn name(&self) -> &'static str {
        self.table.trim_matches(['[', ']'])
    }

    fn check(&self, table: &DeTable<'_>) -> Result<(), Wrong> {
        // A table iterates by name, but the error names the first mistake in the file.
        let known = (self.known)();
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            Some(key) => Err(Wrong::at(key.span(), self.refusal(&known, key.get_ref()))),
            None => Ok(()),
        }
    }

    fn refusal(&self, known: &[&str], name: &str) -> String {
        let table = self.table;
        if SECRETS.contains(&name) && known.contains(&"key_env") {
            return format!(
                "this file must not contain a key: name the variable with the key in `key_env`, or a file in \
                 `key_file`, in {table}"
            );
        }
        let of = if table.is_empty() { String::new() } else { format!(" in {table}") };
        let limit = Limits::ALL.iter().find(|limit| limit.name == name);
        let may_be_limit = table.is_empty() || table == MEMBER.table || table.ends_with("limits]");
        if limit.is_some_and(|limit| may_be_limit && limit.setting == Setting::Fixed) {
            return format!("`{name}` is a fixed limit, which guild.toml does not set");
        }
        if limit.is_some() && table.ends_with("limits]") {
            return format!("`{name}` is a limit of the whole host; it is set in [limits]");
        }
        if let Some(limit) = limit.filter(|limit| table.is_empty() || table == MEMBER.table && limit.of_member) {
            let place = if table.is_empty() { "[limits]" } else { MEMBER_LIMITS.table };
            return format!("`{}` is a limit; it is set in {place}", limit.name);
        }
        let hint = hint(name, known.iter().copied());
        format!("unknown key `{name}`{of}; {hint}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toml::{Table, Value};

    use super::*;
    use crate::config::Config;

    /// A `guild.toml` in which every key is written.
    fn full() -> Table {
        let mut full: Table = toml::from_str(
            r#"
            members = "members"
            agent = "extractive"
            dispatch_agents = ["extractive", "claude"]
            strict_imports = true
            require_approval = true
            require_signature = true
            require_probe = true
            bind = "127.0.0.1"
            port = 8080
            require_token = true
            behind_proxy = true
            hosts = ["guild.example.org"]
            audit_log = "audit.log"
            audit_log_reads = true
            [[roots]]
            name = "book"
            path = "/srv/book"
            [hall]
            home = "hall"
            manager = "guild-master"
            delegation_depth = 2
            delegation_commissions = 10
            delegation_budget_usd = 5.0
            tidy_branches_after_days = 30
            [audit]
            relays = ["wiki.example.org"]
            [spend]
            host_usd_per_day = 20.0
            token_usd_per_day = 5.0
            [cluster]
            name = "acme"
            servers = ["tls://n1.example.org:4222"]
            monitor = ["http://n1.example.org:8222"]
            credentials = "host-a.creds"
            ca = "nats-ca.pem"
            silent_seconds = 60
            stop_seconds = 40
            queued_jobs = 1000
            key_file = "acme.key"
            host = "host-a"
            url = "https://host-a.example.org:7433"
            [retention]
            days = 90
            jobs = 1000
            bytes = 1000000
            [[project]]
            path = "/srv/book"
            push = true
            pull_requests = true
            [member."team/*"]
            agent = "claude"
            allow = ["log"]
            deny = ["web"]
            mcp = "any"
            posture = "free"
            [tls]
            certificate = "cert.pem"
            key = "key.pem"
            [extractive]
            sessions = 7
            [scripted]
            sessions = 5
            script = "tests/a.toml"
            case = "a"
            [claude]
            sessions = 2
            command = "claude"
            model = "sonnet"
            builtin_tools = true
            permissions = "dontAsk"
            resume = true
            silence_seconds = 60
            environment = ["LANG"]
            [api]
            sessions = 2
            provider = "anthropic"
            base_url = "https://example.org"
            model = "m"
            key_file = "key"
            max_output_tokens = 100
            request_seconds = 60
            retries = 2
            unknown_cost_tokens = 1000
            [[webhook]]
            url = "https://example.com/guild"
            key_file = "/etc/guild/webhook"
            events = ["job.failed"]
            members = ["team/*"]

            [[prices]]
            model = "m"
            input = 3.0
            cached_input = 0.3
            cache_write = 3.75
            output = 15.0
            above_input_tokens = 200000
            [web]
            allow = ["docs.rs"]
            deny = ["x.docs.rs"]
            private = ["intranet.example.org"]
            robots = true
            page_bytes = 1000
            page_seconds = 10
            [web.search]
            provider = "brave"
            url = "https://example.org"
            key_file = "key"
            "#,
        )
        .unwrap();
        let limits = Table::try_from(Limits::default()).unwrap();
        let own = |(name, value): (&String, &Value)| {
            super::limits(|limit| limit.of_member).contains(&name.as_str()).then(|| (name.clone(), value.clone()))
        };
        let own: Table = limits.iter().filter_map(own).collect();
        full["member"]["team/*"].as_table_mut().unwrap().insert("limits".to_owned(), own.into());
        full.insert("limits".to_owned(), limits.into());
        full
    }

    #[test]
    fn a_fixed_limit_is_refused_as_one() {
        let refused = |name: &str| MEMBER_LIMITS.refusal(&["memory_bytes"], name);
        assert_eq!(refused("tables"), "`tables` is a fixed limit, which guild.toml does not set");
        assert!(refused("connections").contains("a limit of the whole host"));
        assert!(refused("memory_byte").contains("`memory_bytes`"));
        // A debug build accepts them all the same.
        assert_eq!(limits(Limit::is_key).contains(&"tables"), cfg!(debug_assertions));
    }

    fn parse(table: &Table) -> Result<Config, String> {
        let text = toml::to_string(table).unwrap();
        Config::parse(Path::new("/etc/guild/guild.toml"), &text).map_err(|error| error.to_string())
    }

    /// The paths of all tables below a value, each a list of keys and indexes.
    fn tables(value: &Value, way: &[String], found: &mut Vec<Vec<String>>) {
        let below: Vec<(String, &Value)> = match value {
            Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
            _ => return,
        };
        if value.is_table() {
            found.push(way.to_vec());
        }
        for (step, value) in below {
            tables(value, &[way, &[step]].concat(), found);
        }
    }

    fn at<'a>(value: &'a mut Value, way: &[String]) -> &'a mut Value {
        way.iter().fold(value, |value, step| match step.parse::<usize>() {
            Ok(at) => &mut value[at],
            Err(_) => &mut value[step],
        })
    }

    #[test]
    fn a_list_stands_for_a_table_nowhere() {
        let full = full();
        parse(&full).unwrap();
        let mut ways = Vec::new();
        tables(&full.clone().into(), &[], &mut ways);
        // The file itself cannot be a list.
        ways.retain(|way| !way.is_empty());
        assert_eq!(ways.len(), 20, "{ways:?}");
        for way in ways {
            let mut changed = Value::from(full.clone());
            let place = at(&mut changed, &way);
            let values: Vec<Value> = place.as_table().unwrap().values().cloned().collect();
            *place = values.into();
            let error = parse(changed.as_table().unwrap()).map(|_| ()).unwrap_err();
            assert!(error.contains("table"), "{way:?}: {error}");
        }
    }

    #[test]
    fn a_value_that_is_no_table_is_refused_in_its_line_in_each_way_to_write_it() {
        for (text, expected) in [
            ("\nhall = [\"home\", \"master\"]", ":2: `hall` is a table: write [hall], and its keys below it"),
            ("\nclaude = [1]", ":2: `claude` is a table: write [claude]"),
            ("web = { search =\n[\"brave\"] }", "`search` is a table: write [web.search]"),
            ("[[hall]]\nhome = \"x\"", ":1: `hall` is a table"),
            ("[[limits]]\nrunning_jobs = 1", ":1: `limits` is a table"),
            ("[[web.search]]\nprovider = \"brave\"", ":1: `search` is a table"),
            ("[roots]\npath = \"x\"", ":1: `roots` is a list of tables: write [[roots]] for each"),
            ("roots = [{ path = \"x\" },\n[\"y\", \"z\"]]", ":2: `roots` is a list of tables"),
            ("prices = [[\"m\", 1.0]]", ":1: `prices` is a list of tables"),
            ("member = []", ":1: `member` is a table: write [member.KEY]"),
            ("[[member.a]]\nagent = \"claude\"", ":1: the settings of a member are a table: [member.a]"),
            ("[member]\na = [\"claude\"]", ":2: the settings of a member are a table: [member.a]"),
            ("[member.a]\nlimits = [1]", ":2: `limits` is a table: write [member.\"a\".limits]"),
            // A table where another value belongs.
            ("port = {}", ":1: `port` is a table; it must be a whole number from 0 to 65535"),
            ("[agent]\nx = 1", ":1: `agent` is a table; it must be a text in quotation marks"),
            ("hosts = [{}]", ":1: `hosts[0]` is a table; it must be a text in quotation marks"),
            ("[claude]\nsessions = []", ":2: `claude.sessions` is a list; it must be a whole number"),
        ] {
            let parsed = Config::parse(Path::new("/etc/guild/guild.toml"), text);
            let error = parsed.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_full_file_of_this_test_has_every_key() {
        let full = full();
        let has = |table: &Table, keys: &Keys| {
            // Only one of two exclusive keys is written.
            let missing: Vec<_> =
                (keys.known)().into_iter().filter(|key| !table.contains_key(*key) && *key != "key_env").collect();
            assert!(missing.is_empty(), "{}: {missing:?}", keys.table);
        };
        has(&full, &ROOT);
        let whole = Value::from(full.clone());
        for keys in &TABLES {
            let table = keys.name().split('.').fold(&whole, |table, name| &table[name]);
            has(table.as_table().unwrap(), keys);
        }
        LISTS.iter().for_each(|keys| has(full[keys.name()][0].as_table().unwrap(), keys));
        has(full["member"]["team/*"].as_table().unwrap(), &MEMBER);
        has(full["member"]["team/*"]["limits"].as_table().unwrap(), &MEMBER_LIMITS);
    }
}
