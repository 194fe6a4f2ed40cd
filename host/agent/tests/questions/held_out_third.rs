//! Ten more, asked once when the ranking was done, and left as they came out.

use super::Asked;

pub(super) const BOOK: &[Asked] = &[
    Asked {
        question: "What is monomorphization?",
        quoted: &["_Monomorphization_ is the process of turning generic code into specific code"],
        summary: &["process of turning generic code into specific code"],
        never: &[],
    },
    Asked {
        question: "How do I format my code automatically?",
        quoted: &["cargo fmt"],
        summary: &["format"],
        never: &[],
    },
    Asked {
        question: "How many threads does cargo test use, and how do I limit them to one?",
        quoted: &["--test-threads=1"],
        summary: &["--test-threads"],
        never: &[],
    },
    Asked::unanswered("How do I read a JSON file with serde?"),
];

pub(super) const RIPGREP: &[Asked] = &[
    Asked {
        question: "What license does ripgrep have?",
        quoted: &["ripgrep is dual licensed under the"],
        summary: &["Unlicense"],
        never: &[],
    },
    Asked {
        question: "What does -F do?",
        quoted: &["`-F/--fixed-strings`: Disable regular expression matching"],
        summary: &["`-F/--fixed-strings`"],
        never: &[],
    },
    Asked::unanswered("Does ripgrep send telemetry?"),
];

pub(super) const GUILD: &[Asked] = &[
    Asked::unanswered("Which option follows symlinks when members are found?"),
    Asked {
        question: "What is the default port of guild serve?",
        quoted: &["port = 7433"],
        summary: &["7433"],
        never: &[],
    },
    Asked {
        question: "How large may a task be?",
        quoted: &["| `task_bytes` | 1 MiB |"],
        summary: &["1 MiB"],
        never: &[],
    },
];
