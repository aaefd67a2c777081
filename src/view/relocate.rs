//! Puts the view's path in place of a placeholder. Pure: bytes in, bytes out.

use std::path::Path;

use super::content::{MAX_SHEBANG, RUN_SCRIPT, python_first_line, python_script};

/// A text file: each placeholder becomes `prefix`. A first line that the kernel could no longer
/// read runs its interpreter another way.
pub(super) fn text(bytes: &[u8], placeholder: &str, prefix: &str) -> Vec<u8> {
    let replaced = replace(bytes, placeholder.as_bytes(), prefix.as_bytes());
    let line_end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    if !bytes.starts_with(b"#!") || find(&bytes[..line_end], placeholder.as_bytes()).is_none() {
        return replaced;
    }
    let end = replaced.iter().position(|b| *b == b'\n').unwrap_or(replaced.len());
    let Ok(line) = std::str::from_utf8(&replaced[2..end]) else { return replaced };
    let line = line.trim();
    // With a space in the prefix, only the placeholder's place tells where the path ends.
    let (program, args) = match line.strip_prefix(prefix) {
        Some(rest) => {
            let (tail, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (format!("{prefix}{tail}"), args.trim())
        }
        None => match line.split_once(char::is_whitespace) {
            Some((program, args)) => (program.to_owned(), args.trim()),
            None => (line.to_owned(), ""),
        },
    };
    if end <= MAX_SHEBANG && !program.contains(char::is_whitespace) {
        return replaced;
    }
    let body = replaced.get(end + 1..).unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|n| n.to_str()).unwrap_or("sh");
    let head = if name.starts_with("python") || name.starts_with("pypy") {
        python_first_line(Path::new(&program), args)
    } else if args.is_empty() {
        format!("#!/usr/bin/env {name}\n")
    } else {
        format!("#!/usr/bin/env -S {name} {args}\n")
    };
    let mut out = head.into_bytes();
    out.extend_from_slice(body);
    out
}

/// What became of a binary file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binary {
    /// The bytes, as many as before.
    pub bytes: Vec<u8>,
    /// Offsets of placeholders in what is no NUL-terminated string.
    pub unterminated: Vec<usize>,
}

/// A binary file: in each NUL-terminated string (C string), the placeholders become `prefix` and
/// the string is filled up with NULs at its end. A placeholder in text that no NUL ends (strings
/// of Rust and Go, marshalled code) is filled up with slashes in place instead, since whoever
/// holds the length of that text, or what follows it, must not be moved; such are reported.
///
/// # Errors
///
/// `prefix` is longer than the placeholder.
pub(super) fn binary(bytes: &[u8], placeholder: &str, prefix: &str) -> Result<Binary, TooLong> {
    let (old, new) = (placeholder.as_bytes(), prefix.as_bytes());
    if new.len() > old.len() {
        return Err(TooLong);
    }
    let mut out = bytes.to_vec();
    let mut unterminated = Vec::new();
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], old) {
        let start = at + found;
        let length = bytes[start..].iter().position(|b| *b == 0);
        let end = start + length.unwrap_or(bytes.len() - start);
        let string = &bytes[start..end];
        if length.is_some() && is_text(string) {
            let mut replaced = replace(string, old, new);
            replaced.resize(string.len(), 0);
            out[start..end].copy_from_slice(&replaced);
            at = end;
        } else {
            unterminated.push(start);
            let place = &mut out[start..start + old.len()];
            place[..new.len()].copy_from_slice(new);
            place[new.len()..].fill(b'/');
            at = start + old.len();
        }
    }
    Ok(Binary { bytes: out, unterminated })
}

/// The view's path is longer than a placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Whether bytes look like the text that a C string holds.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_ok_and(|text| !text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()))
}

/// A script of a wheel that starts with `#!python` or `#!pythonw`: the first line becomes that of
/// `python`, with the arguments kept. Anything else is left alone.
pub(super) fn python_shebang(bytes: &[u8], python: &Path) -> Vec<u8> {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let line = std::str::from_utf8(&bytes[..end]).ok();
    let rest = line.and_then(|line| line.strip_prefix("#!python"));
    let Some(rest) = rest else { return bytes.to_vec() };
    let rest = rest.strip_prefix('w').unwrap_or(rest);
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return bytes.to_vec();
    }
    python_script(python, rest.trim(), bytes.get(end + 1..).unwrap_or_default())
}

/// A kernel specification of Jupyter whose command is a Python: the view's own, started by the
/// view's `share/gpuenv/run`. One for another language is left alone. `None`: the text is no
/// kernel specification.
pub(super) fn kernelspec(bytes: &[u8], prefix: &str) -> Option<Vec<u8>> {
    let mut spec: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let argv = spec.get_mut("argv")?.as_array_mut()?;
    let program = Path::new(argv.first()?.as_str()?).file_name()?.to_str()?.to_owned();
    if !program.starts_with("python") {
        return Some(bytes.to_vec());
    }
    argv[0] = format!("{prefix}/bin/python").into();
    argv.insert(0, format!("{prefix}/{RUN_SCRIPT}").into());
    Some(format!("{spec:#}\n").into_bytes())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut at = 0;
    loop {
        at += haystack[at..].iter().position(|b| b == first)?;
        if haystack[at + 1..].starts_with(rest) {
            return Some(at);
        }
        at += 1;
    }
}

fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], old) {
        out.extend_from_slice(&bytes[at..at + found]);
        out.extend_from_slice(new);
        at += found + old.len();
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: &str = "/opt/placehold_placehold";

    #[test]
    fn text_is_replaced_everywhere() {
        let before = format!("a={OLD}/lib\nb={OLD}:{OLD}/x\n");
        assert_eq!(text(before.as_bytes(), OLD, "/v"), b"a=/v/lib\nb=/v:/v/x\n");
    }

    #[test]
    fn a_first_line_too_long_for_the_kernel_goes_another_way() {
        let long = format!("/{}", "x".repeat(200));
        let run = |line: &str| String::from_utf8(text(line.as_bytes(), OLD, &long)).unwrap();
        let python = run(&format!("#!{OLD}/bin/python3.11 -E\nprint()\n"));
        assert!(python.starts_with("#!/bin/sh\n'''exec' \"/xxx"), "{python}");
        assert!(
            python.contains("/bin/python3.11\" -E \"$0\" \"$@\"\n' '''\nprint()\n"),
            "{python}"
        );
        let perl = run(&format!("#!{OLD}/bin/perl -w\nx\n"));
        assert_eq!(perl, "#!/usr/bin/env -S perl -w\nx\n");
        assert_eq!(run(&format!("#!{OLD}/bin/bash\nx\n")), "#!/usr/bin/env bash\nx\n");
        // A placeholder further down is no reason.
        let other = run(&format!("#!/bin/sh\n{OLD}\n"));
        assert!(other.starts_with("#!/bin/sh\n/xxx"));
    }

    #[test]
    fn a_space_in_the_prefix_goes_another_way() {
        let got = text(format!("#!{OLD}/bin/python -E\n").as_bytes(), OLD, "/a b");
        assert_eq!(got, b"#!/bin/sh\n'''exec' \"/a b/bin/python\" -E \"$0\" \"$@\"\n' '''\n");
    }

    #[test]
    fn each_c_string_keeps_its_length() {
        let before = format!("\0x={OLD}/share\0{OLD}:{OLD}/lib\0tail");
        let got = binary(before.as_bytes(), OLD, "/v").unwrap();
        let n = OLD.len() - 2;
        let after =
            format!("\0x=/v/share{}\0/v:/v/lib{}\0tail", "\0".repeat(n), "\0".repeat(2 * n));
        assert_eq!(got.bytes, after.as_bytes());
        assert!(got.unterminated.is_empty());
    }

    #[test]
    fn text_without_an_end_is_filled_in_place_and_reported() {
        // As in a Rust program: a length elsewhere, the next string right behind.
        let before = format!("\x01{OLD}/share\x05other\0{OLD}");
        let got = binary(before.as_bytes(), OLD, "/v").unwrap();
        assert_eq!(got.unterminated.len(), 2);
        let filled = format!("/v{}", "/".repeat(OLD.len() - 2));
        assert_eq!(got.bytes, format!("\x01{filled}/share\x05other\0{filled}").as_bytes());
    }

    #[test]
    fn a_longer_prefix_does_not_fit() {
        assert_eq!(binary(b"", OLD, &"x".repeat(OLD.len() + 1)), Err(TooLong));
        assert!(binary(b"", OLD, &"x".repeat(OLD.len())).is_ok());
    }

    #[test]
    fn the_python_of_a_wheels_script_is_the_views() {
        let python = Path::new("/v/bin/python");
        for (before, after) in [
            ("#!python\nx", "#!/v/bin/python\nx"),
            ("#!pythonw -i\nx", "#!/v/bin/python -i\nx"),
            ("#!python\r\nx", "#!/v/bin/python\nx"),
            ("#!python", "#!/v/bin/python\n"),
            ("#!pythonish\nx", "#!pythonish\nx"),
            ("#!/bin/sh\nx", "#!/bin/sh\nx"),
        ] {
            let got = python_shebang(before.as_bytes(), python);
            assert_eq!(String::from_utf8(got).unwrap(), after);
        }
    }

    #[test]
    fn a_kernel_starts_in_the_view() {
        let before = br#"{"argv": ["/build/bin/python3.11", "-m", "x", "-f", "{connection_file}"], "language": "python"}"#;
        let after: serde_json::Value =
            serde_json::from_slice(&kernelspec(before, "/v").unwrap()).unwrap();
        let argv = serde_json::json!([
            "/v/share/gpuenv/run",
            "/v/bin/python",
            "-m",
            "x",
            "-f",
            "{connection_file}"
        ]);
        assert_eq!((&after["argv"], &after["language"]), (&argv, &"python".into()));
        let other = br#"{"argv": ["R", "--slave"]}"#;
        assert_eq!(kernelspec(other, "/v").as_deref(), Some(&other[..]));
        assert!(kernelspec(b"{}", "/v").is_none() && kernelspec(b"x", "/v").is_none());
    }

    proptest! {
        #[test]
        fn binary_keeps_length_and_leaves_no_placeholder(
            parts in prop::collection::vec(
                prop_oneof![
                    Just(OLD.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..6),
                    Just(vec![0]),
                ],
                0..20,
            ),
            prefix in "/[a-z/]{0,23}",
        ) {
            let before: Vec<u8> = parts.concat();
            let got = binary(&before, OLD, &prefix).unwrap();
            prop_assert_eq!(got.bytes.len(), before.len());
            prop_assert!(find(&got.bytes, OLD.as_bytes()).is_none());
            let count = |bytes: &[u8], what: &[u8]| {
                let (mut n, mut at) = (0, 0);
                while let Some(found) = find(&bytes[at..], what) {
                    n += 1;
                    at += found + what.len();
                }
                n
            };
            prop_assert!(count(&got.bytes, prefix.as_bytes()) >= count(&before, OLD.as_bytes()));
        }
    }
}
