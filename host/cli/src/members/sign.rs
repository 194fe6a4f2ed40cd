//! `guild sign`: makes minisign signatures, and keys for them.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use ct_codecs::{Base64, Decoder as _};
use guild_fs::regular_file;
use guild_trust::{TRUST_FILE, digests_beside, write_beside};
use jiff::Timestamp;
use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox};

use crate::{
    args::members::Sign,
    failure::Failure,
    output::{harmless, one_line, tell},
};

/// The maximum size of a key file, which has two lines.
const MAX_KEY_BYTES: u64 = 16 * 1024;
/// The prefix of the second line of a secret key with a password: its three algorithms in base64.
const ENCRYPTED: &str = "RWRTY0Iy";
/// The prefix for a secret key without a password.
const PLAIN: &str = "RWQAAEIy";

/// `guild sign`.
pub(crate) fn sign(args: &Sign) -> Result<(), Failure> {
    match (&args.new_key, &args.file, &args.key) {
        (Some(path), ..) => new_key(path, args.no_password),
        (None, Some(file), Some(key)) => sign_file(file, key, args.comment.as_deref()),
        // Clap refuses other combinations.
        _ => Err(Failure::error("name a file and --key, or --new-key")),
    }
}

/// Generates a key pair: the secret key in the file, and the public key next to it.
fn new_key(path: &Path, no_password: bool) -> Result<(), Failure> {
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    if let Some(taken) = [path, public.as_path()].into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::error(format!("{} already exists, and no key is overwritten", taken.display())));
    }
    let made = if no_password {
        KeyPair::generate_unencrypted_keypair()
    } else {
        KeyPair::generate_encrypted_keypair(Some(new_password()?))
    };
    let pair = made.map_err(|e| Failure::error(format!("no key could be generated: {e}")))?;
    let secret = pair.sk.to_box(Some("minisign secret key, made by guild")).map(|text| text.to_string());
    let shown = pair.pk.to_box().map(|text| text.to_string());
    let (secret, shown) = secret.and_then(|secret| Ok((secret, shown?))).map_err(|e| Failure::error(e.to_string()))?;
    create(path, 0o600, &secret)?;
    create(&public, 0o644, &shown)?;
    tell(format_args!(
        "the secret key is {}; operators who trust it put the two lines of {} into {TRUST_FILE} next to their \
         guild.toml",
        path.display(),
        public.display()
    ));
    Ok(())
}

/// Creates a file. An existing one is an error.
fn create(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|e| Failure::error(format!("{} cannot be written: {e}", path.display())))
}

/// Asks for a new password twice.
fn new_password() -> Result<String, Failure> {
    let password = ask("Password for the new key: ")?;
    if password != ask("Once more: ")? {
        return Err(Failure::error("the two passwords differ; no key was generated"));
    }
    Ok(password)
}

fn ask(prompt: &str) -> Result<String, Failure> {
    rpassword::prompt_password(prompt).map_err(|e| {
        Failure::error(format!(
            "there is no terminal to ask for the password on ({e}); --no-password makes a key without one"
        ))
    })
}

/// Signs a file.
fn sign_file(file: &Path, key: &Path, comment: Option<&str>) -> Result<(), Failure> {
    let secret = secret_key(key)?;
    let unreadable = |e: io::Error| Failure::error(format!("{} cannot be read: {e}", file.display()));
    let content = regular_file::open(file).map_err(unreadable)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let usual = || format!("timestamp:{}\tfile:{name}\thashed", Timestamp::now().as_second());
    let comment = comment.map_or_else(usual, str::to_owned);
    let beside = digests_beside(file).map_err(|e| Failure::error(e.to_string()))?;
    let comment = format!("{}\t{beside}", comment.trim()).trim_end().to_owned();
    if comment.contains(|c: char| c.is_control() && c != '\t') {
        return Err(Failure::error("the comment is one line, without control characters"));
    }
    let failed = |e: minisign::PError| Failure::error(format!("{} cannot be signed: {e}", file.display()));
    let public = PublicKey::from_secret_key(&secret).map_err(failed)?;
    let signed = minisign::sign(Some(&public), &secret, content, Some(&comment), Some("signature by guild sign"));
    let text = signed.map_err(failed)?.into_string();
    let signature = write_beside(file, &text).map_err(|e| Failure::error(e.to_string()))?;
    tell(format_args!("signed: {} ({})", harmless(&signature.display().to_string()), one_line(&comment, usize::MAX)));
    Ok(())
}

/// Reads a secret key, and asks for its password if it has one.
fn secret_key(path: &Path) -> Result<SecretKey, Failure> {
    let unreadable =
        |why: &dyn fmt::Display| Failure::error(format!("the key {} cannot be read: {why}", path.display()));
    let bytes = regular_file::read(path, MAX_KEY_BYTES).map_err(|e| unreadable(&e))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not UTF-8"))?;
    let no_key =
        |why: &dyn fmt::Display| Failure::error(format!("{} is not a secret key of minisign: {why}", path.display()));
    let line = text.lines().nth(1).unwrap_or_default().trim();
    if line.starts_with(ENCRYPTED) {
        let password = ask("Password: ")?;
        let key = SecretKeyBox::from_string(&text).and_then(|boxed| boxed.into_secret_key(Some(password)));
        key.map_err(|e| no_key(&e))
    } else if line.starts_with(PLAIN) {
        // `SecretKeyBox` requires a checksum, which minisign omits in such a key. A mismatch of the key's two halves is
        // noticed when its first signature is verified.
        let bytes = Base64::decode_to_vec(line, None).map_err(|e| no_key(&e))?;
        SecretKey::from_bytes(&bytes).map_err(|e| no_key(&e))
    } else {
        Err(no_key(&"its second line does not have the prefix of a secret key"))
    }
}
