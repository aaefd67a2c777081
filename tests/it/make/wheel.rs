//! Wheels (PEP 427 and the "Binary distribution format" page of the packaging user guide).

use base64::Engine as _;
use sha2::Digest as _;

use super::zip::{self, Member};

/// What the wheel's RECORD says about its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Every file with its true hash and size.
    #[default]
    True,
    /// The first file of the package with a wrong hash.
    WrongHash,
    /// The first file of the package is not listed.
    Unlisted,
    /// There is no RECORD.
    Absent,
}

/// A wheel to be made.
#[derive(Clone)]
pub struct Wheel {
    /// Distribution name, as METADATA writes it.
    pub name: String,
    /// Version, as METADATA writes it.
    pub version: String,
    /// Build tag, such as `1`.
    pub build: Option<String>,
    /// `py3-none-any`; the three parts may be compressed sets.
    pub tag: String,
    /// `Requires-Dist` lines.
    pub requires: Vec<String>,
    /// `Requires-Python`.
    pub requires_python: Option<String>,
    /// Other METADATA lines, as written.
    pub headers: Vec<String>,
    /// The whole text of `entry_points.txt`.
    pub entry_points: Option<String>,
    /// `Root-Is-Purelib`.
    pub purelib: bool,
    /// Everything outside `.dist-info`.
    pub members: Vec<Member>,
    /// What RECORD says.
    pub record: Record,
    /// `name-version` in file and directory names, where it is not derived from the above.
    pub stem: Option<String>,
}

/// A wheel as a file.
#[derive(Clone)]
pub struct Built {
    /// File name.
    pub file: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// METADATA alone (PEP 658).
    pub metadata: Vec<u8>,
    /// `Requires-Python`, which an index repeats (PEP 503).
    pub requires_python: Option<String>,
}

impl Wheel {
    /// A pure wheel `py3-none-any` with no files yet.
    pub fn new(name: &str, version: &str) -> Self {
        Wheel {
            name: name.into(),
            version: version.into(),
            build: None,
            tag: "py3-none-any".into(),
            requires: Vec::new(),
            requires_python: None,
            headers: Vec::new(),
            entry_points: None,
            purelib: true,
            members: Vec::new(),
            record: Record::True,
            stem: None,
        }
    }

    /// Adds a file with mode 0644.
    pub fn file(mut self, path: &str, data: impl Into<Vec<u8>>) -> Self {
        self.members.push(Member::file(path, data));
        self
    }

    /// `{name}-{version}` with `-` and `.` in the name escaped, as PEP 427 writes it.
    pub fn stem(&self) -> String {
        self.stem.clone().unwrap_or_else(|| {
            let name: String =
                self.name.chars().map(|c| if "-.".contains(c) { '_' } else { c }).collect();
            format!("{name}-{}", self.version)
        })
    }

    /// The name of the file.
    pub fn file_name(&self) -> String {
        let build = self.build.as_ref().map(|b| format!("-{b}")).unwrap_or_default();
        format!("{}{build}-{}.whl", self.stem(), self.tag)
    }

    fn metadata(&self) -> Vec<u8> {
        let mut text = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\nSummary: Made by a test\n",
            self.name, self.version
        );
        if let Some(python) = &self.requires_python {
            text += &format!("Requires-Python: {python}\n");
        }
        for requirement in &self.requires {
            text += &format!("Requires-Dist: {requirement}\n");
        }
        for header in &self.headers {
            text += header;
            text.push('\n');
        }
        (text + "\nThe long description.\n").into_bytes()
    }

    /// Makes the file.
    pub fn build(&self) -> Built {
        let info = format!("{}.dist-info", self.stem());
        let metadata = self.metadata();
        let mut tags = String::new();
        let parts: Vec<&str> = self.tag.split('-').collect();
        for python in parts[0].split('.') {
            for abi in parts[1].split('.') {
                for platform in parts[2].split('.') {
                    tags += &format!("Tag: {python}-{abi}-{platform}\n");
                }
            }
        }
        let wheel = format!(
            "Wheel-Version: 1.0\nGenerator: gpuenv-tests\nRoot-Is-Purelib: {}\n{tags}",
            self.purelib
        );
        let mut members = self.members.clone();
        members.push(Member::file(&format!("{info}/METADATA"), metadata.clone()));
        members.push(Member::file(&format!("{info}/WHEEL"), wheel));
        if let Some(text) = &self.entry_points {
            members.push(Member::file(&format!("{info}/entry_points.txt"), text.as_bytes()));
        }
        if self.record != Record::Absent {
            let record = self.record(&members, &info);
            members.push(Member::file(&format!("{info}/RECORD"), record));
        }
        Built {
            file: self.file_name(),
            bytes: zip::write(&members),
            metadata,
            requires_python: self.requires_python.clone(),
        }
    }

    fn record(&self, members: &[Member], info: &str) -> String {
        let mut text = String::new();
        for (nth, member) in members.iter().enumerate() {
            let name = String::from_utf8_lossy(&member.name);
            if name.ends_with('/') || (nth == 0 && self.record == Record::Unlisted) {
                continue;
            }
            let data: &[u8] = if nth == 0 && self.record == Record::WrongHash {
                b"something else"
            } else {
                &member.data
            };
            let digest = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(data));
            let name =
                if name.contains([',', '"']) { format!("{name:?}") } else { name.into_owned() };
            text += &format!("{name},sha256={digest},{}\n", member.data.len());
        }
        text + &format!("{info}/RECORD,,\n")
    }
}
