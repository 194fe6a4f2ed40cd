//! `guild serve`.

use guild_server::{Host, MemberState, ServeError, ServeOptions, Target, listen::BindError, mcp_line};

use crate::{
    args::Serve,
    failure::{Failure, exit},
    house,
    output::{one_line, tell},
};

/// Serves until SIGTERM or Ctrl-C.
pub(crate) async fn serve(args: Serve) -> Result<(), Failure> {
    mcp_line::check(args.member.as_deref()).map_err(Failure::error)?;
    let mut config = house::config(&args.policy)?;
    let target = match args.member {
        Some(member) => {
            if let Some(members) = &args.members {
                config.members = Some(house::members_directory(Some(members), &config)?);
            }
            Target::Member(member)
        }
        None => Target::Members(house::members_directory(args.members.as_deref(), &config)?),
    };
    let options =
        ServeOptions { config, target, port: args.port, sources: args.session.sources, agent: args.session.agent };
    let served = guild_server::serve(options, |base, host| tell(listening(base, host)));
    served.await.map_err(|error| {
        let code = if matches!(error, ServeError::Bind(BindError::InUse(_))) { exit::PORT_IN_USE } else { exit::ERROR };
        Failure { code, message: Some(error.to_string()) }
    })
}

/// What the host says when clients can connect: where, and one line for each member.
fn listening(base: &str, host: &Host) -> String {
    if let Some(member) = host.single() {
        return format!("serving {} at {base}/mcp", member.key());
    }
    let members = host.members();
    let members = members.iter().map(|(key, entry)| match &entry.state {
        MemberState::Ready(_) => format!("serving {key} at {base}/members/{key}/mcp"),
        MemberState::Foreign => format!("{key} has no component and is not served here"),
        MemberState::Error(reason) => format!("{} is not served: {}", one_line(key, 80), one_line(reason, 400)),
    });
    let together = format!("listening at {base}, with the tools of all members together at {base}/mcp");
    let lines: Vec<String> = std::iter::once(together).chain(members).collect();
    lines.join("\n")
}
