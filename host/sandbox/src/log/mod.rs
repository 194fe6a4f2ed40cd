//! Writes the log lines of a call to the job's log, or to the host's.

pub(crate) mod stdio;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use guild_contract::MemberKey;
use guild_jobs::RunningJob;
use guild_session::tools::ToolDefinition;

/// The destination of a call's log lines.
#[derive(Clone)]
pub(crate) enum LogSink {
    /// The job's own log, which is bounded by the store.
    Job(Arc<RunningJob>),
    /// A buffer for the lines of a job that does not exist yet.
    Buffer(Arc<Mutex<Buffer>>),
    /// The host's own log, for a call without a job.
    Host(Arc<HostLog>),
}

/// Lines that wait for their job.
#[derive(Default)]
pub(crate) struct Buffer {
    lines: Vec<String>,
    bytes: usize,
}

/// The most bytes of lines that are kept of a call without a job.
const KEPT_BYTES: usize = 64 * 1024;
/// The bytes after which a line is cut.
pub(crate) const LINE_BYTES: usize = 4096;

impl LogSink {
    pub(crate) fn buffered() -> Self {
        Self::Buffer(Arc::default())
    }

    /// Writes one line, cut if it is too long. The job's log escapes characters that could forge another line.
    pub(crate) fn line(&self, line: &str) {
        let line = line.get(..line.floor_char_boundary(LINE_BYTES)).unwrap_or_default();
        match self {
            Self::Job(job) => job.log(line),
            Self::Host(log) => log.line(line),
            Self::Buffer(buffered) => {
                let mut buffered = buffered.lock().unwrap_or_else(PoisonError::into_inner);
                if buffered.bytes + line.len() <= KEPT_BYTES {
                    buffered.bytes += line.len() + 1;
                    buffered.lines.push(line.to_owned());
                } else if buffered.bytes < KEPT_BYTES {
                    buffered.bytes = KEPT_BYTES;
                    buffered.lines.push("(more was written before the job began; it was dropped)".to_owned());
                }
            }
        }
    }

    /// Takes the kept lines.
    pub(crate) fn take(&self) -> Vec<String> {
        match self {
            Self::Job(_) | Self::Host(_) => Vec::new(),
            Self::Buffer(buffered) => {
                std::mem::take(&mut buffered.lock().unwrap_or_else(PoisonError::into_inner).lines)
            }
        }
    }
}

/// Bounded lines of a call without a job for the host's log; the last one tells that further lines are dropped.
pub(crate) struct HostLog {
    member: MemberKey,
    tool: Option<Arc<ToolDefinition>>,
    left: AtomicUsize,
}

/// The most bytes that one call may write into the host's log.
const LOG_BYTES: usize = 16 * 1024;

impl HostLog {
    pub(crate) fn new(member: MemberKey, tool: Option<Arc<ToolDefinition>>) -> Self {
        Self { member, tool, left: AtomicUsize::new(LOG_BYTES) }
    }

    /// Writes a line, escaped so that no part of it can pass for another line.
    pub(crate) fn line(&self, line: &str) {
        let member = self.member.as_str();
        let tool = self.tool.as_ref().map(|tool| tool.name.as_str());
        let less = |left: usize| left.checked_sub(line.len() + 1);
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
            tracing::info!(member, tool, "{line:?}");
        } else if self.left.swap(0, Ordering::AcqRel) > 0 {
            tracing::info!(member, tool, "(the call wrote more than {LOG_BYTES} bytes; the rest is dropped)");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::Mutex,
    };

    use super::*;

    /// What a subscriber wrote.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_call_writes_is_in_the_host_s_log_one_line_each_up_to_a_bound() {
        let written = Written::default();
        let to = written.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let sink = LogSink::Host(Arc::new(HostLog::new("caller".parse().unwrap(), None)));
            sink.line("one\ntwo\u{1b}[2J");
            // Four of the longest that a line can be, but for the one above.
            (0..6).for_each(|_| sink.line(&"x".repeat(5000)));
            sink.line("y");
        });
        let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert!(lines[0].contains(r#""one\ntwo\u{1b}[2J""#) && lines[0].contains("member=\"caller\""), "{log}");
        assert_eq!(lines.len(), 5, "{log}");
        assert!(lines[4].contains("more than 16384 bytes"), "{log}");
    }
}
