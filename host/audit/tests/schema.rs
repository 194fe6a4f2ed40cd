//! The published schema is the one that the types make.

use std::{fs, path::Path};

use guild_audit::Audit;

#[test]
fn the_published_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/audit.json");
    let schema = serde_json::to_string_pretty(&Audit::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &schema).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == schema,
        "docs/schema/audit.json is not current; `UPDATE_SCHEMA=1 cargo test -p guild-audit` writes it"
    );
    jsonschema::meta::validate(&Audit::schema()).unwrap();
}
