//! A member's files as an artifact: the layers, the config and the manifest of OCI.

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use cap_std::fs::Dir;
use guild_contract::{Limits, Manifest, manifest::package, text::hex};
use guild_fs::durable::{Survives, create, if_there, read_whole, sync_dir};
use oci_client::{
    annotations::{
        ORG_OPENCONTAINERS_IMAGE_DESCRIPTION, ORG_OPENCONTAINERS_IMAGE_TITLE, ORG_OPENCONTAINERS_IMAGE_VERSION,
    },
    manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    error::RegistryError,
    part::{ARTIFACT_TYPE, CONFIG_TYPE, Part, WASM_CONFIG_TYPE},
};

/// The suffix of a component's file. With it, the file has the name of no other file of a member.
const COMPONENT_SUFFIX: &str = ".wasm";

/// The files of a member that an artifact has.
#[derive(Clone, Debug)]
pub struct MemberFiles {
    /// The declarations of the member.
    pub manifest: Manifest,
    /// The name of the component's file.
    component: String,
    parts: Vec<(Part, Bytes)>,
}

impl MemberFiles {
    /// Reads a member's directory. The error is a text for the author.
    ///
    /// # Errors
    ///
    /// Returns an error when a file cannot be read or is too large, or when the files are no member with a component.
    pub fn read(dir: &Dir, limits: &Limits) -> Result<Self, RegistryError> {
        let unreadable = |e: io::Error| RegistryError::Member(e.to_string());
        let mut parts = declarations(dir, limits).map_err(unreadable)?;
        let component = parse(&parts).and_then(|manifest| component_of(&manifest)).map_err(RegistryError::Member)?;
        for part in [Part::Component, Part::Posture, Part::Signature, Part::CycloneDx, Part::Spdx] {
            parts.extend(read_part(dir, part, &component, limits).map_err(unreadable)?);
        }
        Self::of(parts).map_err(|why| RegistryError::Member(format!("{why}; has it been built?")))
    }

    /// The files with these parts. The error is a text for a person.
    pub(crate) fn of(mut parts: Vec<(Part, Bytes)>) -> Result<Self, String> {
        parts.sort_by_key(|(part, _)| Part::ALL.iter().position(|other| other == part));
        let manifest = parse(&parts)?;
        let component = component_of(&manifest)?;
        if !parts.iter().any(|(part, _)| *part == Part::Component) {
            return Err(format!("{component}, which `component.file` names, is missing"));
        }
        Ok(Self { manifest, component, parts })
    }

    /// The files with their names.
    pub fn files(&self) -> impl Iterator<Item = (Part, String, &[u8])> {
        self.parts.iter().map(|(part, bytes)| (*part, part.file(&self.component), &**bytes))
    }

    /// Writes the files into an empty directory, so that they survive a power cut.
    ///
    /// # Errors
    ///
    /// Returns an error when a file cannot be written.
    pub fn write(&self, dir: &Dir) -> io::Result<()> {
        for (_, name, bytes) in self.files() {
            create(dir, name, bytes, Survives::PowerCut.into())?;
        }
        sync_dir(dir)
    }

    /// The names of the files in a member's directory that an artifact can have.
    ///
    /// # Errors
    ///
    /// Returns an error when the directory cannot be read.
    pub fn names_in(dir: &Dir, limits: &Limits) -> io::Result<Vec<String>> {
        let declared = declarations(dir, limits)?;
        let component = parse(&declared).and_then(|manifest| component_of(&manifest)).ok();
        let is_own = |part: &Part| match part {
            Part::Component | Part::Signature => component.is_some(),
            // A `package.json` that declares no member is not the member's.
            Part::Package => declared.iter().any(|(part, _)| *part == Part::Package),
            _ => true,
        };
        let mut names = Vec::new();
        for part in Part::ALL.into_iter().filter(is_own) {
            let name = part.file(component.as_deref().unwrap_or_default());
            names.extend(if_there(dir.symlink_metadata(&name))?.map(|_| name));
        }
        Ok(names)
    }
}

/// The files in a directory that declare a member.
fn declarations(dir: &Dir, limits: &Limits) -> io::Result<Vec<(Part, Bytes)>> {
    let mut declared = Vec::new();
    for part in [Part::Manifest, Part::Package] {
        let found = read_part(dir, part, "", limits)?;
        declared.extend(found.filter(|(part, text)| *part == Part::Manifest || package::is_declared(text)));
    }
    Ok(declared)
}

/// A part in a member's directory, if it is there. The error names the file.
fn read_part(dir: &Dir, part: Part, component: &str, limits: &Limits) -> io::Result<Option<(Part, Bytes)>> {
    let name = part.file(component);
    let found = read_whole(dir, &name, part.max_bytes(limits));
    let found = found.map_err(|e| io::Error::new(e.kind(), format!("{name} cannot be read: {e}")))?;
    Ok(found.map(|(bytes, _)| (part, bytes.into())))
}

/// The manifest of a member.
fn parse(parts: &[(Part, Bytes)]) -> Result<Manifest, String> {
    let text = |wanted: Part| parts.iter().find(|(part, _)| *part == wanted).map(|(_, bytes)| &**bytes);
    let (member, package) = (text(Part::Manifest), text(Part::Package));
    if member.is_none() && package.is_none() {
        return Err(format!(
            "there is no {}, nor a {} with \"guildHall\"",
            Part::Manifest.file(""),
            Part::Package.file("")
        ));
    }
    Manifest::of(member, package).map_err(|e| e.to_string())
}

/// The name of the component's file, which is beside the manifest.
fn component_of(manifest: &Manifest) -> Result<String, String> {
    let Some(spec) = &manifest.component else {
        return Err(format!("{} has no `component`: an artifact is for members that this host runs", manifest.name));
    };
    let is_plain = !spec.file.contains('/') && !spec.file.starts_with('.') && spec.file.ends_with(COMPONENT_SUFFIX);
    if !is_plain {
        return Err(format!(
            "`component.file` is {:?}; in an artifact it is a file beside the manifest, with a name that ends with \
             {COMPONENT_SUFFIX} and does not begin with a dot",
            spec.file
        ));
    }
    Ok(spec.file.clone())
}

/// An artifact of OCI. It has no times, so that the same content makes the same bytes.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The digest of the manifest, which names the artifact.
    pub digest: String,
    /// The version of the content.
    pub version: String,
    pub(crate) manifest: Bytes,
    /// The config and the layers.
    pub(crate) blobs: Vec<Bytes>,
}

/// The config of a member's artifact, which describes the member for registries and people.
#[derive(Serialize)]
struct Config<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
}

/// The config of an artifact that is one WebAssembly file, as the WebAssembly working group of the CNCF defines it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WasmConfig<'a> {
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    layer_digests: [&'a str; 1],
}

impl Artifact {
    /// The artifact of a member.
    ///
    /// # Errors
    ///
    /// Returns an error when the manifest or the config cannot be written as JSON.
    pub fn of_member(files: &MemberFiles) -> Result<Self, RegistryError> {
        let Manifest { name, version, description, .. } = &files.manifest;
        let config = json(&Config { name, version, description })?;
        let layers = files.parts.iter().map(|(part, bytes)| OciDescriptor {
            annotations: Some(annotated([(ORG_OPENCONTAINERS_IMAGE_TITLE, &part.file(&files.component))])),
            ..descriptor(part.media_type(), bytes)
        });
        let about = [
            (ORG_OPENCONTAINERS_IMAGE_TITLE, name),
            (ORG_OPENCONTAINERS_IMAGE_VERSION, version),
            (ORG_OPENCONTAINERS_IMAGE_DESCRIPTION, description),
        ];
        let manifest = OciImageManifest {
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: descriptor(CONFIG_TYPE, &config),
            layers: layers.collect(),
            annotations: Some(annotated(about)),
            ..OciImageManifest::default()
        };
        let blobs = [config].into_iter().chain(files.parts.iter().map(|(_, bytes)| bytes.clone()));
        Self::with(manifest, blobs.collect(), version)
    }

    /// The artifact of a WIT package, encoded as WebAssembly, in the form that `wkg` reads.
    ///
    /// # Errors
    ///
    /// Returns an error when the manifest or the config cannot be written as JSON.
    pub fn of_wit(package: Vec<u8>, version: &str) -> Result<Self, RegistryError> {
        let layer = descriptor(Part::Component.media_type(), &package);
        let layer_digests = [&*layer.digest];
        let created = "1970-01-01T00:00:00Z";
        let config = json(&WasmConfig { created, architecture: "wasm", os: "wasip2", layer_digests })?;
        let manifest = OciImageManifest {
            config: descriptor(WASM_CONFIG_TYPE, &config),
            layers: vec![layer],
            annotations: Some(annotated([(ORG_OPENCONTAINERS_IMAGE_VERSION, &version.to_owned())])),
            ..OciImageManifest::default()
        };
        Self::with(manifest, vec![config, package.into()], version)
    }

    fn with(manifest: OciImageManifest, blobs: Vec<Bytes>, version: &str) -> Result<Self, RegistryError> {
        let manifest = json(&OciImageManifest { media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()), ..manifest })?;
        Ok(Self { digest: digest(&manifest), version: version.to_owned(), manifest, blobs })
    }
}

fn json(value: &impl Serialize) -> Result<Bytes, RegistryError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|e| RegistryError::Member(e.to_string()))
}

fn annotated<const N: usize>(pairs: [(&str, &String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// The descriptor of a blob.
fn descriptor(media_type: &str, bytes: &[u8]) -> OciDescriptor {
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    OciDescriptor { media_type: media_type.to_owned(), digest: digest(bytes), size, ..OciDescriptor::default() }
}

/// The digest of a blob in the notation of OCI.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}
