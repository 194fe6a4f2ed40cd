//! Serves images and mockups of projects unchanged.
//!
//! An artifact must not run code with the reader's credentials. Each file is served with the media type of its name, in
//! an origin of its own.

use axum::{
    body::Body,
    http::{
        HeaderValue,
        header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::Response,
};
use guild_contract::hall::ArtifactKind;
use guild_hall::artifact::ArtifactFile;

/// An image runs and loads nothing.
const IMAGE: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
/// A mockup runs its own scripts. It loads and sends nothing.
const MOCKUP: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline' data:; \
     img-src data: blob:; font-src data:; frame-ancestors 'none'",
);

/// The response with a file that a browser may display.
pub(super) fn shown(file: ArtifactFile) -> Response {
    let policy = if file.artifact.artifact_type == ArtifactKind::Image { IMAGE } else { MOCKUP };
    let mut response = Response::new(Body::from(file.bytes));
    response.headers_mut().extend([
        (CONTENT_TYPE, HeaderValue::from_static(file.media_type)),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("inline")),
    ]);
    response
}
