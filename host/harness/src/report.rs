//! Reports the outcomes of cases: for people, as cargo does, and as JUnit XML.

use std::{fmt::Write as _, time::Duration};

use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};
use serde_json::Value;
use similar::TextDiff;

use crate::{
    expect::{Kind, Mismatch},
    suite::{Case, Played, TestFile, Verdict},
};

/// The most lines of an unexpected text that are shown.
const SHOWN_LINES: usize = 40;

/// A report of played cases.
pub struct Report<'a> {
    /// The member.
    pub member: &'a str,
    /// The test files.
    pub files: &'a [TestFile],
    /// The outcomes of the cases.
    pub played: &'a [Played],
    /// The duration of all cases.
    pub took: Duration,
}

/// The exit codes of `guild test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// All cases passed.
    Passed,
    /// A case failed.
    Failed,
    /// A case cannot be played.
    Invalid,
}

impl Report<'_> {
    fn case(&self, played: &Played) -> Option<(&TestFile, &Case)> {
        let file = self.files.get(played.file)?;
        Some((file, file.cases.get(played.case)?))
    }

    /// The conclusion over all cases.
    pub fn conclusion(&self) -> Conclusion {
        let any = |is: fn(&Verdict) -> bool| self.played.iter().any(|played| is(&played.verdict));
        if any(|verdict| matches!(verdict, Verdict::Invalid(_))) {
            Conclusion::Invalid
        } else if any(|verdict| !matches!(verdict, Verdict::Passed)) {
            Conclusion::Failed
        } else {
            Conclusion::Passed
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = format!("running {} of {}\n\n", counted(self.played.len(), "case"), self.member);
        let mut failures = String::new();
        for played in self.played {
            let Some((file, case)) = self.case(played) else { continue };
            let name = format!("{}: {}", file.stem(), case.name);
            let word = match &played.verdict {
                Verdict::Passed => "ok",
                Verdict::Invalid(_) => "INVALID",
                Verdict::Failed(..) | Verdict::ExpectsNothing(_) => "FAILED",
            };
            let _ = writeln!(text, "test {name} ... {word}");
            if let Some(why) = failure(&played.verdict) {
                let place = format!("{}:{}", file.path.display(), case.line);
                let _ = write!(failures, "---- {name} ({place})\n{why}\n\n");
            }
        }
        if !failures.is_empty() {
            let _ = write!(text, "\nfailures:\n\n{}", failures.trim_end());
            text.push('\n');
        }
        let passed = self.played.iter().filter(|played| matches!(played.verdict, Verdict::Passed)).count();
        let failed = self.played.len() - passed;
        let result = if failed == 0 { "ok" } else { "FAILED" };
        let took = self.took.as_secs_f64();
        let _ = writeln!(text, "\ntest result: {result}. {passed} passed; {failed} failed; finished in {took:.2}s");
        text
    }

    /// The report as JUnit XML: a suite for each file.
    ///
    /// # Errors
    ///
    /// Returns the error of the writer.
    pub fn junit(&self) -> std::io::Result<String> {
        let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let (tests, failures, errors) = tally(self.played.iter());
        let time = seconds(self.took);
        let all = xml.create_element("testsuites").with_attributes([
            ("name", self.member),
            ("tests", &tests),
            ("failures", &failures),
            ("errors", &errors),
            ("time", &time),
        ]);
        all.write_inner_content(|xml| {
            for (position, file) in self.files.iter().enumerate() {
                let of_file = self.played.iter().filter(|played| played.file == position);
                let (tests, failures, errors) = tally(of_file.clone());
                let suite = xml.create_element("testsuite").with_attributes([
                    ("name", file.stem().as_str()),
                    ("tests", &tests),
                    ("failures", &failures),
                    ("errors", &errors),
                    ("time", &seconds(of_file.clone().map(|played| played.took).sum())),
                ]);
                suite.write_inner_content(|xml| {
                    of_file.clone().try_for_each(|played| self.junit_case(xml, file, played))
                })?;
            }
            Ok(())
        })?;
        Ok(String::from_utf8_lossy(&xml.into_inner()).into_owned() + "\n")
    }

    fn junit_case(&self, xml: &mut Writer<Vec<u8>>, file: &TestFile, played: &Played) -> std::io::Result<()> {
        let Some(case) = file.cases.get(played.case) else { return Ok(()) };
        let (stem, path) = (file.stem(), file.path.display().to_string());
        let element = xml.create_element("testcase").with_attributes([
            ("name", legal(&case.name).as_str()),
            ("classname", &legal(&stem)),
            ("file", &legal(&path)),
            ("line", &case.line.to_string()),
            ("time", &seconds(played.took)),
        ]);
        let Some(why) = failure(&played.verdict) else { return element.write_empty().map(drop) };
        let kind = if matches!(played.verdict, Verdict::Invalid(_)) { "error" } else { "failure" };
        let first = why.lines().next().unwrap_or_default();
        let written = element.write_inner_content(|xml| {
            let outcome = xml.create_element(kind).with_attribute(("message", legal(first).as_str()));
            outcome.write_text_content(BytesText::new(&legal(&why))).map(drop)
        });
        written.map(drop)
    }
}

/// The numbers of all cases, of failed cases, and of cases that cannot be played.
fn tally<'a>(played: impl Iterator<Item = &'a Played>) -> (String, String, String) {
    let (mut tests, mut failures, mut errors) = (0, 0, 0);
    for Played { verdict, .. } in played {
        tests += 1;
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(..) | Verdict::ExpectsNothing(_) => failures += 1,
            Verdict::Invalid(_) => errors += 1,
        }
    }
    (tests.to_string(), failures.to_string(), errors.to_string())
}

fn seconds(took: Duration) -> String {
    format!("{:.3}", took.as_secs_f64())
}

/// A text with only the characters that XML can have.
fn legal(text: &str) -> String {
    let is_legal = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    text.chars().map(|c| if is_legal(c) { c } else { '\u{fffd}' }).collect()
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The reason that a case did not pass.
fn failure(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Passed => None,
        Verdict::Invalid(why) => Some(why.clone()),
        Verdict::ExpectsNothing(_) => {
            Some("the case expects nothing; write `expect`, or let --update write the outcome".to_owned())
        }
        Verdict::Failed(mismatches, _) => {
            Some(mismatches.iter().map(describe).collect::<Vec<_>>().join("\n").trim_end().to_owned())
        }
    }
}

/// A mismatch for people: what differs, and the lines that do.
pub fn describe(mismatch: &Mismatch) -> String {
    match &mismatch.kind {
        Kind::Parts { why, found } => format!("{mismatch} {why}; it is:\n{}", indented(found)),
        Kind::Differs { expected, found } => match (expected, found) {
            (Value::Null, found) => format!("{mismatch} was not expected; it is:\n{}", indented(&text(found))),
            (expected, Value::Null) => format!("{mismatch} did not come; expected:\n{}", indented(&text(expected))),
            (expected, found) => format!("{mismatch} differs:\n{}", difference(&text(expected), &text(found))),
        },
    }
}

/// A text as it is, and another value as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

fn indented(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().take(SHOWN_LINES).map(|line| format!("    {line}")).collect();
    let more = text.lines().count().saturating_sub(SHOWN_LINES);
    if more > 0 {
        lines.push(format!("    ({more} more lines)"));
    }
    lines.join("\n")
}

/// The differing lines of two texts, with some lines of context.
fn difference(expected: &str, found: &str) -> String {
    let difference = TextDiff::from_lines(expected, found);
    let mut text = String::new();
    for hunk in difference.unified_diff().context_radius(2).iter_hunks() {
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches('\n');
            let _ = writeln!(text, "    {}{line}", change.tag());
        }
    }
    text.trim_end().to_owned()
}
