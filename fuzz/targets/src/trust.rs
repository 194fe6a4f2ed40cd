//! The files with the operator's decisions: `guild.lock`, `guild.tokens`, `guild.trust`, and signatures.

use std::{fs, os::unix::fs::PermissionsExt as _};

use guild_auth::tokens::{NewToken, PREFIX, Role, TokenFile};
use guild_config::Config;
use guild_contract::capability::grants::Pattern;
use guild_trust::{Approval, Signature, Trust};

use crate::{
    scratch::{Scratch, knows_the_secret},
    section,
};

/// Sections `guild.lock`, `guild.tokens`, `guild.trust`, `signature` and `component`.
pub fn run(data: &[u8]) {
    if knows_the_secret(data) {
        return;
    }
    let scratch = Scratch::new();
    let config = Config { directory: Some(scratch.inside()), ..Config::default() };
    for file in ["guild.lock", "guild.tokens"] {
        let text = section(data, file.as_bytes());
        if !text.is_empty() {
            let path = scratch.inside().join(file);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
    lock(&config);
    tokens(&config);
    signature(data);
    scratch.check();
}

/// A pin that is forgotten is gone, and the others do not change.
fn lock(config: &Config) {
    let approval = Approval::new(config);
    let pins = match approval.lock() {
        Ok(lock) => lock.pins.clone(),
        Err(why) => {
            assert!(!why.to_string().trim().is_empty(), "a refusal without a reason");
            assert!(approval.forget("/nowhere").is_err(), "what cannot be read is written");
            return;
        }
    };
    let Some(first) = pins.keys().next() else { return };
    assert!(approval.forget(first).unwrap());
    let mut left = Approval::new(config).lock().unwrap().pins.clone();
    assert!(!left.contains_key(first));
    left.insert(first.clone(), pins[first].clone());
    for pin in left.values_mut().zip(pins.values()) {
        // A number that is no integer may come back as its neighbour.
        pin.0.requested.resources.max_budget_usd = pin.1.requested.resources.max_budget_usd;
    }
    assert_eq!(left, pins, "another pin changed");
}

/// A token that is added is there, and is never itself in the file; one that is revoked is gone.
fn tokens(config: &Config) {
    let file = TokenFile::of(config).unwrap();
    let before = match file.read() {
        Ok(tokens) => tokens,
        Err(why) => return assert!(!why.to_string().is_empty(), "a refusal without a reason"),
    };
    let members = vec![Pattern("*".to_owned())];
    let new = NewToken { name: "new".to_owned(), role: Role::View, members, expires: None, usd_per_day: None };
    let Ok(secret) = file.add(new) else { return };
    let text = fs::read_to_string(file.path()).unwrap();
    assert!(secret.expose().starts_with(PREFIX) && !text.contains(secret.expose()), "the token is in the file");
    let names = |file: &TokenFile| file.read().unwrap().into_iter().map(|token| token.name).collect::<Vec<_>>();
    assert_eq!(names(&file).len(), before.len() + 1);
    file.revoke("new").unwrap();
    assert_eq!(names(&file), before.iter().map(|token| token.name.clone()).collect::<Vec<_>>());
}

/// A signature is good for these bytes only.
fn signature(data: &[u8]) {
    let component = section(data, b"component");
    let signature = section(data, b"signature");
    let trust = match std::str::from_utf8(&section(data, b"guild.trust")).map(Trust::parse) {
        Ok(Ok(trust)) => trust,
        Ok(Err(why)) => {
            assert!(!why.to_string().is_empty(), "a refusal without a reason");
            Trust::default()
        }
        Err(_) => Trust::default(),
    };
    if let Signature::Good { key, name, .. } = Signature::of(&component, Some(&signature), &trust) {
        assert_eq!(trust.name(&key), Some(&*name), "it is good by a key that is not trusted");
        let mut other = component.clone();
        other.push(0);
        assert!(matches!(Signature::of(&other, Some(&signature), &trust), Signature::Bad { .. }));
        assert!(matches!(Signature::of(&component, Some(&signature), &Trust::default()), Signature::Unknown));
    }
}
