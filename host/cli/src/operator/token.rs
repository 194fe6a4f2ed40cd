//! `guild token`: manages the tokens with which callers authenticate to the hosts of this `guild.toml`.

use guild_auth::{
    audit_log::{Event, Log, Who},
    tokens::{NewToken, Token as Kept, TokenError, TokenFile},
};
use guild_contract::capability::grants::Pattern;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    args::operator::{Token, TokenAdd, TokensArgs},
    failure::Failure,
    local,
    output::{
        BAD, print, print_json,
        table::{Cell, Column, Table},
        tell,
    },
};

/// `guild token`.
pub(crate) fn token(args: Token) -> Result<(), Failure> {
    match args {
        Token::Add(args) => add(args),
        Token::List { of, json } => list(&of, json),
        Token::Revoke { name, of } => revoke(&name, &of),
    }
}

fn add(args: TokenAdd) -> Result<(), Failure> {
    let TokenAdd { name, members, role, expires, usd_per_day, of } = args;
    let members = if members.is_empty() { vec![Pattern("*".to_owned())] } else { members };
    let (file, log) = open(&of)?;
    let detail = format!("{name}: {role}");
    let secret = file.add(NewToken { name: name.clone(), role, members, expires, usd_per_day })?;
    record(log.as_ref(), "token-added", &detail);
    print(|out| writeln!(out, "{}", secret.expose()))?;
    tell(format_args!("the token {name} is in {} as its SHA-256; it is not shown again", file.path().display()));
    Ok(())
}

fn revoke(name: &str, of: &TokensArgs) -> Result<(), Failure> {
    let (file, log) = open(of)?;
    // The token is revoked even if the audit log cannot be written.
    file.revoke(name)?;
    record(log.as_ref(), "token-revoked", name);
    tell(format_args!("the token {name} is revoked"));
    Ok(())
}

/// A token in `guild token list --json`, without its hash.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    name: &'a str,
    role: &'a str,
    members: &'a [Pattern],
    created: Timestamp,
    expires: Option<Timestamp>,
    expired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    usd_per_day: Option<f64>,
}

impl<'a> Shown<'a> {
    fn of(token: &'a Kept, now: Timestamp) -> Self {
        let Kept { name, role, members, created, expires, usd_per_day, .. } = token;
        let expired = token.has_expired(now);
        Self {
            name,
            role: role.as_str(),
            members,
            created: *created,
            expires: *expires,
            expired,
            usd_per_day: *usd_per_day,
        }
    }
}

fn list(of: &TokensArgs, json: bool) -> Result<(), Failure> {
    let file = TokenFile::of(&local::config(&of.policy)?)?;
    let (tokens, now) = (file.read()?, Timestamp::now());
    if json {
        print_json(&tokens.iter().map(|token| Shown::of(token, now)).collect::<Vec<_>>())?;
        return Ok(());
    }
    if tokens.is_empty() {
        let (path, add) = (file.path().display(), file.command("add NAME"));
        tell(format_args!("there are no tokens in {path}; `{add}` creates one"));
    }
    let mut table = Table::new(["NAME", "ROLE", "MEMBERS", "CREATED", "EXPIRES", "USD/DAY"].map(Column::Left));
    for token in &tokens {
        let members: Vec<_> = token.members.iter().map(|pattern| pattern.0.as_str()).collect();
        let expires = match token.expires {
            None => Cell::both("never".to_owned(), String::new()),
            Some(expired) if token.has_expired(now) => Cell::text(&format!("expired {expired:.0}")).styled(BAD),
            Some(expires) => Cell::text(&format!("{expires:.0}")),
        };
        let created = Cell::age(Some(token.created), now);
        let (role, members) = (Cell::text(token.role.as_str()), Cell::text(&members.join(", ")));
        let usd = Cell::text(&token.usd_per_day.map(|usd| usd.to_string()).unwrap_or_default());
        table.row([Cell::text(&token.name), role, members, created, expires, usd], None);
    }
    table.print()?;
    Ok(())
}

/// The tokens, and the audit log that records changes of them.
fn open(of: &TokensArgs) -> Result<(TokenFile, Option<Log>), Failure> {
    let config = local::config(&of.policy)?;
    Ok((TokenFile::of(&config)?, Log::of(&config)))
}

fn record(log: Option<&Log>, event: &str, detail: &str) {
    if let Some(log) = log {
        let who = Who::User(rustix::process::getuid().as_raw());
        log.record(&Event { event, who, detail: Some(detail.into()), ..Event::default() });
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        Self::error(error.to_string())
    }
}
