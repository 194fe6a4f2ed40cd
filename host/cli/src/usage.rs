//! `guild usage`: what jobs have used, summed over members.

use cap_std::fs::Dir;
use guild_roster::offline::{self, MemberUsage, Sum};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    age,
    args::Usage,
    failure::{Failure, exit},
    local,
    output::{MODEL_CHARS, STRONG, count, one_line, print_json, tell, tell_error},
    table::{Cell, Column, Table},
};

/// With `--json`: everything.
#[derive(Serialize)]
struct Shown {
    /// From when on.
    since: Option<Timestamp>,
    members: Vec<Member>,
    total: Total,
}

#[derive(Serialize)]
struct Member {
    /// Its key, or as it was named.
    member: String,
    #[serde(flatten)]
    usage: MemberUsage,
}

/// Over all members.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Total {
    jobs: u64,
    compactions: u64,
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
    fn of(members: &[Member]) -> Self {
        let mut total = Self::default();
        let mut sum = Sum::default();
        for Member { usage, .. } in members {
            total.jobs += usage.jobs.iter().map(|sum| sum.count).sum::<u64>();
            total.compactions += usage.compactions.iter().map(|sum| sum.count).sum::<u64>();
            total.running += usage.running;
            total.unrecorded += usage.unrecorded;
            total.unreadable += usage.unreadable;
            usage.jobs.iter().chain(&usage.compactions).for_each(|part| sum.plus(part));
        }
        Self {
            turns: sum.turns,
            input_tokens: sum.input_tokens,
            cached_tokens: sum.cached_tokens,
            output_tokens: sum.output_tokens,
            cost_usd: sum.cost_usd,
            unknown_costs: sum.unknown_costs,
            wall_seconds: sum.wall_seconds,
            ..total
        }
    }
}

/// `guild usage`.
pub(crate) fn usage(args: &Usage) -> Result<(), Failure> {
    let config = local::config(&args.local.policy)?;
    let found: Vec<(String, Result<Dir, String>)> = match &args.member {
        Some(member) => {
            let directory = local::member_directory(member, &args.local, &config)?;
            vec![(member.clone(), local::member(&directory, &args.local, &config).map(|found| found.dir))]
        }
        None => local::discovered(&local::members_directory(args.local.members.as_deref(), &config)?)?
            .into_iter()
            .map(|found| (found.path, found.member.map(|member| member.dir)))
            .collect(),
    };
    let (mut members, mut left_out) = (Vec::new(), Vec::new());
    for (member, dir) in found {
        let usage = dir.and_then(|dir| offline::usage(&dir, args.since, &config.limits).map_err(|e| e.to_string()));
        match usage {
            Ok(usage) => members.push(Member { member, usage }),
            Err(why) => left_out.push(format!("{} is left out: {why}", one_line(&member, 80))),
        }
    }
    let total = Total::of(&members);
    let shown = Shown { since: args.since, members, total };
    if args.json {
        print_json(&shown)?;
    } else {
        table(&shown).print()?;
        remarks(&shown.total).iter().for_each(tell);
    }
    left_out.iter().for_each(tell_error);
    if left_out.is_empty() { Ok(()) } else { Err(Failure::code(exit::ERROR)) }
}

/// A row of the table.
struct Row<'a> {
    member: &'a str,
    what: &'a str,
    model: String,
    sum: Sum,
}

fn table(shown: &Shown) -> Table {
    let mut rows = Vec::new();
    for Member { member, usage } in &shown.members {
        let parts = usage.jobs.iter().map(|sum| (sum.agent.as_str(), sum));
        let parts = parts.chain(usage.compactions.iter().map(|sum| ("memory", sum)));
        rows.extend(parts.map(|(what, sum)| {
            let model =
                if sum.models.is_empty() { String::new() } else { one_line(&sum.models.join(", "), MODEL_CHARS) };
            Row { member, what, model, sum: sum.clone() }
        }));
    }
    let mut all = Sum::default();
    rows.iter().for_each(|row| all.plus(&row.sum));
    rows.push(Row { member: "total", what: "", model: String::new(), sum: all });
    let names = ["MEMBER", "AGENT", "MODEL"].map(Column::Left);
    let numbers = ["COUNT", "TURNS", "TOKENS IN", "CACHED", "OUT", "COST USD", "WALL TIME"].map(Column::Right);
    let mut table = Table::new(names.into_iter().chain(numbers).collect::<Vec<_>>());
    let last = rows.len().saturating_sub(1);
    for (at, row) in rows.iter().enumerate() {
        let style = if at == last { STRONG } else { anstyle::Style::new() };
        table.row(row.cells().into_iter().map(|cell| cell.styled(style)).collect::<Vec<_>>(), None);
    }
    table
}

impl Row<'_> {
    fn cells(&self) -> Vec<Cell> {
        let Sum { count: number, turns, input_tokens, cached_tokens, output_tokens, .. } = self.sum;
        // What is not known comes on top.
        let more = if self.sum.unknown_costs > 0 { "+?" } else { "" };
        let mut cells: Vec<_> = [self.member, self.what, &self.model].map(Cell::text).into();
        cells.extend([number, turns, input_tokens, cached_tokens, output_tokens].map(Cell::number));
        cells.push(Cell::text(&format!("{:.4}{more}", self.sum.cost_usd)));
        cells.push(Cell::both(age::span(self.sum.wall_seconds), format!("{:.1}", self.sum.wall_seconds)));
        cells
    }
}

/// What the sums do not have in them.
fn remarks(total: &Total) -> Vec<String> {
    let jobs = |number: u64| if number == 1 { "1 job".to_owned() } else { format!("{} jobs", count(number)) };
    let mut remarks = Vec::new();
    if total.unknown_costs > 0 {
        remarks.push(format!(
            "{} whose cost is not wholly known (+?; the sum has what is known): of a model without a price (see [[prices]] in guild.toml), or cut \
             off before their cost was told",
            count(total.unknown_costs)
        ));
    }
    if total.running > 0 {
        remarks
            .push(format!("not counted: {} that run; `guild status` shows what they have used", jobs(total.running)));
    }
    if total.unrecorded > 0 {
        remarks.push(format!("not counted: {} without a record of what they used", jobs(total.unrecorded)));
    }
    if total.unreadable > 0 {
        remarks.push(format!("not counted: {} whose meta.json cannot be read (-vv says why)", jobs(total.unreadable)));
    }
    remarks
}
