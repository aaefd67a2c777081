//! The C library and the kernel.

use std::ffi::{CStr, c_char};

/// The version of the machine's glibc, `(major, minor)`; `None` where there is none (musl).
pub fn glibc_version() -> Option<(u16, u16)> {
    from_process().or_else(from_file)
}

/// Asks the library that this process runs on.
fn from_process() -> Option<(u16, u16)> {
    let process = libloading::os::unix::Library::this();
    // SAFETY: `gnu_get_libc_version` (gnu/libc-version.h) takes nothing and returns a pointer to
    // a static, NUL-terminated string; no other library is known to have a symbol of that name.
    let version = unsafe {
        let symbol = process
            .get::<unsafe extern "C" fn() -> *const c_char>(b"gnu_get_libc_version\0")
            .ok()?;
        let text = symbol();
        if text.is_null() {
            return None;
        }
        CStr::from_ptr(text)
    };
    parse(version.to_str().ok()?)
}

/// Looks into the library's file, for a statically linked gpuenv. The banner that the library
/// prints when it is run as a program holds the version.
fn from_file() -> Option<(u16, u16)> {
    const PLACES: [&str; 5] = [
        "/lib64/libc.so.6",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
        "/usr/lib64/libc.so.6",
        "/usr/lib/libc.so.6",
    ];
    PLACES.iter().find_map(|path| banner(&std::fs::read(path).ok()?))
}

fn banner(bytes: &[u8]) -> Option<(u16, u16)> {
    const WORDS: &[u8] = b"release version ";
    let at = bytes.windows(WORDS.len()).position(|w| w == WORDS)? + WORDS.len();
    let rest = &bytes[at..];
    let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.')?;
    parse(std::str::from_utf8(&rest[..end]).ok()?.trim_end_matches('.'))
}

/// Reads `2.36`, `2.36.9000` or `2.17-326`.
fn parse(text: &str) -> Option<(u16, u16)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The kernel's release, as uname(2) says it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        assert_eq!(parse("2.36"), Some((2, 36)));
        assert_eq!(parse("2.38.9000"), Some((2, 38)));
        assert_eq!(parse("musl"), None);
        let text = b"\0GNU C Library (x) stable release version 2.31.\nCopyright";
        assert_eq!(banner(text), Some((2, 31)));
    }

    #[test]
    fn both_ways_agree_on_this_machine() {
        let (process, file) = (from_process(), from_file());
        if process.is_some() && file.is_some() {
            assert_eq!(process, file);
        }
        assert!(!kernel_release().is_empty());
    }
}
