//! Eight that were written before covering a question was tightened, and asked once, after it.

use super::Asked;

pub(super) const BOOK: &[Asked] = &[
    Asked {
        question: "What is interior mutability?",
        quoted: &["_Interior mutability_ is a design pattern in Rust that allows you to mutate"],
        summary: &["design pattern"],
        never: &[],
    },
    Asked {
        question: "How do I ignore a test that takes long?",
        quoted: &["we add the `#[ignore]` line to the test we want to exclude"],
        summary: &["ignore"],
        never: &[],
    },
    Asked {
        question: "Which trait does a type need to be compared with `==`?",
        quoted: &["The `PartialEq` trait allows you to compare instances of a type"],
        summary: &["PartialEq"],
        never: &[],
    },
];

pub(super) const RIPGREP: &[Asked] = &[
    Asked {
        question: "What does `--replace` do?",
        quoted: &["the `--replace` flag applies *only* to the matching portion of text"],
        summary: &["--replace"],
        never: &[],
    },
    Asked { question: "How do I search only Rust files?", quoted: &["$ rg 'fn run' -trust"], summary: &[], never: &[] },
];

pub(super) const GUILD: &[Asked] = &[
    Asked {
        question: "How long may compiling a component take?",
        quoted: &["| `compile_seconds` | 120 | Compiling a component. |"],
        summary: &["120"],
        never: &[],
    },
    Asked {
        question: "How do I see what happens on the host as it happens?",
        quoted: &["guild watch"],
        summary: &["guild watch"],
        never: &[],
    },
    Asked {
        question: "How many tools may a component have?",
        quoted: &["| `tools` | 128 |"],
        summary: &["128"],
        never: &[],
    },
];
