//! Questions that the sources do not answer, though they have many of the words: apart from one another, or of
//! something else.

pub(super) const BOOK: &[&str] = &[
    "Does Rust have named arguments?",
    "How do I call Rust from Python?",
    "Does Rust support tail call optimization?",
    "How do I run the garbage collector by hand?",
    "How do I give a function parameter a default value?",
    "How do I read a key press from the terminal?",
];

pub(super) const RIPGREP: &[&str] = &[
    "Can ripgrep search files by their modification time?",
    "How do I search the history of a Git repository?",
    "Can I pipe the results into my editor's quickfix list?",
    "Does ripgrep build an index to search faster?",
    "How do I stop ripgrep after a time limit?",
];

pub(super) const GUILD: &[&str] = &[
    "Does guild support Windows named pipes?",
    "How do I write a worker in Go?",
    "Are the memories of a member encrypted on disk?",
    "Can two hosts share the load of one member?",
    "How do I change the colors of the dashboard page?",
];
