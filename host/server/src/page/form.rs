//! Reads the forms that pages send.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    extract::Request,
    http::{StatusCode, header::CONTENT_TYPE, request::Parts},
};
use bytes::Bytes;
use futures::stream;
use guild_contract::{
    Limits,
    rpc::{Attachment, DispatchParams},
};
use guild_page::CSRF_FIELD;
use multer::{Multipart, parse_boundary};
use tokio::time::timeout;

use super::request::{PageRequest, Why};
use crate::{connections::Activity, input::body::whole};

const URL_ENCODED: &str = "application/x-www-form-urlencoded";
/// The most bytes of a form that needs no session.
const OPEN_BYTES: usize = 16 * 1024;

/// The fields of a form, or of a query.
pub(super) struct Form {
    fields: Vec<(String, String)>,
    /// The files that were chosen in the form.
    files: Vec<Attachment>,
}

impl Form {
    /// Parses fields.
    pub(super) fn of(text: &[u8]) -> Self {
        let fields = url::form_urlencoded::parse(text);
        // Browsers end the lines of a text with CR and LF.
        let fields = fields.map(|(name, value)| (name.into_owned(), value.replace("\r\n", "\n"))).collect();
        Self { fields, files: Vec::new() }
    }

    /// Parses a form with files.
    async fn of_parts(body: Bytes, boundary: String) -> Result<Self, multer::Error> {
        let mut parts = Multipart::new(stream::iter([Ok::<_, Infallible>(body)]), boundary);
        let mut form = Self { fields: Vec::new(), files: Vec::new() };
        while let Some(part) = parts.next_field().await? {
            let (name, file) = (part.name().unwrap_or_default().to_owned(), part.file_name().map(str::to_owned));
            let bytes = part.bytes().await?;
            match file {
                // A browser sends an empty part where no file was chosen.
                Some(path) if path.is_empty() => {}
                Some(path) => form.files.push(Attachment::of(path, bytes.into())),
                None => form.fields.push((name, String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))),
            }
        }
        Ok(form)
    }

    /// Reads a form that a page of the viewer's session sent.
    pub(super) async fn sent(page: &PageRequest, request: Request) -> Result<Self, Why> {
        let (parts, body) = request.into_parts();
        let boundary = parts.headers.get(CONTENT_TYPE).and_then(|value| parse_boundary(value.to_str().ok()?).ok());
        if boundary.is_none() {
            check_type(&parts)?;
        }
        let body = whole(body, &parts.headers, &page.admitted).await;
        let body = body.map_err(|declined| Why { status: declined.status(), text: declined.why().to_owned() })?;
        let form = match boundary {
            None => Self::of(&body),
            Some(boundary) => Self::of_parts(body, boundary)
                .await
                .map_err(|e| Why { status: StatusCode::BAD_REQUEST, text: format!("the form cannot be read: {e}") })?,
        };
        match form.get(CSRF_FIELD).is_some_and(|csrf| page.browser.has_sent(csrf)) {
            true => Ok(form),
            false => Err(Why {
                status: StatusCode::FORBIDDEN,
                text: "this form is not from a page of your session; open the page again".to_owned(),
            }),
        }
    }

    /// Reads a form that needs no session. While its body is awaited, the connection counts as waiting for its client,
    /// so that it can be closed for another.
    pub(super) async fn read(request: Request, activity: &Arc<Activity>, limits: &Limits) -> Result<Self, Why> {
        let (parts, body) = request.into_parts();
        check_type(&parts)?;
        let patience = Duration::from_secs(limits.client_seconds.into());
        let refused = |status, text: &str| Err(Why { status, text: text.to_owned() });
        match activity.waiting(timeout(patience, to_bytes(body, OPEN_BYTES))).await {
            Ok(Ok(body)) => Ok(Self::of(&body)),
            Ok(Err(_)) => refused(StatusCode::BAD_REQUEST, "the form is incomplete or too long"),
            Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the form did not arrive in time"),
        }
    }

    /// Whether there is a field of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The first field of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All fields of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first field of this name as an own text; empty if there is none.
    pub(super) fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }

    /// The lines of a field that are not empty.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let lines = self.get(name).unwrap_or_default().lines().map(str::trim);
        lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The parameters of a dispatch. The operation checks them.
    pub(super) fn dispatch(&mut self) -> Result<DispatchParams, Why> {
        let config = self.text("config");
        let config = match config.trim() {
            "" => None,
            json => Some(serde_json::from_str(json).map_err(|e| Why {
                status: StatusCode::BAD_REQUEST,
                text: format!("the config is not a JSON object: {e}"),
            })?),
        };
        Ok(DispatchParams {
            description: self.text("description"),
            task: self.text("task"),
            config,
            agent: None,
            attachments: std::mem::take(&mut self.files),
            follows: self.get("continues").map(str::to_owned),
            key: None,
        })
    }
}

fn check_type(parts: &Parts) -> Result<(), Why> {
    let is_form =
        parts.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(URL_ENCODED.as_bytes()));
    match is_form {
        true => Ok(()),
        false => Err(Why {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            text: format!("the content type must be {URL_ENCODED}"),
        }),
    }
}
