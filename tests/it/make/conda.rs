//! Conda packages in both formats, and channels of them.
//!
//! Formats: conda's "Package specification" and CEP 35 (`.conda`), `paths.json` and
//! `link.json` as conda-build writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde_json::{Value, json};
use sha2::Digest as _;

use super::zip::{self, Member};

/// The 255 bytes that conda-build leaves where a prefix goes.
pub fn placeholder() -> String {
    let mut text = String::from("/opt/conda_host_env");
    while text.len() < 255 {
        text.push_str("_placehold");
    }
    text.truncate(255);
    text
}

/// Milliseconds since the epoch that every record carries.
const TIMESTAMP: u64 = 1_704_067_200_000;

/// How a package is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A zip of two zstd tars.
    #[default]
    Conda,
    /// One bzip2 tar.
    TarBz2,
}

impl Format {
    /// `.conda` or `.tar.bz2`.
    pub fn suffix(self) -> &'static str {
        match self {
            Format::Conda => ".conda",
            Format::TarBz2 => ".tar.bz2",
        }
    }
}

/// What a path in the package is.
#[derive(Clone)]
pub enum Kind {
    /// A file with these bytes.
    File(Vec<u8>),
    /// A symbolic link to this target.
    Link(String),
    /// A hard link to an earlier path.
    Hard(String),
    /// A character device: no package has one.
    Device,
}

/// One path of a package.
#[derive(Clone)]
pub struct Entry {
    /// Path, written to the tar header as it is.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// The placeholder that stands for the prefix, and whether the file is binary.
    pub prefix: Option<(String, bool)>,
}

impl Entry {
    /// A plain file.
    pub fn file(path: &str, data: impl Into<Vec<u8>>) -> Self {
        Entry { path: path.into(), kind: Kind::File(data.into()), mode: 0o644, prefix: None }
    }
    /// An executable file.
    pub fn program(path: &str, data: impl Into<Vec<u8>>) -> Self {
        Entry { mode: 0o755, ..Entry::file(path, data) }
    }
    /// A symbolic link.
    pub fn link(path: &str, target: &str) -> Self {
        Entry { kind: Kind::Link(target.into()), ..Entry::file(path, "") }
    }
    /// A text file in which [`placeholder`] stands for the prefix.
    pub fn text_prefix(mut self) -> Self {
        self.prefix = Some((placeholder(), false));
        self
    }
    /// A binary file in which [`placeholder`] stands for the prefix.
    pub fn binary_prefix(mut self) -> Self {
        self.prefix = Some((placeholder(), true));
        self
    }
}

/// A conda package to be made.
#[derive(Clone, Default)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Build string.
    pub build: String,
    /// Build number.
    pub number: u64,
    /// `linux-64` or `noarch`.
    pub subdir: String,
    /// `python` or `generic`.
    pub noarch: Option<String>,
    /// `depends`.
    pub depends: Vec<String>,
    /// `constrains`.
    pub constrains: Vec<String>,
    /// Entry points of `link.json`.
    pub entry_points: Vec<String>,
    /// Files, in archive order.
    pub entries: Vec<Entry>,
    /// Other files of `info/`.
    pub info: BTreeMap<String, Vec<u8>>,
    /// Packing.
    pub format: Format,
}

/// A package as a file.
#[derive(Clone)]
pub struct Built {
    /// Subdir.
    pub subdir: String,
    /// File name.
    pub file: String,
    /// Content.
    pub bytes: Vec<u8>,
    /// Its record in `repodata.json`.
    pub record: Value,
}

impl Package {
    /// A package for linux-64, build `h0_0`.
    pub fn new(name: &str, version: &str) -> Self {
        Package {
            name: name.into(),
            version: version.into(),
            build: "h0_0".into(),
            subdir: "linux-64".into(),
            ..Package::default()
        }
    }

    /// Makes it `noarch: python`.
    pub fn noarch_python(mut self) -> Self {
        self.noarch = Some("python".into());
        self.subdir = "noarch".into();
        self.build = "pyh0_0".into();
        self
    }

    /// Adds a path.
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    /// Adds a dependency.
    pub fn depends(mut self, spec: &str) -> Self {
        self.depends.push(spec.into());
        self
    }

    fn index(&self) -> Value {
        let native = self.noarch.is_none() && self.subdir != "noarch";
        let mut index = json!({
            "arch": if native { json!("x86_64") } else { Value::Null },
            "build": self.build,
            "build_number": self.number,
            "depends": self.depends,
            "name": self.name,
            "platform": if native { json!("linux") } else { Value::Null },
            "subdir": self.subdir,
            "timestamp": TIMESTAMP,
            "version": self.version,
        });
        if !self.constrains.is_empty() {
            index["constrains"] = json!(self.constrains);
        }
        if let Some(noarch) = &self.noarch {
            index["noarch"] = json!(noarch);
        }
        index
    }

    fn info(&self) -> BTreeMap<String, Vec<u8>> {
        let mut paths = Vec::new();
        let mut has_prefix = String::new();
        let mut files = String::new();
        let content: BTreeMap<&str, &[u8]> = self
            .entries
            .iter()
            .filter_map(|e| match &e.kind {
                Kind::File(data) => Some((e.path.as_str(), data.as_slice())),
                _ => None,
            })
            .collect();
        for entry in &self.entries {
            let (path_type, data) = match &entry.kind {
                Kind::File(data) => ("hardlink", data.as_slice()),
                Kind::Hard(to) => ("hardlink", content.get(to.as_str()).copied().unwrap_or(b"")),
                // conda-build records the digest of nothing for a link.
                Kind::Link(_) => ("softlink", b"".as_slice()),
                Kind::Device => continue,
            };
            let mut path = json!({
                "_path": entry.path,
                "path_type": path_type,
                "sha256": hex(&sha2::Sha256::digest(data)),
                "size_in_bytes": data.len(),
            });
            if let Some((placeholder, binary)) = &entry.prefix {
                let mode = if *binary { "binary" } else { "text" };
                path["prefix_placeholder"] = json!(placeholder);
                path["file_mode"] = json!(mode);
                has_prefix += &format!("\"{placeholder}\" {mode} \"{}\"\n", entry.path);
            }
            paths.push(path);
            files += &format!("{}\n", entry.path);
        }
        let text = |v: &Value| serde_json::to_vec_pretty(v).expect("JSON of plain values");
        let mut info = BTreeMap::from([
            ("about.json".to_owned(), text(&json!({ "summary": "Made by a test" }))),
            ("files".to_owned(), files.into_bytes()),
            ("index.json".to_owned(), text(&self.index())),
            ("paths.json".to_owned(), text(&json!({ "paths": paths, "paths_version": 1 }))),
        ]);
        if !has_prefix.is_empty() {
            info.insert("has_prefix".into(), has_prefix.into_bytes());
        }
        if self.noarch.as_deref() == Some("python") {
            let link = json!({
                "noarch": { "type": "python", "entry_points": self.entry_points },
                "package_metadata_version": 1,
            });
            info.insert("link.json".into(), text(&link));
        }
        info.extend(self.info.clone());
        info
    }

    /// Makes the file and its record.
    pub fn build(&self) -> Built {
        let stem = format!("{}-{}-{}", self.name, self.version, self.build);
        let info: Vec<Entry> = self
            .info()
            .into_iter()
            .map(|(name, data)| Entry::file(&format!("info/{name}"), data))
            .collect();
        let bytes = match self.format {
            Format::TarBz2 => {
                let mut all = info;
                all.extend(self.entries.clone());
                let mut encoder =
                    bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(&tar(&all)).expect("writing to a Vec");
                encoder.finish().expect("writing to a Vec")
            }
            Format::Conda => {
                let pack = |entries: &[Entry]| zstd::encode_all(&*tar(entries), 3).expect("zstd");
                zip::write(&[
                    Member::file("metadata.json", r#"{"conda_pkg_format_version": 2}"#).stored(),
                    Member::file(&format!("pkg-{stem}.tar.zst"), pack(&self.entries)).stored(),
                    Member::file(&format!("info-{stem}.tar.zst"), pack(&info)).stored(),
                ])
            }
        };
        let mut record = self.index();
        record["md5"] = json!(hex(&md5::Md5::digest(&bytes)));
        record["sha256"] = json!(hex(&sha2::Sha256::digest(&bytes)));
        record["size"] = json!(bytes.len());
        let file = stem + self.format.suffix();
        Built { subdir: self.subdir.clone(), file, bytes, record }
    }
}

/// A tar of `entries`. Names go into the header unchecked.
pub fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_mtime(TIMESTAMP / 1000);
        header.set_uid(0);
        header.set_gid(0);
        let mut data: &[u8] = &[];
        match &entry.kind {
            Kind::File(bytes) => {
                header.set_entry_type(tar::EntryType::Regular);
                data = bytes;
            }
            Kind::Link(to) => {
                header.set_entry_type(tar::EntryType::Symlink);
                put(&mut header.as_old_mut().linkname, to);
            }
            Kind::Hard(to) => {
                header.set_entry_type(tar::EntryType::Link);
                put(&mut header.as_old_mut().linkname, to);
            }
            Kind::Device => {
                header.set_entry_type(tar::EntryType::Char);
                header.set_device_major(1).expect("a GNU header has device numbers");
                header.set_device_minor(3).expect("a GNU header has device numbers");
            }
        }
        header.set_size(data.len() as u64);
        if entry.path.len() > 100 {
            // GNU: a member of type L holds the name of the next one.
            let mut long = tar::Header::new_gnu();
            put(&mut long.as_old_mut().name, "././@LongLink");
            long.set_mode(0o644);
            long.set_entry_type(tar::EntryType::GNULongName);
            let name = format!("{}\0", entry.path);
            long.set_size(name.len() as u64);
            long.set_cksum();
            builder.append(&long, name.as_bytes()).expect("writing to a Vec");
        }
        put(&mut header.as_old_mut().name, &entry.path);
        header.set_cksum();
        builder.append(&header, data).expect("writing to a Vec");
    }
    builder.into_inner().expect("writing to a Vec")
}

fn put(field: &mut [u8; 100], text: &str) {
    let n = text.len().min(100);
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A channel: packages by subdir.
#[derive(Clone, Default)]
pub struct Channel {
    /// The packages, in any order.
    pub packages: Vec<Built>,
}

impl Channel {
    /// The files of the channel by path: packages, `repodata.json` and `repodata.json.zst` of
    /// `linux-64`, `noarch` and what else there are packages of.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut out = BTreeMap::new();
        let always = ["linux-64", "noarch"].into_iter();
        let subdirs: BTreeSet<&str> =
            always.chain(self.packages.iter().map(|p| p.subdir.as_str())).collect();
        for subdir in subdirs {
            let mut old = serde_json::Map::new();
            let mut new = serde_json::Map::new();
            for package in self.packages.iter().filter(|p| p.subdir == subdir) {
                let table = if package.file.ends_with(".conda") { &mut new } else { &mut old };
                table.insert(package.file.clone(), package.record.clone());
                out.insert(format!("{subdir}/{}", package.file), package.bytes.clone());
            }
            let repodata = serde_json::to_vec(&json!({
                "info": { "subdir": subdir },
                "packages": old,
                "packages.conda": new,
                "repodata_version": 1,
            }))
            .expect("JSON of plain values");
            let packed = zstd::encode_all(&*repodata, 3).expect("zstd");
            out.insert(format!("{subdir}/repodata.json"), repodata);
            out.insert(format!("{subdir}/repodata.json.zst"), packed);
        }
        out
    }
}
