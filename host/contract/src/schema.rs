//! JSON Schemas of the shapes on the wire, made from their types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The schema of a shape as it is written, by itself: a field that is always there is required, also where it may be
/// null. Draft 2020-12.
pub fn of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rpc::{Listed, StatusView};

    #[test]
    fn what_is_always_written_is_required() {
        let mut required: Vec<String> = serde_json::from_value(of::<StatusView>()["required"].take()).unwrap();
        required.sort_unstable();
        let nine = [
            "completedAt",
            "decisions",
            "description",
            "error",
            "jobId",
            "questions",
            "startedAt",
            "status",
            "summary",
        ];
        assert_eq!(required, nine);
        assert_eq!(of::<Listed>()["required"], json!(["jobId", "status"]));
    }
}
