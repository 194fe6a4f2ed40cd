//! Questions that were written, with what belongs to their answers, by reading the sources and no report.

use super::Asked;

pub(super) const BOOK: &[Asked] = &[
    Asked {
        question: "What is a slice?",
        quoted: &["_Slices_ let you reference a contiguous sequence of elements"],
        summary: &["contiguous sequence of elements"],
        never: &[],
    },
    Asked {
        question: "how to get rid of the warning about an unused variable",
        quoted: &["by starting the name of the variable with an underscore"],
        summary: &["underscore"],
        never: &[],
    },
    Asked {
        question: "error[E0499]: cannot borrow `s` as mutable more than once at a time",
        quoted: &["This error says that this code is invalid because we cannot borrow `s` as mutable more than once"],
        summary: &["mutable more than once at a time"],
        never: &[],
    },
    Asked {
        question: "Why can't I index into a String?",
        quoted: &["A final reason Rust doesn’t allow us to index into a `String`"],
        summary: &["index"],
        never: &["Listing"],
    },
    Asked {
        question: "What does #[should_panic] do?",
        quoted: &["The test passes if the code inside the function panics"],
        summary: &["panics"],
        never: &["Listing"],
    },
    Asked {
        question: "Which floating-point type is the default?",
        quoted: &["The default type is `f64`"],
        summary: &["The default type is `f64`"],
        never: &[],
    },
    Asked {
        question: "How do I withdraw a version of a crate from crates.io?",
        quoted: &["run `cargo yank`"],
        summary: &["version"],
        never: &[],
    },
    Asked::unanswered("How do I call Rust from Python?"),
];

pub(super) const RIPGREP: &[Asked] = &[
    Asked {
        question: "How do I keep ripgrep from reading a configuration file?",
        quoted: &["you can pass the `--no-config` flag"],
        summary: &["--no-config"],
        never: &[],
    },
    Asked {
        question: "$ rg -P 'a(?=b)'\nPCRE2 is not available in this build of ripgrep",
        quoted: &["If your version of ripgrep doesn't support PCRE2, then you'll get an error message"],
        summary: &["PCRE2"],
        never: &[],
    },
    Asked {
        question: "Can ripgrep change files, as with search and replace?",
        quoted: &["ripgrep is a search tool that will never touch your files"],
        summary: &[],
        never: &[],
    },
    Asked { question: "Minimum Rust version to build ripgrep", quoted: &["1.96.0"], summary: &["1.96.0"], never: &[] },
    Asked {
        question: "Why are my results in a different order each time?",
        quoted: &["printing results in a somewhat arbitrary order"],
        summary: &["order"],
        never: &[],
    },
    Asked {
        question: "What does `--colors 'match:none'` do?",
        quoted: &["will clear all colors and styles"],
        summary: &["clear"],
        never: &[],
    },
    Asked::unanswered("How do I search inside Word documents with docx2txt?"),
    Asked::unanswered("How do I undo a commit?"),
];

pub(super) const GUILD: &[Asked] = &[
    Asked {
        question: "Where is the audit log written?",
        quoted: &["without it, guild/audit.jsonl in $XDG_STATE_HOME or ~/.local/state"],
        summary: &["audit"],
        never: &[],
    },
    Asked {
        question: "How many jobs can run on a host?",
        quoted: &["| `running_jobs` | 10,000 |"],
        summary: &["10,000"],
        never: &[],
    },
    Asked {
        question: "What is guild.lock?",
        quoted: &["`guild.lock` beside `guild.toml` pins each member"],
        summary: &["pins each member"],
        never: &[],
    },
    Asked {
        question: "member researcher: already served by process 4711",
        quoted: &["\"already served by process N\""],
        summary: &["already served by process N"],
        never: &[],
    },
    Asked {
        question: "Why is keepalive_timeout shorter than client_seconds?",
        quoted: &["so that nginx does not use a connection that the host is about to close"],
        summary: &["nginx does not use a connection"],
        never: &[],
    },
    Asked {
        question: "What does this mean?\n\n```toml\n[claude]\nresume = true\n```",
        quoted: &["whether sessions go on after a restart"],
        summary: &["resume"],
        never: &[],
    },
    Asked::unanswered("How do I deploy it to Kubernetes?"),
    Asked::unanswered("Can a worker send email?"),
];
