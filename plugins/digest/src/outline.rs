//! What a file is called and what its parts are, and the questions that a session is asked about it.
//!
//! A runtime without a model can only look questions up, so what is asked is what the file itself says that it is about.

use crate::report::level;

/// Questions about one file at most: a runtime without a model takes no more, and one with a model reads the file.
const QUESTIONS: usize = 6;
/// Words of a paragraph that stand for it.
const OPENING_WORDS: usize = 12;
/// Characters of a title or a heading that count.
const HEADING_CHARS: usize = 120;

/// A file's title and the headings of its parts; the openings of its paragraphs where it has no headings.
#[derive(Debug, PartialEq)]
pub(crate) struct Outline {
    title: String,
    parts: Vec<String>,
}

impl Outline {
    /// Of the lines of a text, with or without Markdown's headings. None where they say nothing.
    pub(crate) fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        // The first line that says something; headings by their depth; openings by the headings before them.
        let (mut first, mut headings, mut openings) = (None, Vec::new(), Vec::new());
        let (mut fenced, mut between) = (false, true);
        for line in lines.map(str::trim) {
            let plain = plain(line);
            if line.starts_with("```") || line.starts_with("~~~") {
                fenced = !fenced;
            } else if plain.is_empty() {
                between = true;
            } else {
                first.get_or_insert_with(|| opening(&plain));
                let depth = if fenced { 0 } else { level(line) };
                if depth > 0 {
                    headings.push((depth, plain));
                    between = true;
                } else if std::mem::take(&mut between) && !fenced && !line.starts_with('|') {
                    openings.push((headings.len(), format!("“{}”", opening(&plain))));
                }
            }
        }
        let mut headings = headings.into_iter();
        let title = headings.next().map(|(_, title)| title).or(first)?;
        let headings: Vec<(usize, String)> = headings.collect();
        let parts = match headings.iter().map(|(depth, _)| *depth).min() {
            None => openings.into_iter().map(|(_, opening)| opening).collect(),
            // How it begins says what it is; then its parts, without the parts of those.
            Some(top) => {
                let begin = openings.into_iter().take(1).filter(|(before, _)| *before < 2).map(|(_, opening)| opening);
                begin.chain(headings.into_iter().filter(|(depth, _)| *depth == top).map(|(_, part)| part)).collect()
            }
        };
        Some(Self { title, parts })
    }

    /// The message that starts the session on a file.
    pub(crate) fn prompt(&self, path: &str, focus: Option<&str>) -> String {
        let title = Some(self.title.as_str()).filter(|_| self.parts.is_empty());
        let parts = focus.into_iter().chain(self.parts.iter().map(String::as_str)).chain(title);
        // The built-in search looks where a line of sources says, and nowhere else.
        let mut prompt = format!("Source: `{path}`\n\nThe file, “{}”, is to be summarised.\n", self.title);
        for part in parts.take(QUESTIONS) {
            prompt.push_str(&format!("\n- What does the file say about {part}?"));
        }
        prompt
    }
}

/// The words that a paragraph begins with.
fn opening(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().take(OPENING_WORDS).collect();
    words.join(" ").trim_end_matches(['.', ',', ':', ';', '?', '!']).to_owned()
}

/// A line without what marks it as a heading, an item or HTML, and without emphasis.
fn plain(line: &str) -> String {
    let (html, mut tag) = (line.starts_with('<'), false);
    let line = line.trim_start_matches(['#', '=', '-', '*', '+', '>', ' ']);
    let text = line.chars().filter(|c| match c {
        '<' | '>' if html => {
            tag = *c == '<';
            false
        }
        '`' | '*' | '_' => false,
        _ => !tag,
    });
    text.take(HEADING_CHARS).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str, focus: Option<&str>) -> String {
        Outline::of(text.lines()).unwrap().prompt("docs/a.md", focus)
    }

    #[test]
    fn what_is_asked_is_what_the_files_headings_name() {
        let text =
            "# Owls\n\nBirds.\n\n## `Eyes`\n\n### Colour\n\n```sh\n# not a heading\n```\n\n## Flight *at night*\n";
        assert_eq!(
            prompt(text, None),
            "Source: `docs/a.md`\n\nThe file, “Owls”, is to be summarised.\n\n- What does the file say about “Birds”?\n\
             - What does the file say about Eyes?\n- What does the file say about Flight at night?"
        );
    }

    #[test]
    fn a_focus_is_asked_for_first_and_the_questions_are_few() {
        let text = (0..9).map(|n| format!("# Part {n}\n")).collect::<String>();
        let prompt = prompt(&text, Some("cost"));
        assert_eq!(prompt.matches('?').count(), QUESTIONS);
        assert!(prompt.contains("\n\n- What does the file say about cost?\n"), "{prompt}");
    }

    #[test]
    fn paragraphs_stand_for_headings_where_there_are_none() {
        let text = "Owls hunt at night.\nThey hear well.\n\n<p>Their <b>eyes</b> are large.</p>\n";
        let prompt = prompt(text, None);
        assert!(
            prompt.contains("The file, “Owls hunt at night”, is")
                && prompt.ends_with("say about “Their eyes are large”?"),
            "{prompt}"
        );
        assert!(Outline::of("One < two".lines()).unwrap().prompt("a", None).ends_with("say about “One < two”?"));
    }

    #[test]
    fn a_file_without_any_prose_is_asked_for_by_its_first_line() {
        for text in ["| a | b |\n|---|---|\n", "```sh\nmake\n```\n"] {
            let first = if text.starts_with('|') { "| a | b |" } else { "make" };
            assert!(prompt(text, None).ends_with(&format!("What does the file say about {first}?")), "{text}");
        }
    }

    #[test]
    fn a_text_that_says_nothing_has_no_outline() {
        assert_eq!((Outline::of("".lines()), Outline::of(" \n---\n#\n".lines())), (None, None));
    }
}
