//! Makers of archives for tests: well-formed ones, and hostile ones that no library would write.

use std::io::Write;

use data_encoding::BASE64URL_NOPAD;

use crate::hash::Sha256;

/// One entry of a zip file, as its two headers shall have it.
pub(crate) struct ZipEntry {
    pub name: Vec<u8>,
    pub content: Vec<u8>,
    pub mode: u32,
    pub deflate: bool,
    pub flags: u16,
    /// Name in the local header, where it shall differ.
    pub local_name: Option<Vec<u8>>,
    /// Checksum in both headers, where it shall be wrong.
    pub crc: Option<u32>,
    /// Uncompressed size in both headers, where it shall be wrong.
    pub size: Option<u32>,
    /// System that made it: 3 is Unix, 0 is DOS.
    pub system: u8,
    /// Compression method in both headers, where it shall be another.
    pub method: Option<u16>,
}

pub(crate) fn entry(name: &str, content: &[u8]) -> ZipEntry {
    ZipEntry {
        name: name.as_bytes().to_vec(),
        content: content.to_vec(),
        mode: if name.ends_with('/') { 0o040755 } else { 0o100644 },
        deflate: true,
        flags: 0x800,
        local_name: None,
        crc: None,
        size: None,
        system: 3,
        method: None,
    }
}

/// Writes a zip file.
pub(crate) fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut central = Vec::new();
    for e in entries {
        let offset = out.len() as u32;
        let packed = if e.deflate {
            let mut z = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            z.write_all(&e.content).unwrap();
            z.finish().unwrap()
        } else {
            e.content.clone()
        };
        let method = e.method.unwrap_or(if e.deflate { 8 } else { 0 });
        let fixed = |v: &mut Vec<u8>, name: &[u8]| {
            v.extend(20u16.to_le_bytes());
            v.extend(e.flags.to_le_bytes());
            v.extend(method.to_le_bytes());
            v.extend(0u16.to_le_bytes());
            v.extend(0x21u16.to_le_bytes());
            v.extend(e.crc.unwrap_or(libdeflater::crc32(&e.content)).to_le_bytes());
            v.extend((packed.len() as u32).to_le_bytes());
            v.extend(e.size.unwrap_or(e.content.len() as u32).to_le_bytes());
            v.extend((name.len() as u16).to_le_bytes());
            v.extend(0u16.to_le_bytes());
        };
        out.extend(b"PK\x03\x04");
        let local = e.local_name.as_ref().unwrap_or(&e.name);
        fixed(&mut out, local);
        out.extend(local);
        out.extend(&packed);
        central.extend(b"PK\x01\x02");
        central.extend([0x14, e.system]);
        fixed(&mut central, &e.name);
        central.extend([0; 6]);
        central.extend((e.mode << 16).to_le_bytes());
        central.extend(offset.to_le_bytes());
        central.extend(&e.name);
    }
    let at = out.len() as u32;
    out.extend(&central);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((central.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0; 2]);
    out
}

/// The `.dist-info` of a wheel, with a `RECORD` that is right for `files`.
pub(crate) fn dist_info(name: &str, version: &str, files: &[ZipEntry]) -> Vec<ZipEntry> {
    let dir = format!("{name}-{version}.dist-info");
    let mut more = vec![
        entry(
            &format!("{dir}/METADATA"),
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nwords\n")
                .as_bytes(),
        ),
        entry(
            &format!("{dir}/WHEEL"),
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
    ];
    let mut record = String::new();
    for e in files.iter().chain(&more).filter(|e| !e.name.ends_with(b"/")) {
        let digest = BASE64URL_NOPAD.encode(Sha256::of(&e.content).as_bytes());
        let name = String::from_utf8_lossy(&e.name).into_owned();
        record.push_str(&format!("\"{name}\",sha256={digest},{}\n", e.content.len()));
    }
    record.push_str(&format!("{dir}/RECORD,,\n"));
    more.push(entry(&format!("{dir}/RECORD"), record.as_bytes()));
    more
}

/// A whole wheel.
pub(crate) fn wheel(name: &str, version: &str, mut files: Vec<ZipEntry>) -> Vec<u8> {
    let more = dist_info(name, version, &files);
    files.extend(more);
    zip(&files)
}

/// One entry of a tar.
#[derive(Clone)]
pub(crate) struct TarEntry {
    pub name: String,
    pub kind: u8,
    pub link: String,
    pub content: Vec<u8>,
    pub mode: u32,
}

pub(crate) fn tar_file(name: &str, content: &[u8]) -> TarEntry {
    TarEntry {
        name: name.into(),
        kind: b'0',
        link: String::new(),
        content: content.to_vec(),
        mode: 0o644,
    }
}

pub(crate) fn tar_link(kind: u8, name: &str, link: &str) -> TarEntry {
    TarEntry { name: name.into(), kind, link: link.into(), content: Vec::new(), mode: 0o777 }
}

/// Writes a tar (ustar), byte by byte, as the `tar` crate refuses to write what is hostile.
pub(crate) fn tar(entries: &[TarEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    for e in entries {
        let mut h = [0u8; 512];
        h[..e.name.len()].copy_from_slice(e.name.as_bytes());
        h[100..108].copy_from_slice(format!("{:07o}\0", e.mode).as_bytes());
        h[108..116].copy_from_slice(b"0000000\0");
        h[116..124].copy_from_slice(b"0000000\0");
        h[124..136].copy_from_slice(format!("{:011o}\0", e.content.len()).as_bytes());
        h[136..148].copy_from_slice(b"00000000000\0");
        h[148..156].copy_from_slice(b"        ");
        h[156] = e.kind;
        h[157..157 + e.link.len()].copy_from_slice(e.link.as_bytes());
        h[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
        h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(h);
        out.extend(&e.content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// `info/index.json`.
pub(crate) fn index_json(name: &str) -> TarEntry {
    let json = format!(
        r#"{{"name":"{name}","version":"1.0","build":"h0_0","build_number":0,"subdir":"linux-64","depends":["libz >=1"]}}"#
    );
    tar_file("info/index.json", json.as_bytes())
}

pub(crate) fn tar_bz2(entries: &[TarEntry]) -> Vec<u8> {
    let mut z = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    z.write_all(&tar(entries)).unwrap();
    z.finish().unwrap()
}

/// A `.conda` of an info tar and a package tar.
pub(crate) fn conda(info: &[TarEntry], pkg: &[TarEntry]) -> Vec<u8> {
    let part = |name: &str, content: Vec<u8>| ZipEntry { deflate: false, ..entry(name, &content) };
    let zst = |entries| zstd::encode_all(&tar(entries)[..], 3).unwrap();
    zip(&[
        part("metadata.json", br#"{"conda_pkg_format_version": 2}"#.to_vec()),
        part("pkg-x-1.0-h0_0.tar.zst", zst(pkg)),
        part("info-x-1.0-h0_0.tar.zst", zst(info)),
    ])
}

/// A file or directory of test data that is not part of the repository; for tests that are
/// ignored unless asked for.
pub(crate) fn data(path: &str) -> std::path::PathBuf {
    let root = std::env::var_os("GPUENV_TEST_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"),
        std::path::PathBuf::from,
    );
    root.join(path)
}
