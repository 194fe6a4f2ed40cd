//! The published schema is the one that the types make.

use std::{fs, path::Path};

use guild_audit::Audit;
use serde_json::Value;

#[test]
fn the_published_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/audit.json");
    let schema = serde_json::to_string_pretty(&Audit::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &schema).unwrap();
    }
    // As values: the order of keys depends on what else is built along.
    let published: Value = serde_json::from_slice(&fs::read(&path).unwrap_or_default()).unwrap_or_default();
    assert!(
        published == serde_json::from_str::<Value>(&schema).unwrap(),
        "docs/schema/audit.json is not current; `UPDATE_SCHEMA=1 cargo test -p guild-audit` writes it"
    );
    jsonschema::meta::validate(&Audit::schema()).unwrap();
}
