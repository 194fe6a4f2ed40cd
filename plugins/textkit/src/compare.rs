//! `diff`.

use guild_plugin_sdk::toolbox::ToolError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::{
    ChangeTag, DiffOp,
    algorithms::{Capture, Compact, Replace, myers},
    group_diff_ops,
    udiff::UnifiedHunkHeader,
};

/// Lines of each text: what is kept of them while they are compared has to fit a component's memory.
const MAX_LINES: usize = 100_000;

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The text as it was.
    #[schemars(length(max = 500_000))]
    before: String,
    /// The text as it is now.
    #[schemars(length(max = 500_000))]
    after: String,
    /// Lines to show around each change.
    #[serde(default = "three")]
    #[schemars(range(max = 100))]
    context: usize,
}

fn three() -> usize {
    3
}

/// The difference.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Difference {
    /// Whether the texts are the same.
    identical: bool,
    /// Lines that came.
    added: usize,
    /// Lines that went. A line that changed went and came.
    removed: usize,
    /// A unified diff; empty where the texts are the same.
    diff: String,
}

pub(crate) fn diff(input: Input) -> Result<Difference, ToolError> {
    let before = lines("before", &input.before)?;
    let after = lines("after", &input.after)?;
    let ops = operations(&before, &after);
    let (mut added, mut removed) = (0, 0);
    for (tag, of, now) in ops.iter().map(DiffOp::as_tag_tuple) {
        if tag != similar::DiffTag::Equal {
            removed += of.len();
            added += now.len();
        }
    }
    let diff = group_diff_ops(ops, input.context).iter().map(|hunk| unified(hunk, &before, &after)).collect();
    Ok(Difference { identical: input.before == input.after, added, removed, diff })
}

/// A text's lines, each with its end.
fn lines<'a>(field: &str, text: &'a str) -> Result<Vec<&'a str>, ToolError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if lines.len() > MAX_LINES {
        return Err(ToolError::InvalidInput(format!("`{field}` has more than {MAX_LINES} lines")));
    }
    Ok(lines)
}

/// What makes one of the other, by Myers' algorithm with git's heuristics. `TextDiff` would do it too, and have five more
/// algorithms in the component.
fn operations(before: &[&str], after: &[&str]) -> Vec<DiffOp> {
    let mut found = Compact::new(Replace::new(Capture::new()), before, after);
    let Ok(()) = myers::diff(&mut found, before, 0..before.len(), after, 0..after.len());
    found.into_inner().into_inner().into_ops()
}

/// Changes that are near each other, with the lines around them.
fn unified(hunk: &[DiffOp], before: &[&str], after: &[&str]) -> String {
    let mut text = format!("{}\n", UnifiedHunkHeader::new(hunk));
    for (tag, lines) in hunk.iter().flat_map(|op| op.iter_slices(before, after)) {
        let sign = match tag {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        for line in lines {
            text.push(sign);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tests::call;

    #[test]
    fn a_difference_is_counted_and_shown() {
        let (before, after) = ("a\nb\nc\nd\n", "a\nB\nc\nd\ne");
        let expected = json!({
            "identical": false, "added": 2, "removed": 1,
            "diff": "@@ -2 +2 @@\n-b\n+B\n@@ -4,0 +5 @@\n+e\n\\ No newline at end of file\n"
        });
        assert_eq!(call("diff", json!({"before": before, "after": after, "context": 0})).unwrap(), expected);
    }

    #[test]
    fn the_same_text_has_no_difference() {
        let same = json!({"identical": true, "added": 0, "removed": 0, "diff": ""});
        assert_eq!(call("diff", json!({"before": "a\r\nb", "after": "a\r\nb"})).unwrap(), same);
    }

    #[test]
    fn large_texts_that_share_little_are_compared_in_time() {
        let lines = "\n".repeat(100_001);
        assert!(
            call("diff", json!({"before": "", "after": lines})).unwrap_err().contains("`after` has more than 100000")
        );
        let text = |of: usize| (0..20_000).map(|n| format!("{}\n", n * of % 977)).collect::<String>();
        let begin = std::time::Instant::now();
        let output = call("diff", json!({"before": text(7), "after": text(11)})).unwrap();
        assert_eq!(output["identical"], false);
        assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
    }
}
