//! Holds the files that pages load: a style sheet, and scripts of other projects (`assets/README.md`).

/// A file that pages load.
#[derive(Debug)]
pub struct Asset {
    /// The path on the host.
    pub path: &'static str,
    /// The content type.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

pub(crate) static STYLE: Asset = Asset {
    path: concat!("/page/assets/page-", env!("CARGO_PKG_VERSION"), ".css"),
    content_type: "text/css; charset=utf-8",
    bytes: include_bytes!("../assets/page.css"),
};
pub(crate) static ICON: Asset =
    Asset { path: "/page/assets/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") };
pub(crate) static HTMX: Asset =
    Asset { path: "/page/assets/htmx-4.0.1.js", content_type: SCRIPT, bytes: include_bytes!("../assets/htmx.min.js") };
pub(crate) static HTMX_SSE: Asset = Asset {
    path: "/page/assets/hx-sse-4.0.1.js",
    content_type: SCRIPT,
    bytes: include_bytes!("../assets/hx-sse.min.js"),
};

/// All files.
pub static ASSETS: [&Asset; 4] = [&STYLE, &ICON, &HTMX, &HTMX_SSE];

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_files_of_other_projects_are_those_that_the_readme_names() {
        let readme = include_str!("../assets/README.md");
        for asset in [&HTMX, &HTMX_SSE] {
            let sha256 = HEXLOWER.encode(&Sha256::digest(asset.bytes));
            assert!(readme.contains(&sha256), "{}: {sha256}", asset.path);
        }
    }
}
