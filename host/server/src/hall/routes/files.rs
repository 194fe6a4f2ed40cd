//! Images and mockups of projects, as they are.
//!
//! An artifact must not run code with the reader's credentials. Each file is served with the media type of its name, in an origin
//! of its own.

use axum::{
    body::Body,
    http::{
        HeaderValue,
        header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::Response,
};
use guild_hall::{
    HallError,
    artifact::{ArtifactFile, Kind},
};
use serde_json::json;

use super::request::{Answer, Reply, Request, ok};

/// An image runs nothing, and loads nothing.
const IMAGE: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
/// A mockup runs its own scripts, and loads and sends nothing.
const MOCKUP: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline' data:; \
     img-src data: blob:; font-src data:; frame-ancestors 'none'",
);

/// A file as a browser may show it.
pub(super) fn shown(file: ArtifactFile) -> Response {
    let policy = if file.artifact.artifact_type == Kind::Image { IMAGE } else { MOCKUP };
    let mut response = Response::new(Body::from(file.bytes));
    response.headers_mut().extend([
        (CONTENT_TYPE, HeaderValue::from_static(file.media_type)),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
    ]);
    response
}

pub(super) async fn image(request: Request) -> Answer {
    file(&request, Kind::Image).await.map(|file| Reply::File(Box::new(file)))
}

pub(super) async fn mockup(request: Request) -> Answer {
    file(&request, Kind::Mockup).await.map(|file| Reply::File(Box::new(file)))
}

pub(super) async fn image_meta(request: Request) -> Answer {
    let ArtifactFile { artifact, media_type, bytes } = file(&request, Kind::Image).await?;
    ok(json!({
        "relativePath": artifact.relative_path, "meta": artifact.meta, "lastModified": artifact.last_modified,
        "fileSize": bytes.len(), "mimeType": media_type,
    }))
}

async fn file(Request { hall, fields, .. }: &Request, kind: Kind) -> Result<ArtifactFile, HallError> {
    hall.artifact_file(&fields.project()?, &fields.text(&["path", "artifactPath"])?, kind).await
}
