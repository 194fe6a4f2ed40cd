//! Many hosts as one guild, on NATS JetStream. No other crate names NATS.
//!
//! # One primitive
//!
//! NATS appends a message to a subject if the subject's last message has the sequence that the writer expects
//! (`Nats-Expected-Last-Subject-Sequence`). Each job has one log on one subject, `guild.log.MEMBER.JOB`. All that decides
//! about the job is appended there on that condition: its birth, its owner, its files, its end, its deletion. So
//! there is one fence, and it covers everything: an owner that was paused while another host took its job stores nothing
//! more. The six rules stand in [`rules`], as pure functions, and a test searches every course of two hosts.
//!
//! A read decides nothing, since a server may lag. An append that was refused or not answered proves nothing either, so
//! [`link::Link`] looks for the message's own id and sends the same message again until its fate is known. NATS refuses
//! an append while another one to the same subject is on its way; therefore a [`writer::Writer`] has one in flight, and
//! collects the rest for 50 ms or 64 KiB.
//!
//! # Streams
//!
//! | stream | subjects | content |
//! |---|---|---|
//! | `guild_log` | `guild.log.MEMBER.JOB` | the jobs' logs |
//! | `guild_blobs` | `guild.blob.SHA256.N` | contents over 256 KiB and bytes that are no text, in chunks |
//! | `KV_guild_hosts` | `$KV.guild_hosts.HOST` | the presence of hosts |
//! | `KV_guild_memory` | `$KV.guild_memory.SCOPE.KEY` | notes |
//! | `KV_guild_members` | `$KV.guild_members.MEMBER` | published members |
//! | `KV_guild_keys` | `$KV.guild_keys.DIGEST` | keys of dispatches, for 24 h |
//!
//! All are files with the same number of replicas, and refuse when they are full. The names with `KV_` are those of
//! NATS' key-value buckets, so that `nats kv` shows them. Hosts need no right to make, change, purge or delete a
//! stream, and [`setup`] gives them none. A server has to have each write on its disk before it acknowledges it
//! (`sync_interval: always`), which [`link::Link::check_servers`] checks: otherwise a power cut takes back what was
//! promised.
//!
//! # Messages of a log
//!
//! A message is one append: its payload has [records](record::Record), one line of JSON each, at most 768 KiB together.
//! A job is a directory of files, so most records tell what became of a file, and a host that takes the job writes
//! these files and goes on as after its own restart. The headers are what others see without the payload:
//!
//! | header | content |
//! |---|---|
//! | `Guild-Id` | `HOST#INCARNATION.N`, which no other message has |
//! | `Guild-Version` | the version of the records |
//! | `Guild-Standing` | who may append after the message, as JSON |
//! | `Guild-Needs` | what a host needs to carry the job out, as JSON |
//! | `Guild-Head` | the picture of the job after the message, as JSON of at most 2 KiB |
//! | `Guild-Events` | the events of the message, as a JSON array |
//!
//! Some minutes after a job's end, its log is replaced by one message with the same files, on the same condition. A blob
//! that nothing names stays until a [`sweep`] with the administrator's credentials.
//!
//! One consumer of these headers, which begins with the last message of each subject, is therefore a host's list of
//! all jobs, its queue of waiting jobs, and its events. There is no second place that would have to agree with the log.
//!
//! # Hosts
//!
//! Each host refreshes its [`presence`] every 5 s. One that is silent for 30 s, while the host that decides was connected
//! all that time, is declared dead by a conditional write, and its jobs go to others; one that was not acknowledged for
//! 20 s begins nothing. An outage of NATS silences all hosts, and so declares nobody dead. A host that restarts on the
//! same state directory, and one that leaves, cost no wait. Jobs that wait, or whose host is dead, are taken by the
//! order of [`claims`].
//!
//! A [`ledger::MemberJobs`] is the ledger of one member's jobs for [`guild_jobs::JobStore`]. What hosts share besides jobs
//! is in [`buckets`]. Cards of hosts and published members have a [`seal`] of a key that NATS never has.

pub mod blobs;
pub mod buckets;
pub mod claims;
pub mod error;
pub mod ledger;
pub mod link;
pub mod log;
pub mod presence;
pub mod reads;
pub mod record;
pub mod rules;
pub mod seal;
pub mod setup;
pub mod streams;
pub mod sweep;
pub mod transfer;
pub mod watch;
pub mod writer;
