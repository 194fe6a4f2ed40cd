//! Makes a page of HTML without other files, scripts or network, to go with a ticket.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::one_line;

/// The maximum length of a title.
const TITLE_CHARS: usize = 600;

/// The style of all pages. A page defines its further colours after it.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de; --ground: #fff; --panel: #f6f8fa;
  --bad: #b3261e; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --quiet: #9aa4af; --line: #373e47; --ground: #0f1318;
  --panel: #181d24; --bad: #ff8a80; --good: #56d364; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; color: var(--text); background: var(--ground);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } p { margin: .25rem 0; }
code, pre, .mono { font-family: ui-monospace, monospace; font-size: .9em; }
section.item { border: 1px solid var(--line); border-left-width: .3rem; border-radius: .35rem; padding: .6rem .8rem;
  margin: .6rem 0; background: var(--panel); break-inside: avoid; }
.quiet { color: var(--quiet); }
";

/// A page with a title, its own style, and a body.
pub(crate) fn page(title: &str, style: &str, body: &Markup) -> String {
    // Control characters are no part of a page.
    let title = one_line(title, TITLE_CHARS);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { h1 { (title) } (body) }
        }
    };
    page.into_string() + "\n"
}
