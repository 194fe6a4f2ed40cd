//! An artifact as one file: an image layout of OCI, as a tar archive.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use oci_client::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use serde_json::json;
use tar::{Builder, Header};

use crate::artifact::{Artifact, digest};

impl Artifact {
    /// Writes the artifact as a tar archive. The entries have no times and no owners, and always the same order.
    ///
    /// # Errors
    ///
    /// Returns an error when the archive cannot be written.
    pub fn pack(&self, out: impl Write) -> io::Result<()> {
        let index = json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE,
            "manifests": [{
                "mediaType": OCI_IMAGE_MEDIA_TYPE,
                "digest": self.digest,
                "size": self.manifest.len(),
                "annotations": {"org.opencontainers.image.ref.name": self.version},
            }],
        });
        let mut files = BTreeMap::from([
            ("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"}).to_string().into()),
            ("index.json".to_owned(), index.to_string().into()),
        ]);
        for blob in self.blobs.iter().chain([&self.manifest]) {
            files.insert(format!("blobs/{}", digest(blob).replace(':', "/")), blob.clone());
        }
        let mut tar = Builder::new(out);
        for (name, bytes) in &files {
            let mut header = Header::new_ustar();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, &**bytes)?;
        }
        tar.into_inner()?.flush()
    }
}
