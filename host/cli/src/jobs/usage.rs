//! `guild usage`: sums the usage of jobs by member.

use guild_roster::{
    discovery::{Found, FoundMember},
    jobs::files::{self, MemberUsage, Sum},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    age,
    args::jobs::Usage,
    failure::{Failure, exit},
    local,
    output::{
        MODEL_CHARS, STRONG, count, jobs, one_line, print_json,
        table::{Cell, Column, Table},
        tell, tell_error,
    },
};

/// The output with `--json`.
#[derive(Serialize)]
struct Shown {
    /// Jobs that ended earlier are not counted.
    since: Option<Timestamp>,
    members: Vec<Member>,
    total: Total,
}

#[derive(Serialize)]
struct Member {
    /// Its key, or its name on the command line.
    member: String,
    #[serde(flatten)]
    usage: MemberUsage,
}

/// The totals over all members.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Total {
    jobs: u64,
    compactions: u64,
    removed: u64,
    running: u64,
    unrecorded: u64,
    unreadable: u64,
    turns: u64,
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
    unknown_costs: u64,
    wall_seconds: f64,
}

impl Total {
    fn new(members: &[Member], sum: &Sum) -> Self {
        let total = |of_member: fn(&MemberUsage) -> u64| members.iter().map(|member| of_member(&member.usage)).sum();
        Self {
            jobs: total(|usage| usage.jobs.iter().map(|sum| sum.count).sum()),
            compactions: total(|usage| usage.compactions.iter().map(|sum| sum.count).sum()),
            removed: total(|usage| usage.removed),
            running: total(|usage| usage.running),
            unrecorded: total(|usage| usage.unrecorded),
            unreadable: total(|usage| usage.unreadable),
            turns: sum.turns,
            input_tokens: sum.input_tokens,
            cached_tokens: sum.cached_tokens,
            output_tokens: sum.output_tokens,
            cost_usd: sum.cost_usd,
            unknown_costs: sum.unknown_costs,
            wall_seconds: sum.wall_seconds,
        }
    }
}

/// `guild usage`.
pub(crate) fn usage(args: &Usage) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let (mut members, mut left_out) = (Vec::new(), Vec::new());
    for Found { path: member, member: found } in local::one_or_all(args.member.as_deref(), &args.local, &config)? {
        let usage = |found: FoundMember| files::usage(&found.dir, args.since, &config.limits);
        match found.and_then(|found| usage(found).map_err(|e| e.to_string())) {
            Ok(usage) => members.push(Member { member, usage }),
            Err(why) => left_out.push(format!("{} is left out: {why}", one_line(&member, 80))),
        }
    }
    let mut sum = Sum::default();
    members.iter().flat_map(|member| rows(&member.usage)).for_each(|(_, part)| sum.plus(part));
    let total = Total::new(&members, &sum);
    if args.json {
        print_json(&Shown { since: args.since, members, total })?;
    } else {
        table(&members, &sum).print()?;
        remarks(&total).for_each(tell);
    }
    left_out.iter().for_each(tell_error);
    if left_out.is_empty() { Ok(()) } else { Err(Failure::code(exit::ERROR)) }
}

/// The usage of a member by runtime and models, with the runtime's name, or `memory` for compactions.
fn rows(usage: &MemberUsage) -> impl Iterator<Item = (&str, &Sum)> {
    let jobs = usage.jobs.iter().map(|sum| (sum.agent.as_str(), sum));
    jobs.chain(usage.compactions.iter().map(|sum| ("memory", sum)))
}

fn table(members: &[Member], total: &Sum) -> Table {
    let names = ["MEMBER", "AGENT", "MODEL"].map(Column::Left);
    let numbers = ["COUNT", "TURNS", "TOKENS IN", "CACHED", "OUT", "COST USD", "WALL TIME"].map(Column::Right);
    let mut table = Table::new([names.as_slice(), &numbers].concat());
    for Member { member, usage } in members {
        rows(usage).for_each(|(agent, sum)| table.row(cells(member, agent, sum), None));
    }
    table.row(cells("total", "", total).into_iter().map(|cell| cell.styled(STRONG)).collect::<Vec<_>>(), None);
    table
}

fn cells(member: &str, agent: &str, sum: &Sum) -> Vec<Cell> {
    let Sum { count: number, turns, input_tokens, cached_tokens, output_tokens, .. } = *sum;
    // An unknown cost would add to the sum.
    let more = if sum.unknown_costs > 0 { "+?" } else { "" };
    let models = if sum.models.is_empty() { String::new() } else { one_line(&sum.models.join(", "), MODEL_CHARS) };
    let mut cells: Vec<_> = [member, agent, &models].map(Cell::text).into();
    cells.extend([number, turns, input_tokens, cached_tokens, output_tokens].map(Cell::number));
    cells.push(Cell::text(&format!("{:.4}{more}", sum.cost_usd)));
    cells.push(Cell::both(age::span(sum.wall_seconds), format!("{:.1}", sum.wall_seconds)));
    cells
}

/// Notes on the contents of the sums.
fn remarks(total: &Total) -> impl Iterator<Item = String> {
    let remarks = [
        (
            total.unknown_costs,
            format!(
                "{} whose cost is not fully known (+?; the sum has the known part): the model has no price (see \
                 [[prices]] in guild.toml), or the job was cut off before its cost was known",
                count(total.unknown_costs)
            ),
        ),
        (
            total.removed,
            format!(
                "also counted: {} that were deleted or pruned (.usage.jsonl of their members)",
                jobs(total.removed)
            ),
        ),
        (
            total.running,
            format!("not counted: {} still running; `guild status` shows their usage", jobs(total.running)),
        ),
        (total.unrecorded, format!("not counted: {} without a usage record", jobs(total.unrecorded))),
        (
            total.unreadable,
            format!("not counted: {} whose meta.json cannot be read (-vv says why)", jobs(total.unreadable)),
        ),
    ];
    remarks.into_iter().filter(|(number, _)| *number > 0).map(|(_, remark)| remark)
}
