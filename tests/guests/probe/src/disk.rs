//! What is tried with files until something says no.

use std::{
    ffi::{CString, c_char, c_int},
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    thread,
    time::Duration,
};

/// What a plain program writes at a time.
const CHUNK: usize = 4096;

/// `None` for a verb that is none of files.
pub fn attempt(verb: &str, a: &str, b: &str) -> Option<Result<String, String>> {
    let n = b.parse().unwrap_or(0);
    let done = match verb {
        "symlink" => symlink(a, b).map(|()| String::new()),
        "readlink" => fs::read_link(a).map(|to| to.to_string_lossy().into_owned()),
        "rmdir" => fs::remove_dir(a).map(|()| String::new()),
        "size" => fs::metadata(a).map(|meta| meta.len().to_string()),
        "modified" => fs::metadata(a).map(|meta| format!("{:?}", meta.modified().is_ok())),
        "count" => fs::read_dir(a).map(|entries| entries.count().to_string()),
        "set-size" => open(a).and_then(|file| file.set_len(n)).map(|()| String::new()),
        "at" => at(a, n).map(|()| String::new()),
        // A file's stream is closed by the first write that fails, so each piece has one of its own.
        "fill" => Ok(bytes(n, |more| {
            let file = OpenOptions::new().append(true).create(true).open(a)?;
            write(&file, more)
        })),
        "await" => Ok(awaited(a)),
        "unlinked" => unlinked(a, n),
        "outlived" => outlived(a, b),
        "interleave" => interleave(a, b),
        "empties" => open(a).and_then(|file| (0..n).try_for_each(|_| write(&file, 0))).map(|()| String::new()),
        "files" => Ok(times(n, |more| File::create(format!("{a}/{more}")).map(drop))),
        "links" => Ok(times(n, |more| fs::hard_link(a, format!("{a}.{more}")))),
        "symlinks" => Ok(times(n, |more| symlink("x", &format!("{a}/{more}")))),
        "dirs" => Ok(times(n, |more| fs::create_dir(format!("{a}/{more}")))),
        "deep" => Ok(deep(a, n)),
        "opens" => Ok(opens(a, n)),
        "churn" => churn(a, n),
        _ => return None,
    };
    Some(done.map_err(said))
}

fn said(error: io::Error) -> String {
    error.to_string()
}

fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

fn write(mut file: &File, bytes: u64) -> io::Result<()> {
    file.write(&vec![b'x'; bytes as usize]).map(drop)
}

/// Takes up to `n` bytes, in ever smaller pieces, so that the last one that fits is found. How many were given; and why
/// not more, if not all of them.
fn bytes(n: u64, mut take: impl FnMut(u64) -> io::Result<()>) -> String {
    let (mut had, mut piece) = (0, CHUNK as u64);
    while had < n {
        piece = piece.min(n - had);
        match take(piece) {
            Ok(()) => had += piece,
            Err(_) if piece > 1 => piece /= 2,
            Err(error) => return format!("{had}, then {}", said(error)),
        }
    }
    had.to_string()
}

/// Does something `n` times, as long as it can be done, and says how often it could.
fn times(n: u64, mut take: impl FnMut(u64) -> io::Result<()>) -> String {
    for had in 0..n {
        if let Err(error) = take(had) {
            return format!("{had}, then {}", said(error));
        }
    }
    n.to_string()
}

/// Waits until something is there.
fn awaited(path: &str) -> String {
    while fs::symlink_metadata(path).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    String::new()
}

/// One byte behind a hole.
fn at(path: &str, offset: u64) -> io::Result<()> {
    let mut file = open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(b"x")
}

/// Fills a file that has lost its name.
fn unlinked(path: &str, n: u64) -> io::Result<String> {
    let file = open(path)?;
    fs::remove_file(path)?;
    Ok(bytes(n, |more| write(&file, more)))
}

/// Opens a file, removes what may be the same one, and fills another meanwhile.
fn outlived(open: &str, removed: &str) -> io::Result<String> {
    let _open = File::open(open)?;
    fs::remove_file(removed)?;
    Ok(bytes(1 << 20, |more| write(&OpenOptions::new().append(true).create(true).open("/job/artifacts/rest")?, more)))
}

/// Two files that are open at the same time, in turns.
fn interleave(a: &str, b: &str) -> io::Result<String> {
    let (a, b) = (open(a)?, open(b)?);
    let mut turn = false;
    Ok(bytes(u64::MAX, |more| {
        turn = !turn;
        write(if turn { &a } else { &b }, more)
    }))
}

fn deep(top: &str, n: u64) -> String {
    let mut path = top.to_owned();
    times(n, |_| {
        path.push_str("/d");
        fs::create_dir(&path)
    })
}

/// Opens a file again and again, reads a byte of each, and closes none.
fn opens(path: &str, n: u64) -> String {
    let mut open = Vec::new();
    times(n, |_| {
        let mut file = File::open(path)?;
        let _read = file.read(&mut [0])?;
        open.push(file);
        Ok(())
    })
}

/// Makes, fills and removes one file as often.
fn churn(path: &str, n: u64) -> io::Result<String> {
    for _ in 0..n {
        fs::write(path, [b'x'; CHUNK])?;
        fs::remove_file(path)?;
    }
    Ok(String::new())
}

fn symlink(target: &str, path: &str) -> io::Result<()> {
    unsafe extern "C" {
        fn symlink(target: *const c_char, path: *const c_char) -> c_int;
    }
    let (target, path) = (CString::new(target)?, CString::new(path)?);
    // SAFETY: both are strings that end with a NUL and outlive the call.
    match unsafe { symlink(target.as_ptr(), path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
