//! Reads the questions that a task asks.

use guild_contract::text::cut;

use crate::extract::sentence_ends;

/// The most questions of one task that are looked up.
const MAX_QUESTIONS: usize = 6;
/// Characters of a question that are kept.
const MAX_CHARS: usize = 1000;

/// The questions of a task.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Inquiry {
    /// Each on one line, cut where it is very long.
    pub(crate) questions: Vec<String>,
    /// Questions of the task that are not looked up, because there are too many.
    pub(crate) left_out: Vec<String>,
    /// The files to search, all of them if it is empty. A task names them in backticks, in a line that begins with
    /// `Source:` or `Sources:`.
    pub(crate) sources: Vec<String>,
}

/// Reads a task: its questions are the sentences that end in a question mark. If there are none, the task as a whole is
/// the question.
pub(crate) fn inquiry(task: &str) -> Inquiry {
    let mut inquiry = Inquiry::default();
    let mut paragraphs = vec![String::new()];
    for line in task.lines() {
        if let Some(paths) = line.strip_prefix("Source:").or_else(|| line.strip_prefix("Sources:")) {
            inquiry.sources.extend(paths.split('`').skip(1).step_by(2).map(str::to_owned));
            continue;
        }
        let line = line.trim();
        let plain = line.trim_start_matches(['#', '>', '*', '-', '+', ' ']);
        // A list item and a heading stand alone.
        if plain.len() < line.len() || line.is_empty() {
            paragraphs.push(String::new());
        }
        if let Some(last) = paragraphs.last_mut() {
            last.push_str(plain);
            last.push(' ');
        }
    }
    for paragraph in &paragraphs {
        let mut start = 0;
        for end in sentence_ends(paragraph) {
            let sentence = paragraph.get(start..end).unwrap_or_default().trim();
            start = end;
            let question = cut(sentence, MAX_CHARS).0;
            if sentence.ends_with(['?', '？']) && !inquiry.questions.iter().any(|known| known == question) {
                inquiry.questions.push(question.to_owned());
            }
        }
    }
    if inquiry.questions.is_empty() {
        let whole = paragraphs.concat().split_whitespace().collect::<Vec<_>>().join(" ");
        inquiry.questions.push(cut(&whole, MAX_CHARS).0.to_owned());
    }
    inquiry.left_out = inquiry.questions.split_off(inquiry.questions.len().min(MAX_QUESTIONS));
    inquiry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_questions_of_a_task_are_its_sentences_with_a_question_mark() {
        let task = "Source: `docs/a.md`, `docs/b.md`\n\n# Keys\n\nBe brief. How often do\nkeys rotate? Why?\n\n- 鍵はどこですか？何の鍵？\n- Is it\n  v1.2?\n";
        let read = inquiry(task);
        assert_eq!(
            read.questions,
            ["How often do keys rotate?", "Why?", "鍵はどこですか？", "何の鍵？", "Is it v1.2?"]
        );
        assert_eq!(read.sources, ["docs/a.md", "docs/b.md"]);
        assert_eq!(inquiry("Find all\n\n- keys").questions, ["Find all keys"]);
        let many: String = (1..=8).map(|n| format!("Is it number {n}? ")).collect();
        assert_eq!((inquiry(&many).questions.len(), inquiry(&many).left_out.len()), (6, 2));
    }
}
