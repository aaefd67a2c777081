//! Digests as fixed bytes, each in a type of its own.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use sha2::Digest as _;

/// A SHA-256 digest: 32 bytes, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Sha256(sha2::Sha256::digest(bytes.as_ref()).into())
    }
    /// Wraps raw digest bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Sha256(bytes)
    }
    /// The raw digest bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// Reads `reader` to its end and returns digest and length in bytes.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = Hasher::new(io::sink());
        let n = io::copy(&mut reader, &mut hasher)?;
        Ok((hasher.finish().0, n))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

/// A text that is not a digest in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest: expected 64 hexadecimal digits")]
pub struct ParseDigestError(pub String);

impl FromStr for Sha256 {
    type Err = ParseDigestError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseDigestError(text.chars().take(80).collect());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(err());
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let hi = (pair[0] as char).to_digit(16).ok_or_else(err)?;
            let lo = (pair[1] as char).to_digit(16).ok_or_else(err)?;
            *byte = (hi * 16 + lo) as u8;
        }
        Ok(Sha256(out))
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A short name for something hashed: the first 20 bytes of a SHA-256, written in the
/// 32 characters of Nix's base-32 alphabet (no `e`, `o`, `t`, `u`), as store paths use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortHash([u8; 20]);

const ALPHABET: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";

impl ShortHash {
    /// The short form of a digest.
    pub fn of(digest: &Sha256) -> Self {
        let mut out = [0; 20];
        out.copy_from_slice(&digest.0[..20]);
        ShortHash(out)
    }
}

impl fmt::Display for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Big-endian, five bits a character: 160 bits are exactly 32 characters.
        for chunk in self.0.chunks_exact(5) {
            let word = chunk.iter().fold(0u64, |acc, b| acc << 8 | u64::from(*b));
            for shift in (0..8).rev() {
                let c = ALPHABET[(word >> (shift * 5)) as usize & 31];
                write!(f, "{}", c as char)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ShortHash {
    type Err = ParseShortHashError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseShortHashError(text.chars().take(80).collect());
        if text.len() != 32 {
            return Err(err());
        }
        let mut out = [0; 20];
        for (bytes, chars) in out.chunks_exact_mut(5).zip(text.as_bytes().chunks_exact(8)) {
            let mut word = 0u64;
            for c in chars {
                let v = ALPHABET.iter().position(|a| a == c).ok_or_else(err)?;
                word = word << 5 | v as u64;
            }
            bytes.copy_from_slice(&word.to_be_bytes()[3..]);
        }
        Ok(ShortHash(out))
    }
}

/// A text that is not a [`ShortHash`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a short hash: expected 32 characters of 0-9 a-z without e, o, t, u")]
pub struct ParseShortHashError(pub String);

impl serde::Serialize for ShortHash {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ShortHash {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A writer that hashes what passes through it.
pub struct Hasher<W> {
    inner: W,
    sha256: sha2::Sha256,
    len: u64,
}

impl<W: Write> Hasher<W> {
    /// Hashes and forwards to `inner`.
    pub fn new(inner: W) -> Self {
        Hasher { inner, sha256: sha2::Sha256::new(), len: 0 }
    }
    /// The digest of all bytes written, and the writer below.
    pub fn finish(self) -> (Sha256, W) {
        (Sha256(self.sha256.finalize().into()), self.inner)
    }
    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<W: Write> Write for Hasher<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.sha256.update(&buf[..n]);
        self.len += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_damage() {
        let d = Sha256::of(b"abc");
        assert_eq!(
            d.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(d.to_string().parse::<Sha256>().unwrap(), d);
        assert!("ba78".parse::<Sha256>().is_err());
        assert!("zz".repeat(32).parse::<Sha256>().is_err());
        assert!("é".repeat(32).parse::<Sha256>().is_err());
    }

    #[test]
    fn short_hash_round_trips() {
        let h = ShortHash::of(&Sha256::of(b"abc"));
        assert_eq!(h.to_string().len(), 32);
        assert_eq!(h.to_string().parse::<ShortHash>().unwrap(), h);
        assert!("e".repeat(32).parse::<ShortHash>().is_err());
    }
}
