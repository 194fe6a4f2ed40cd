//! Renders the page that asks for a token.

use maud::html;

use crate::{
    frame::page,
    parts::{SIGN_IN, text},
};

/// The page. `to` is the path to go on to; `why` is the reason that a token was refused, if one was.
pub fn sign_in(to: &str, why: Option<&str>) -> String {
    let body = html! {
        h1 { "Sign in" }
        p { "This host asks for a token. The operator makes one with " code { "guild token add NAME" } "." }
        @if let Some(why) = why { p.error role="alert" { (text(why)) } }
        form method="post" action=(SIGN_IN) {
            input type="hidden" name="to" value=(to);
            p {
                label for="token" { "Token" } br;
                input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
            }
            p { button { "Sign in" } }
        }
    };
    page("Sign in", None, &body)
}
