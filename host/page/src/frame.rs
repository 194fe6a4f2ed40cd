//! Renders what all pages have: the head, the navigation, and the viewer.

use maud::{DOCTYPE, Markup, html};

use crate::{
    assets::{HTMX, HTMX_SSE, ICON, STYLE},
    parts::{HALL, HOST, SIGN_OUT, USAGE, Viewer, csrf, text},
};

/// The policy for each page: its own files only, no inline script or style, no frames, and forms only to this host.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The settings of htmx: nothing is evaluated, and only its extension for server-sent events is loaded.
const HTMX_CONFIG: &str = r#"{"extensions":"sse","includeIndicatorCSS":false,"history":false}"#;

/// The pages that the navigation leads to.
const PAGES: [(&str, &str); 4] = [("/", "Now"), (HALL, "Hall"), (USAGE, "Usage"), (HOST, "Host")];

/// A whole page. `viewer` is none for pages that need no session.
pub(crate) fn page(title: &str, viewer: Option<&Viewer>, body: &Markup) -> String {
    framed("", title, viewer, body)
}

/// A page that the navigation leads to.
pub(crate) fn page_at(path: &str, title: &str, viewer: &Viewer, body: &Markup) -> String {
    framed(path, title, Some(viewer), body)
}

fn framed(path: &str, title: &str, viewer: Option<&Viewer>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="htmx-config" content=(HTMX_CONFIG);
                title { (text(title)) " · Guild Hall" }
                link rel="icon" href=(ICON.path);
                link rel="stylesheet" href=(STYLE.path);
                // Not `defer`: htmx would begin by a timer, which may fire before its extension is loaded, and the page
                // would stay as it is.
                script src=(HTMX.path) {}
                script src=(HTMX_SSE.path) {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header {
                    nav aria-label="Pages" {
                        a.home href="/" { "Guild Hall" }
                        @for (to, name) in PAGES {
                            a href=(to) aria-current=[(to == path).then_some("page")] { (name) }
                        }
                    }
                    @if let Some(viewer) = viewer { (who(viewer)) }
                }
                main id="content" { (body) }
            }
        }
    };
    page.into_string()
}

fn who(viewer: &Viewer) -> Markup {
    html! {
        @match &viewer.token {
            Some(token) => form.inline method="post" action=(SIGN_OUT) {
                (csrf(viewer))
                span.quiet { "signed in with token " strong { (text(token)) } } " "
                button { "Sign out" }
            },
            None => span.quiet { "on this machine" },
        }
    }
}

/// The page that says why a request was refused.
pub fn refusal(viewer: Option<&Viewer>, why: &str) -> String {
    let body = html! {
        h1 { "This did not work" }
        p role="alert" { (text(why)) }
        p { a href="/" { "Back to what runs now" } }
    };
    page("Refused", viewer, &body)
}
