//! Zip archives written byte by byte, so that a test can also make those that no tool would:
//! `..` in names, links, two members of one name, sizes and checksums that lie.
//!
//! Format: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central directory)
//! and 4.3.16 (end of central directory). No zip64: test archives are small.

use std::io::Write as _;

/// `S_IFREG`.
pub const FILE: u32 = 0o100_000;
/// `S_IFLNK`.
pub const LINK: u32 = 0o120_000;

/// One member of an archive.
#[derive(Clone)]
pub struct Member {
    /// Name as stored; a test may put anything here.
    pub name: Vec<u8>,
    /// Content before compression.
    pub data: Vec<u8>,
    /// Unix mode with the file type bits, as Info-ZIP stores it in the external attributes.
    pub mode: u32,
    /// Deflate (method 8) or store (method 0).
    pub deflate: bool,
    /// What both headers say instead of the true uncompressed size.
    pub claimed_size: Option<u32>,
    /// What both headers say instead of the true CRC-32.
    pub claimed_crc: Option<u32>,
    /// The name in the local header, where it differs from the central directory's.
    pub local_name: Option<Vec<u8>>,
}

impl Member {
    /// A regular file, mode 0644.
    pub fn file(name: &str, data: impl Into<Vec<u8>>) -> Self {
        Member {
            name: name.as_bytes().to_vec(),
            data: data.into(),
            mode: FILE | 0o644,
            deflate: true,
            claimed_size: None,
            claimed_crc: None,
            local_name: None,
        }
    }

    /// A symbolic link, as zip tools store it: the target is the content.
    pub fn link(name: &str, target: &str) -> Self {
        Member { mode: LINK | 0o777, deflate: false, ..Member::file(name, target) }
    }

    /// A regular file with these permission bits.
    pub fn mode(mut self, permissions: u32) -> Self {
        self.mode = FILE | permissions;
        self
    }

    /// Not compressed.
    pub fn stored(mut self) -> Self {
        self.deflate = false;
        self
    }
}

/// The archive of `members`, in this order.
pub fn write(members: &[Member]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for member in members {
        let mut crc = flate2::Crc::new();
        crc.update(&member.data);
        let body = if member.deflate { deflate(&member.data) } else { member.data.clone() };
        let method: u16 = if member.deflate { 8 } else { 0 };
        let crc = member.claimed_crc.unwrap_or(crc.sum());
        let size = member.claimed_size.unwrap_or(member.data.len() as u32);
        let offset = out.len() as u32;

        // From "version needed" to "uncompressed size" both headers agree.
        let mut common = Vec::new();
        put16(&mut common, 20);
        put16(&mut common, 0x0800); // names are UTF-8
        put16(&mut common, method);
        put16(&mut common, 0); // 00:00
        put16(&mut common, 0x0021); // 1980-01-01
        put32(&mut common, crc);
        put32(&mut common, body.len() as u32);
        put32(&mut common, size);

        let local = member.local_name.as_ref().unwrap_or(&member.name);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        put16(&mut out, local.len() as u16);
        put16(&mut out, 0);
        out.extend(local);
        out.extend(body);

        directory.extend(b"PK\x01\x02");
        put16(&mut directory, 3 << 8 | 20); // made on Unix
        directory.extend(&common);
        put16(&mut directory, member.name.len() as u16);
        put16(&mut directory, 0); // extra
        put16(&mut directory, 0); // comment
        put16(&mut directory, 0); // disk
        put16(&mut directory, 0); // internal attributes
        put32(&mut directory, member.mode << 16);
        put32(&mut directory, offset);
        directory.extend(&member.name);
    }
    let at = out.len() as u32;
    let count = members.len() as u16;
    out.extend(&directory);
    out.extend(b"PK\x05\x06");
    put16(&mut out, 0);
    put16(&mut out, 0);
    put16(&mut out, count);
    put16(&mut out, count);
    put32(&mut out, directory.len() as u32);
    put32(&mut out, at);
    put16(&mut out, 0);
    out
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).expect("writing to a Vec");
    encoder.finish().expect("writing to a Vec")
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}
