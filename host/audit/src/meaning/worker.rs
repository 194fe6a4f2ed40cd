//! Explains the functions of `guild:worker`.

use super::Meaning;

const fn interface(
    name: &'static str,
    sentence: &'static str,
    reach: &'static str,
    functions: &'static [(&'static str, &'static str)],
) -> Meaning {
    Meaning { name, sentence, reach, functions, runtimes: &[] }
}

pub(super) const INTERFACES: &[Meaning] = &[
    interface(
        "guild:worker/agent",
        "Starts agent sessions of its own: a model with tools, run by the host.",
        "Prompts go to the runtime that the operator chose; sessions get only tools that the member was granted, and \
         turns, dollars and time count against the job.",
        &[
            ("[method]session.answer", "Answers a call that a session made to one of the component's own tools."),
            ("[method]session.interrupt", "Asks a session to stop."),
            ("[method]session.next", "Takes the next text, tool call or end of a session."),
            ("query", "Starts a session with a prompt, tools and bounds, on the job's account."),
            ("wait", "Sleeps until one of these sessions has news."),
        ],
    ),
    interface(
        "guild:worker/dispatch",
        "Checks and plans a dispatch; the host calls it.",
        "It runs before any job exists: no job directory, and memory is read-only.",
        &[("activate", "Checks a dispatch, and answers with a plan or a refusal.")],
    ),
    interface(
        "guild:worker/files",
        "Reads local files under the read roots that the operator granted.",
        "Granted read roots only, never outside of them, and never to write.",
        &[
            ("glob", "Lists files under the granted roots whose path matches a pattern."),
            ("grep", "Finds lines that match a pattern in files under the granted roots."),
            ("read", "Reads lines of a file under the granted roots."),
        ],
    ),
    interface(
        "guild:worker/hall",
        "Reads the hall that the host serves: its workers, and the commissions and meetings of all projects with what was asked and found.",
        "All projects of the hall, to read; needs `hall:read`.",
        &[
            ("commission", "Reads one commission: what was asked, where it stands, what came of it."),
            ("commissions", "Lists the commissions of a project, or of all."),
            ("meetings", "Lists the meetings of a project, or of all, with their agendas and notes."),
            ("workers", "Lists the workers that can be commissioned, with what each was granted."),
        ],
    ),
    interface(
        "guild:worker/job-tools",
        "Writes what its own job shows and delivers: summary, decisions, questions, artifacts, result.",
        "Its own job's records and artifacts, within the limits.",
        &[
            ("log-question", "Appends a question for a person to its own job."),
            ("record-decision", "Appends a decision to its own job's record."),
            ("submit-result", "Hands its own job's result over."),
            ("update-summary", "Replaces its own job's progress summary."),
            ("write-artifact", "Writes one file under its own job's artifacts."),
        ],
    ),
    interface(
        "guild:worker/log",
        "Writes lines into its job's log.",
        "The job's log, within its limit; nothing is read.",
        &[(
            "write",
            "Writes a line into its job's log, or the host's log while a dispatch is checked or a tool is called.",
        )],
    ),
    interface(
        "guild:worker/manager",
        "Makes, dispatches and ends commissions of other workers: what only the manager does.",
        "The project of its own activity; needs `hall:manage`, which only the member that `[hall] manager` names can hold.",
        &[
            ("abandon-commission", "Gives a commission of the project up for good."),
            ("add-commission-note", "Adds a note to a commission of the project."),
            ("cancel-commission", "Ends a commission of the project that waits or is under way."),
            ("create-commission", "Makes a commission of the project, which another worker carries out."),
            ("create-pr", "Pushes `claude/main` and makes a pull request of it, where the operator permits that."),
            ("dispatch-commission", "Has a commission of the project carried out."),
            ("initiate-meeting", "Asks the user for a meeting with a worker."),
        ],
    ),
    interface(
        "guild:worker/memory",
        "Keeps notes that later jobs of the same member read.",
        "The member's own memory only; it writes there only with `memory:write`.",
        &[
            ("delete", "Removes one of the member's memories; needs `memory:write`."),
            ("list", "Lists the member's memories: keys, sizes, times."),
            ("load", "Reads one of the member's memories."),
            ("store", "Writes one of the member's memories, for later jobs to read; needs `memory:write`."),
        ],
    ),
    interface(
        "guild:worker/run",
        "Carries a job out in the component itself; the host calls it.",
        "Its job's directory to read, its artifacts to write, and what it was granted.",
        &[("run", "Carries one job out, and answers with its result.")],
    ),
    interface(
        "guild:worker/status",
        "Reads its own job's record.",
        "Its own job only.",
        &[("current", "Reads its own job's status, summary, questions and decisions.")],
    ),
    interface(
        "guild:worker/toolbox",
        "Offers tools to sessions and callers; the host calls it.",
        "What it was granted, without a job: no job directory, and memory is read-only.",
        &[("call-tool", "Answers one call of one of its tools."), ("list-tools", "Names the tools that it offers.")],
    ),
    interface("guild:worker/types", "Types that the other interfaces share.", "Nothing: it has no functions.", &[]),
    interface(
        "guild:worker/web",
        "Searches the web and reads pages, through the host: the only import through which data can leave.",
        "Hosts that the operator's `[web]` opens and the member was granted; an address or a query can carry data out.",
        &[
            ("fetch", "Asks the host for a page of a granted host; the address can carry data out."),
            ("search", "Sends a query to the operator's search provider; the query can carry data out."),
        ],
    ),
];
