//! Questions that nobody looked at while the ranking was made.

use super::Asked;

pub(super) const BOOK: &[Asked] = &[
    Asked {
        question: "What is shadowing?",
        quoted: &["first variable is _shadowed_ by the second"],
        summary: &["shadow"],
        never: &["Listing"],
    },
    Asked {
        question: "What is the difference between `const` and `let`?",
        quoted: &["You declare constants using the `const` keyword instead of the `let` keyword"],
        summary: &["const"],
        never: &[],
    },
    Asked {
        question: "How do I run only one test?",
        quoted: &["We can pass the name of any test function to `cargo test` to run only that test"],
        summary: &["cargo test"],
        never: &[],
    },
    Asked { question: "What does the `_` pattern match?", quoted: &["The pattern `_`"], summary: &["`_`"], never: &[] },
    Asked {
        question: "Is Rc<T> safe to share between threads?",
        quoted: &["`Rc<T>` is not safe to share across threads"],
        summary: &["`Rc<T>` is not safe to share across threads"],
        never: &[],
    },
    Asked {
        question: "What are the optimization levels of opt-level?",
        quoted: &["with a range of 0 to 3"],
        summary: &["0 to 3"],
        never: &[],
    },
    Asked::unanswered("How do I write a device driver for Windows?"),
];

pub(super) const RIPGREP: &[Asked] = &[
    Asked {
        question: "How do I exclude files with a glob?",
        quoted: &["rg lexopt -g '!*.toml'"],
        summary: &["glob"],
        never: &[],
    },
    Asked {
        question: "What is the difference between -i and -S?",
        quoted: &["`-i/--ignore-case`", "`-S/--smart-case`"],
        summary: &["case"],
        never: &[],
    },
    Asked { question: "Which encoding does ripgrep assume?", quoted: &["UTF-8"], summary: &["UTF-8"], never: &[] },
    Asked::unanswered("How do I search a remote host over SSH?"),
];

pub(super) const GUILD: &[Asked] = &[
    Asked {
        question: "What may be in `[member.PATTERN]` under `allow` and `deny`?",
        quoted: &["in `allow` and `deny`", "`files:handbook`"],
        summary: &[],
        never: &[],
    },
    Asked {
        question: "How long may `activate` take?",
        quoted: &["| `activate_seconds` | 10 |"],
        summary: &["10"],
        never: &[],
    },
    Asked {
        question: "What happens to running jobs after a restart on the runtime `claude`?",
        quoted: &["On `claude` it goes on only with `resume = true`"],
        summary: &["resume = true"],
        never: &[],
    },
    Asked::unanswered("How do I back up jobs to S3?"),
];
