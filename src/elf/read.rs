//! Reads a dynamic section by the program headers alone, as the loader does: section headers
//! may be stripped or wrong.

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _};

use super::Dynamic;

/// Why a file that starts like an ELF file has no facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// A header, segment or table lies outside of the file or contradicts itself.
    #[error("damaged ELF file: {0}")]
    Damaged(String),
    /// A string in it is not UTF-8.
    #[error("the {tag} of an ELF file is not UTF-8: {text:?}")]
    NotUtf8 {
        /// Which string.
        tag: &'static str,
        /// What is legible of it.
        text: String,
    },
    /// A string or a table is larger than any real one.
    #[error("the {tag} of an ELF file is too long: {found}, at most {limit}")]
    TooLong {
        /// Which.
        tag: &'static str,
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
}

/// Longest soname or NEEDED entry taken, in bytes (`PATH_MAX`).
const MAX_NAME: usize = 4096;
/// Longest search path taken, in bytes.
const MAX_PATH: usize = 1 << 16;
/// Most NEEDED entries taken.
const MAX_NEEDED: usize = 4096;

/// Whether `bytes` start with the ELF magic number. Four bytes are enough.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

/// The dynamic facts of a shared object or executable (`ET_DYN`, `ET_EXEC`); `None` for
/// anything else: other files, object files, cores.
///
/// # Errors
///
/// A file with the ELF magic number that cannot be read as one. Never panics, whatever the bytes.
pub fn read(bytes: &[u8]) -> Result<Option<Dynamic>, ElfError> {
    if !is_elf(bytes) {
        return Ok(None);
    }
    match bytes.get(4) {
        Some(&class) if class == elf::ELFCLASS64.0 => {
            read_as::<elf::FileHeader64<Endianness>>(bytes)
        }
        Some(&class) if class == elf::ELFCLASS32.0 => {
            read_as::<elf::FileHeader32<Endianness>>(bytes)
        }
        Some(class) => Err(ElfError::Damaged(format!("class {class}"))),
        None => Err(ElfError::Damaged("it ends after the magic number".into())),
    }
}

fn damaged(error: object::read::Error) -> ElfError {
    ElfError::Damaged(error.to_string())
}

fn read_as<Elf: FileHeader<Endian = Endianness>>(
    bytes: &[u8],
) -> Result<Option<Dynamic>, ElfError> {
    let header = Elf::parse(bytes).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let kind = header.e_type(endian);
    if kind != elf::ET_DYN && kind != elf::ET_EXEC {
        return Ok(None);
    }
    let mut out = Dynamic {
        machine: header.e_machine(endian).0,
        class32: header.is_class_32(),
        ..Dynamic::default()
    };
    let segments = header.program_headers(endian, bytes).map_err(damaged)?;
    let mut dynamic = None;
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, bytes).map_err(damaged)? {
            out.interpreter = Some(text("PT_INTERP", path, MAX_NAME)?);
        }
        if let Some(entries) = segment.dynamic(endian, bytes).map_err(damaged)? {
            dynamic = Some(entries);
        }
    }
    let Some(entries) = dynamic else { return Ok(Some(out)) };

    // The string table is given by address: find the loaded segment that holds it.
    let mut address = None;
    let mut size: Option<u64> = None;
    let mut strings = Vec::new();
    for entry in entries {
        let (tag, value): (_, u64) = (entry.d_tag(endian), entry.d_val(endian).into());
        if tag == elf::DT_NULL {
            break;
        }
        if tag == elf::DT_STRTAB {
            address = Some(value);
        } else if tag == elf::DT_STRSZ {
            size = Some(value);
        } else if tag == elf::DT_NEEDED
            || tag == elf::DT_SONAME
            || tag == elf::DT_RPATH
            || tag == elf::DT_RUNPATH
        {
            strings.push((tag, value));
        }
    }
    if strings.is_empty() {
        return Ok(Some(out));
    }
    let address = address.ok_or_else(|| ElfError::Damaged("no DT_STRTAB".into()))?;
    let size = size.ok_or_else(|| ElfError::Damaged("no DT_STRSZ".into()))?;
    let mut table = None;
    for segment in segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD) {
        if let Some(data) = segment
            .data_range(endian, bytes, address, size)
            .map_err(|()| ElfError::Damaged("a segment lies outside of the file".into()))?
        {
            table = Some(data);
            break;
        }
    }
    let table =
        table.ok_or_else(|| ElfError::Damaged("DT_STRTAB lies in no loaded segment".into()))?;

    for (tag, offset) in strings {
        let rest = usize::try_from(offset).ok().and_then(|offset| table.get(offset..));
        let string = rest.and_then(|rest| Some(&rest[..rest.iter().position(|b| *b == 0)?]));
        let string =
            string.ok_or_else(|| ElfError::Damaged("a string lies outside of DT_STRTAB".into()))?;
        if tag == elf::DT_NEEDED {
            if out.needed.len() == MAX_NEEDED {
                let (found, limit) = (MAX_NEEDED + 1, MAX_NEEDED);
                return Err(ElfError::TooLong { tag: "list of DT_NEEDED", found, limit });
            }
            out.needed.push(text("DT_NEEDED", string, MAX_NAME)?);
        } else if tag == elf::DT_SONAME {
            out.soname = Some(text("DT_SONAME", string, MAX_NAME)?);
        } else if tag == elf::DT_RPATH {
            out.rpath = split(&text("DT_RPATH", string, MAX_PATH)?);
        } else {
            out.runpath = split(&text("DT_RUNPATH", string, MAX_PATH)?);
        }
    }
    Ok(Some(out))
}

fn text(tag: &'static str, bytes: &[u8], limit: usize) -> Result<String, ElfError> {
    if bytes.len() > limit {
        return Err(ElfError::TooLong { tag, found: bytes.len(), limit });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ElfError::NotUtf8 { tag, text: String::from_utf8_lossy(bytes).into() }),
    }
}

fn split(path: &str) -> Vec<String> {
    if path.is_empty() { Vec::new() } else { path.split(':').map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// Compiles an empty library with these linker flags.
    fn compile(flags: &[&str]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        std::fs::write(dir.path().join("x.c"), "int gpuenv_x(void) { return 1; }\n").unwrap();
        std::fs::write(dir.path().join("main.c"), "int main(void) { return 0; }\n").unwrap();
        let source = if flags.contains(&"-shared") { "x.c" } else { "main.c" };
        let status = Command::new("cc")
            .current_dir(dir.path())
            .args(["-o", "out", source])
            .args(flags)
            .status()
            .unwrap();
        assert!(status.success());
        std::fs::read(out).unwrap()
    }

    static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        compile(&[
            "-shared",
            "-fPIC",
            "-Wl,-soname,libx.so.3",
            "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../q/lib:$ORIGIN",
            "-Wl,--no-as-needed",
            "-lm",
        ])
    });

    #[test]
    fn reads_a_library() {
        let found = read(&LIBRARY).unwrap().unwrap();
        assert_eq!(found.soname.as_deref(), Some("libx.so.3"));
        assert_eq!(found.needed, ["libm.so.6", "libc.so.6"]);
        assert_eq!(found.runpath, ["$ORIGIN/../../q/lib", "$ORIGIN"]);
        assert!(found.rpath.is_empty() && found.interpreter.is_none());
        assert_eq!(found.search_path(), found.runpath);
    }

    #[test]
    fn tells_rpath_from_runpath_and_finds_the_interpreter() {
        let found = read(&compile(&["-Wl,--disable-new-dtags,-rpath,/opt/x"])).unwrap().unwrap();
        assert_eq!(found.rpath, ["/opt/x"]);
        assert!(found.runpath.is_empty() && found.soname.is_none());
        assert!(found.interpreter.unwrap().contains("ld-linux"));
    }

    #[test]
    fn needs_no_section_headers() {
        let mut bytes = LIBRARY.clone();
        let whole = read(&bytes).unwrap();
        // e_shoff, e_shnum, e_shstrndx of a 64-bit header.
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        assert_eq!(read(&bytes).unwrap(), whole);
    }

    #[test]
    fn other_files_have_no_facts() {
        assert_eq!(read(b""), Ok(None));
        assert_eq!(read(b"#!/bin/sh\n"), Ok(None));
        // ET_REL.
        let mut object = LIBRARY.clone();
        object[0x10] = 1;
        assert_eq!(read(&object), Ok(None));
        // A linker script with a library's name is text.
        assert_eq!(read(b"GROUP ( libc.so.6 )"), Ok(None));
    }

    #[test]
    fn a_cut_file_is_damaged() {
        assert!(read(b"\x7fELF").is_err());
        assert!(read(b"\x7fELF\x07").is_err());
        assert!(read(&LIBRARY[..0x100]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Whatever is overwritten, the answer is a value or an error, never a panic. The
        /// headers and the dynamic section are hit on purpose.
        #[test]
        fn mutated_files_never_panic(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0usize..3), 1..8),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ) {
            let mut bytes = LIBRARY.clone();
            let dynamic = find_dynamic(&bytes);
            for (at, value, place) in edits {
                let range = match place {
                    0 => 4..0x200,
                    1 => dynamic.clone(),
                    _ => 4..bytes.len() - 8,
                };
                let at = range.start + at.index(range.len());
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let _ = read(&bytes);
        }
    }

    fn find_dynamic(bytes: &[u8]) -> std::ops::Range<usize> {
        let header = elf::FileHeader64::<Endianness>::parse(bytes).unwrap();
        let endian = header.endian().unwrap();
        let segments = header.program_headers(endian, bytes).unwrap();
        let found = segments.iter().find(|s| s.p_type(endian) == elf::PT_DYNAMIC).unwrap();
        let (offset, size) = found.file_range(endian);
        offset as usize..(offset + size) as usize
    }
}
