//! `guild tls self-signed`: makes a certificate for a host that has none from an authority.

use std::{fs, io, path::Path};

use guild_config::shell_word;
use guild_fs::durable::{Survives, Write, open_dir, open_directory, replace_as};
use jiff::{ToSpan as _, Zoned, tz::TimeZone};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

use crate::{
    args::operator::{SelfSigned, Tls},
    failure::Failure,
    output::{print, tell},
};

/// The names of the files.
const CERTIFICATE: &str = "guild-tls.pem";
const KEY: &str = "guild-tls.key";

/// `guild tls`.
pub(crate) fn tls(args: Tls) -> Result<(), Failure> {
    match args {
        Tls::SelfSigned(args) => self_signed(args),
    }
}

/// The parameters of a certificate for these names and addresses, which is valid for so many days.
pub(super) fn parameters(
    names: &[String],
    usages: &[ExtendedKeyUsagePurpose],
    days: u16,
) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(names).map_err(|e| refused(names, &e))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("guild", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages.to_vec();
    // Clocks of clients may be behind.
    let today = Zoned::now().with_time_zone(TimeZone::UTC);
    let time = |days: i32| {
        let day = today.checked_add(days.days()).map_err(|e| Failure::error(format!("--days: {e}")))?;
        Ok::<_, Failure>(rcgen::date_time_ymd(day.year().into(), day.month().unsigned_abs(), day.day().unsigned_abs()))
    };
    (params.not_before, params.not_after) = (time(-1)?, time(i32::from(days))?);
    Ok(params)
}

/// The failure to make a certificate.
pub(super) fn refused(names: &[String], error: &rcgen::Error) -> Failure {
    Failure::error(format!("there can be no certificate for {}: {error}", names.join(", ")))
}

fn self_signed(args: SelfSigned) -> Result<(), Failure> {
    let SelfSigned { names, directory, days, force } = args;
    let params = parameters(&names, &[ExtendedKeyUsagePurpose::ServerAuth], days)?;
    let key = KeyPair::generate().map_err(|e| refused(&names, &e))?;
    let certificate = params.self_signed(&key).map_err(|e| refused(&names, &e))?;

    let at = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| Failure::error(format!("{path}: {e}"))
    };
    fs::create_dir_all(&directory).map_err(at(&directory))?;
    let directory = directory.canonicalize().map_err(at(&directory))?;
    // With read access, so that its renames can be synced.
    let dir = open_directory(&directory).and_then(|dir| open_dir(&dir, ".")).map_err(at(&directory))?;
    let [key_file, certificate_file] = [KEY, CERTIFICATE].map(|name| directory.join(name));
    if let Some(there) = [&key_file, &certificate_file].into_iter().find(|file| file.symlink_metadata().is_ok())
        && !force
    {
        return Err(Failure::error(format!("{} exists; replace it with --force", there.display())));
    }
    for (name, path, mode, text) in
        [(KEY, &key_file, 0o600, key.serialize_pem()), (CERTIFICATE, &certificate_file, 0o644, certificate.pem())]
    {
        replace_as(&dir, name, text.as_bytes(), Write { mode, survives: Survives::PowerCut }).map_err(at(path))?;
    }

    let file = |file: &Path| toml::Value::from(file.to_string_lossy().into_owned());
    let hosts = toml::Value::from(names);
    tell(format_args!(
        "for guild.toml; clients on other machines need {CERTIFICATE} only, as `--ca {}` or $GUILD_CA:",
        shell_word(&certificate_file)
    ));
    print(|out| {
        let (certificate, key) = (file(&certificate_file), file(&key_file));
        writeln!(out, "hosts = {hosts}\n\n[tls]\ncertificate = {certificate}\nkey = {key}")
    })?;
    Ok(())
}
