//! The questions by which the ranking was made, as readers ask them.

use super::Asked;

pub(super) const BOOK: &[Asked] = &[
    Asked {
        question: "What are the rules of ownership?",
        quoted: &["Each value in Rust has an _owner_."],
        summary: &[
            "Each value in Rust has an _owner_.",
            "There can only be one owner at a time.",
            "When the owner goes out of scope, the value will be dropped.",
        ],
        never: &["you’ll learn", "Keep these rules in mind"],
    },
    Asked {
        question: "What does the ? operator do?",
        quoted: &["If the value of the `Result` is an `Ok`, the value inside the `Ok` will get returned"],
        summary: &["The `?` placed after a `Result` value is defined to work"],
        never: &[],
    },
    Asked {
        question: "How many &mut references to a value can I have at a time?",
        quoted: &["If you have a mutable reference to a value, you can have no other references to that value"],
        summary: &["mutable reference"],
        never: &["Listing"],
    },
    Asked {
        question: "What are the rules of references?",
        quoted: &["At any given time, you can have _either_ one mutable reference"],
        summary: &[
            "At any given time, you can have _either_ one mutable reference",
            "References must always be valid.",
        ],
        never: &["Let’s recap"],
    },
    Asked {
        question: "What does `..=` mean in a pattern?",
        quoted: &["The `..=` syntax allows us to match to an inclusive range of values."],
        summary: &["inclusive range"],
        never: &[],
    },
    Asked {
        question: "Which integer types does Rust have?",
        quoted: &["| 8-bit | `i8` | `u8` |"],
        summary: &[],
        never: &["we’ll"],
    },
    Asked { question: "What does error E0382 mean?", quoted: &["error[E0382]"], summary: &[], never: &[] },
    Asked {
        question: "What are the lifetime elision rules?",
        quoted: &["The first rule is that the compiler assigns a lifetime parameter", "The third rule is that"],
        summary: &["The first rule is that", "The second rule is that", "The third rule is that"],
        never: &["Listing"],
    },
    Asked {
        question: "How do I create a new project with Cargo?",
        quoted: &["$ cargo new hello_cargo"],
        summary: &["cargo new"],
        never: &["let’s look"],
    },
    Asked {
        question: "What is a dangling reference?",
        quoted: &["a pointer that references a location in memory that may have been given to someone else"],
        summary: &["dangling"],
        never: &["Listing"],
    },
    Asked {
        question: "What can I do in unsafe Rust that I can't do in safe Rust?",
        quoted: &["1. Dereference a raw pointer.", "1. Access fields of `union`s."],
        summary: &["Dereference a raw pointer.", "Access fields of `union`s."],
        never: &[],
    },
    Asked {
        question: "When does Rust do deref coercion?",
        quoted: &["From `&T` to `&U` when `T: Deref<Target=U>`"],
        summary: &["&T"],
        never: &[],
    },
    Asked {
        question: "What does the `move` keyword do before a closure?",
        quoted: &["By adding the `move` keyword before the closure, we force the closure to take ownership"],
        summary: &["`move`"],
        never: &[],
    },
    Asked {
        question: "What is the difference between Box<T>, Rc<T> and RefCell<T>?",
        quoted: &["`Rc<T>` enables multiple owners of the same data"],
        summary: &["`Rc<T>` enables multiple owners of the same data"],
        never: &[],
    },
    Asked {
        question: "How do I show a backtrace of a panic?",
        quoted: &["RUST_BACKTRACE"],
        summary: &["RUST_BACKTRACE"],
        never: &[],
    },
    Asked {
        question: "What does `?` do, and what does `..=` do?",
        quoted: &[
            "If the value of the `Result` is an `Ok`, the value inside the `Ok` will get returned",
            "The `..=` syntax allows us to match to an inclusive range of values.",
        ],
        summary: &["inclusive range", "`?`"],
        never: &["<!--", "]["],
    },
    Asked::unanswered("What is `::<>`?"),
    Asked::unanswered("How do I connect to a PostgreSQL database?"),
    Asked::unanswered("What does the `goto` statement do?"),
    Asked::unanswered("What does `--emit=llvm-ir` print?"),
];

pub(super) const RIPGREP: &[Asked] = &[
    Asked {
        question: "How do I search hidden files?",
        quoted: &["Hidden files and directories can be searched with the `--hidden` (`-.` for short) flag."],
        summary: &["--hidden"],
        never: &[],
    },
    Asked {
        question: "What does -uuu do?",
        quoted: &["`-uu` will search hidden files and directories and `-uuu` will search binary files"],
        summary: &["`-uuu`"],
        never: &[],
    },
    Asked {
        question: "Which option shows lines around a match?",
        quoted: &["`-C/--context`: Show the lines surrounding a match."],
        summary: &["--context"],
        never: &[],
    },
    Asked { question: "What is --pre?", quoted: &["--pre"], summary: &["--pre"], never: &[] },
    Asked {
        question: "Where does ripgrep look for its configuration file?",
        quoted: &["set the `RIPGREP_CONFIG_PATH` environment variable"],
        summary: &["RIPGREP_CONFIG_PATH"],
        never: &[],
    },
    Asked {
        question: "What does ripgrep not search by default?",
        quoted: &["2. Hidden files and directories.", "4. Symbolic links aren't followed."],
        summary: &["Hidden files and directories.", "Symbolic links aren't followed."],
        never: &[],
    },
    Asked {
        question: "How can I get results in a consistent order?",
        quoted: &["The only way to make the order of results consistent is to ask ripgrep to sort the output."],
        summary: &["sort"],
        never: &[],
    },
    Asked {
        question: "Compiled regex exceeds size limit of 10485760 bytes",
        quoted: &["Compiled regex exceeds size limit of 10485760 bytes."],
        summary: &["pre-set limit"],
        never: &[],
    },
    Asked {
        question: "When is a file considered binary?",
        quoted: &["a file is considered \"binary\" if and only if it contains a `NUL` byte"],
        summary: &["NUL"],
        never: &[],
    },
    Asked {
        question: "Which compression formats does -z support?",
        quoted: &["`-z/--search-zip`"],
        summary: &["gzip"],
        never: &[],
    },
    Asked {
        question: "How do I add a file type of my own?",
        quoted: &["--type-add"],
        summary: &["--type-add"],
        never: &[],
    },
    Asked::unanswered("How do I open a match in a graphical window?"),
    Asked::unanswered("What does --teleport do?"),
];

pub(super) const GUILD: &[Asked] = &[
    Asked {
        question: "What does --expires do?",
        quoted: &["`--expires`: a time from now, or a date."],
        summary: &["`--expires`"],
        never: &[],
    },
    Asked {
        question: "What is the default of `memory_bytes`?",
        quoted: &["| `memory_bytes` | 64 MiB |"],
        summary: &["64 MiB"],
        never: &[],
    },
    Asked {
        question: "Which exit code says that the port is taken?",
        quoted: &["Exit code 2: another process has the port."],
        summary: &["Exit code 2"],
        never: &[],
    },
    Asked {
        question: "How do I grant a member one read root only?",
        quoted: &["`files:handbook`"],
        summary: &[],
        never: &[],
    },
    Asked {
        question: "Which runtimes are there, and what do they need?",
        quoted: &["| extractive | the built-in search"],
        summary: &["extractive"],
        never: &[],
    },
    Asked {
        question: "How do I add Guild to Claude Code?",
        quoted: &["claude mcp add guild"],
        summary: &[],
        never: &[],
    },
    Asked {
        question: "Which jobs does guild prune remove?",
        quoted: &["`guild prune` removes jobs that ended more than 30 days ago"],
        summary: &["more than 30 days ago"],
        never: &[],
    },
    Asked {
        question: "What does status 429 mean?",
        quoted: &["| 429 | too many requests with this token"],
        summary: &["too many requests"],
        never: &[],
    },
    Asked {
        question: "How do I rotate the audit log?",
        quoted: &["To rotate it, rename it: the next line goes into a new file."],
        summary: &["rename it"],
        never: &[],
    },
    Asked {
        question: "What does `--follow` do?",
        quoted: &["guild logs JOB --follow"],
        summary: &["--follow"],
        never: &[],
    },
    Asked::unanswered("How do I export metrics to Prometheus?"),
    Asked::unanswered("What does `--turbo` do?"),
];
