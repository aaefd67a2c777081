//! Files that no package holds: what they say.
//!
//! Some name the view's own place or the machine's interpreter. They are kept as their parts, so
//! that the view manifest is the same wherever the view is built, and rendered when it is.

use std::collections::BTreeMap;
use std::path::Path;

use super::plan::{PlanInput, PythonLayout, PythonOrigin};
use crate::hash::Sha256;
use crate::package::Meta;
use crate::relpath::RelPath;

/// What a generated file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// This text, wherever the view is.
    Text(String),
    /// A script for the view's own `bin/python`.
    PythonScript {
        /// All below the first line.
        body: String,
    },
    /// `share/gpuenv/run`: runs a command in the environment, whoever starts it.
    RunScript(RunScript),
    /// `pyvenv.cfg` of a view on the machine's Python: names the directory of the interpreter.
    PyvenvCfg,
    /// `conda-meta/*.json`: `info/index.json` of the package and what became of its files.
    CondaMeta {
        /// Index of the package.
        package: usize,
        /// File name of the artifact.
        file: String,
        /// Digest of the artifact.
        sha256: Sha256,
        /// Bytes of the artifact.
        size: u64,
        /// Name of the channel.
        channel: String,
        /// URL of the channel, where it is not the default location of that name.
        channel_url: Option<String>,
        /// Whether env.toml itself asks for the package.
        requested: bool,
        /// Its files in the view, sorted by path.
        files: Vec<CondaFile>,
    },
}

/// One file of a conda package in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CondaFile {
    /// Path in the view.
    pub path: RelPath,
    /// What it is.
    pub kind: CondaFileType,
    /// Digest of its content in the package.
    pub sha256: Option<Sha256>,
    /// Bytes.
    pub size: Option<u64>,
}

/// `path_type` of `paths_data`, as conda writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CondaFileType {
    /// `hardlink`.
    Hardlink,
    /// `softlink`.
    Softlink,
    /// `hardlink` with a placeholder replaced.
    Relocated {
        /// The placeholder.
        placeholder: String,
        /// `file_mode` is `binary`.
        binary: bool,
    },
    /// `unix_python_entry_point`.
    EntryPoint,
}

/// Longest first line of a script, in bytes without the newline. The kernel reads 256 bytes
/// since 5.1 and 128 before (`BINPRM_BUF_SIZE`, execve(2)); 127 work everywhere.
pub(super) const MAX_SHEBANG: usize = 127;

impl Content {
    /// In words, for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Content::Text(_) => "a file written by the installer",
            Content::PythonScript { .. } => "a script of an entry point",
            Content::RunScript(_) => "the script that runs a command in the view",
            Content::PyvenvCfg => "the face of a virtual environment",
            Content::CondaMeta { .. } => "the record of a conda package",
        }
    }

    /// A `.pth` file that keeps bytecode out of views and of the store's packages also where the
    /// environment was not activated and the modes do not stop the user, who is root (in a
    /// container, say). `site` runs the line at every start; a prefix that is set already stays.
    pub(super) fn pycache_pth() -> String {
        "import os, sys; \
         _gpuenv = os.environ.get('GPUENV_CACHE') or os.path.join(\
         os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'gpuenv'); \
         sys.pycache_prefix = getattr(sys, 'pycache_prefix', None) or \
         (os.path.join(_gpuenv, 'pycache') if os.path.isabs(_gpuenv) else None); \
         sys.dont_write_bytecode = sys.dont_write_bytecode or sys.version_info < (3, 8) or \
         not sys.pycache_prefix\n"
            .to_owned()
    }

    /// A site-wide pip configuration in which each command that would change the environment
    /// stops before it does anything: pip prints the value that is no number.
    pub(super) fn pip_conf(name: &str) -> String {
        let sentence = refusal(name);
        let mut text = format!("# {sentence}\n");
        for command in ["install", "uninstall"] {
            text += &format!("[{command}]\nretries = {sentence}\n");
            if command == "install" {
                // For where `PIP_RETRIES` is set.
                text += &format!("upgrade-strategy = {sentence}\n");
            }
        }
        text
    }

    /// The marker of PEP 668.
    pub(super) fn externally_managed(name: &str) -> String {
        format!(
            "[externally-managed]\nError = {}\n\
             \x20The directory is read-only and shared; a package added by pip would be in no lock.\n",
            refusal(name)
        )
    }

    /// What activation needs to know later; see `store-layout/view.md`.
    pub(super) fn activation(
        input: &PlanInput<'_>,
        python: Option<&PythonLayout>,
        ld: bool,
    ) -> String {
        let conda = input.packages.iter().any(|p| matches!(p.record.meta, Meta::Conda(_)));
        let host = python.is_some_and(|p| p.origin == PythonOrigin::Host);
        let env: BTreeMap<_, _> = input.activation_env.iter().collect();
        let facts = super::activate::Recorded {
            format: super::activate::FORMAT,
            name: input.name.to_owned(),
            python: python.map(|p| format!("{}.{}", p.version.0, p.version.1)),
            host_python: host,
            conda,
            ld,
            env: env.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        facts.to_json()
    }

    /// The script that runs a command in the view.
    pub(super) fn run_script<'p>(
        input: &PlanInput<'_>,
        python: Option<&PythonLayout>,
        ld: bool,
        mut paths: impl Iterator<Item = &'p RelPath>,
    ) -> Self {
        let conda = input.packages.iter().any(|p| matches!(p.record.meta, Meta::Conda(_)));
        let is_script = |p: &RelPath| {
            p.as_str().starts_with("etc/conda/activate.d/") && p.as_str().ends_with(".sh")
        };
        Content::RunScript(RunScript {
            name: input.name.to_owned(),
            env: input.activation_env.clone(),
            python: python.is_some(),
            conda,
            scripts: paths.any(is_script),
            ld,
        })
    }

    /// The canonical form in the view manifest: the kind and a digest over all that decides it.
    pub(super) fn canonical(&self, package_sha256: impl Fn(usize) -> Sha256) -> String {
        match self {
            Content::Text(text) => format!("text {}", Sha256::of(text)),
            Content::PythonScript { body } => format!("python-script {}", Sha256::of(body)),
            Content::RunScript(script) => {
                // No path of a real view is this one: it is not absolute.
                format!("run-script {}", Sha256::of(script.render("@view@")))
            }
            Content::PyvenvCfg => "pyvenv-cfg".into(),
            Content::CondaMeta { package, .. } => {
                let facts = serde_json::Value::Object(self.conda_facts()).to_string();
                format!("conda-meta {} {}", package_sha256(*package), Sha256::of(facts))
            }
        }
    }

    /// What a prefix record says beside `info/index.json`.
    fn conda_facts(&self) -> serde_json::Map<String, serde_json::Value> {
        use serde_json::json;
        let Content::CondaMeta {
            file, sha256, size, channel, channel_url, requested, files, ..
        } = self
        else {
            return serde_json::Map::new();
        };
        let paths: Vec<_> = files.iter().map(CondaFile::to_json).collect();
        let names: Vec<_> = files.iter().map(|f| f.path.as_str()).collect();
        let mut facts = serde_json::Map::new();
        facts.insert("channel".into(), json!(channel));
        if let Some(url) = channel_url {
            facts.insert("channel_url".into(), json!(url));
        }
        facts.insert("files".into(), json!(names));
        facts.insert("fn".into(), json!(file));
        facts.insert("link".into(), json!({ "source": "", "type": 1 }));
        facts.insert("paths_data".into(), json!({ "paths": paths, "paths_version": 1 }));
        facts.insert("requested".into(), json!(requested));
        facts.insert("sha256".into(), json!(sha256.to_string()));
        facts.insert("size".into(), json!(size));
        facts
    }

    /// The text of a prefix record, given the parsed `info/index.json`. Keys are sorted.
    pub(super) fn conda_meta(
        &self,
        index: serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, url::ParseError> {
        use serde_json::{Value, json};
        let mut all: BTreeMap<String, Value> = index.into_iter().collect();
        // When it was built is of no use here, and no file of a view holds a time.
        all.remove("timestamp");
        let mut facts = self.conda_facts();
        let requested = facts.remove("requested") == Some(Value::Bool(true));
        let given = facts.remove("channel_url");
        let subdir = match all.get("subdir").and_then(Value::as_str) {
            Some(subdir) => subdir.to_owned(),
            None => "noarch".to_owned(),
        };
        if let Content::CondaMeta { channel, file, .. } = self {
            let mut url = channel_base(channel, given.as_ref().and_then(Value::as_str))?;
            url.set_path(&format!("{}/{subdir}/{file}", url.path().trim_end_matches('/')));
            all.insert("url".into(), json!(url.as_str()));
        }
        if requested {
            let name = all.get("name").cloned().unwrap_or_default();
            all.insert("requested_spec".into(), name.clone());
            all.insert("requested_specs".into(), json!([name]));
        }
        all.entry("subdir".into()).or_insert(json!(subdir));
        all.entry("depends".into()).or_insert(json!([]));
        all.extend(facts);
        Ok(format!("{:#}\n", json!(all)))
    }
}

/// What `share/gpuenv/run` sets: the same as [`super::activate::Activation`], for programs that
/// know nothing of gpuenv, such as Jupyter. Of conda packages, the scripts of `activate.d` are
/// sourced (by bash, where there are any); `env_vars.d` is left to `gpuenv run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunScript {
    name: String,
    env: BTreeMap<String, String>,
    python: bool,
    conda: bool,
    scripts: bool,
    ld: bool,
}

/// Where the script lies in a view.
pub(super) const RUN_SCRIPT: &str = "share/gpuenv/run";

impl RunScript {
    /// The text, for a view at `prefix`.
    pub(super) fn render(&self, prefix: &str) -> String {
        let quote = super::activate::quote;
        let mut lines = vec![
            if self.scripts { "#!/usr/bin/env bash" } else { "#!/bin/sh" }.to_owned(),
            "# Runs a command in this environment, for programs that were started outside of it."
                .to_owned(),
            format!("view={}", quote(prefix)),
            "unset PYTHONPATH PYTHONHOME VIRTUAL_ENV".to_owned(),
            "export GPUENV_VIEW=\"$view\"".to_owned(),
            format!("export GPUENV_ENV={}", quote(&self.name)),
            "export PATH=\"$view/bin${PATH:+:$PATH}\"".to_owned(),
        ];
        if self.python {
            lines.push("export PYTHONNOUSERSITE=1".to_owned());
            lines.push(
                "cache=\"${GPUENV_CACHE:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gpuenv}\""
                    .to_owned(),
            );
            lines.push(
                "export PYTHONPYCACHEPREFIX=\"${PYTHONPYCACHEPREFIX:-$cache/pycache}\"".to_owned(),
            );
        }
        if self.conda {
            lines.push("export CONDA_PREFIX=\"$view\"".to_owned());
            lines.push(format!("export CONDA_DEFAULT_ENV={}", quote(&self.name)));
        } else {
            lines.push("unset CONDA_PREFIX".to_owned());
        }
        for (name, value) in &self.env {
            if name != "PATH" && name != "LD_LIBRARY_PATH" && super::activate::is_name(name) {
                lines.push(format!("export {name}={}", quote(value)));
            }
        }
        // Of an inherited search path, directories of the driver alone are kept.
        lines.push(format!("libraries={}", if self.ld { "\"$view/ld\"" } else { "" }));
        lines.push("old=${LD_LIBRARY_PATH-}:".to_owned());
        lines.push("while [ -n \"$old\" ]; do".to_owned());
        lines.push("  dir=${old%%:*} old=${old#*:}".to_owned());
        lines.push("  case $dir in \"$view/ld\" | '') continue ;; esac".to_owned());
        lines.push("  [ -e \"$dir/libcuda.so.1\" ] || continue".to_owned());
        lines.push(
            "  ls \"$dir\" | grep -Eq '^(libcu(dart|blas|dnn|fft|rand|solver|sparse)|libnccl|libstdc)' && continue"
                .to_owned(),
        );
        lines.push("  libraries=\"${libraries:+$libraries:}$dir\"".to_owned());
        lines.push("done".to_owned());
        lines.push(
            "if [ -n \"$libraries\" ]; then export LD_LIBRARY_PATH=\"$libraries\"; else unset LD_LIBRARY_PATH; fi"
                .to_owned(),
        );
        if self.scripts {
            lines.push("command=(\"$@\")".to_owned());
            lines.push("set --".to_owned());
            lines.push(
                "for script in \"$view\"/etc/conda/activate.d/*.sh; do . \"$script\" >&2; done"
                    .to_owned(),
            );
            lines.push("exec \"${command[@]}\"".to_owned());
        } else {
            lines.push("exec \"$@\"".to_owned());
        }
        lines.join("\n") + "\n"
    }
}

/// The URL of a channel in prefix records: what env.toml gives, or for a name what the conda
/// libraries give it by default. A directory is a `file:` URL that leads nowhere, of its name
/// in the lock: where it really is differs from machine to machine, and a view must not.
fn channel_base(channel: &str, given: Option<&str>) -> Result<url::Url, url::ParseError> {
    let directory = match given {
        Some(url) if url.contains("://") => return url::Url::parse(url),
        Some(path) => Some(path),
        None => channel.strip_prefix("dir:"),
    };
    if let Some(path) = directory {
        let parts: Vec<_> =
            path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        let mut url = url::Url::parse("file:///")?;
        url.set_path(&parts.join("/"));
        return Ok(url);
    }
    let config = rattler_conda_types::ChannelConfig::default_with_root_dir("/".into());
    let alias = config.channel_alias.as_str().trim_end_matches('/').to_owned();
    url::Url::parse(&format!("{alias}/{channel}"))
}

impl CondaFile {
    fn to_json(&self) -> serde_json::Value {
        use serde_json::json;
        let mut all = serde_json::Map::new();
        all.insert("_path".into(), json!(self.path));
        let kind = match &self.kind {
            CondaFileType::Hardlink => "hardlink",
            CondaFileType::Softlink => "softlink",
            CondaFileType::EntryPoint => "unix_python_entry_point",
            CondaFileType::Relocated { placeholder, binary } => {
                let mode = if *binary { "binary" } else { "text" };
                all.insert("file_mode".into(), json!(mode));
                all.insert("prefix_placeholder".into(), json!(placeholder));
                "hardlink"
            }
        };
        all.insert("path_type".into(), json!(kind));
        if let Some(sha256) = self.sha256 {
            all.insert("sha256".into(), json!(sha256.to_string()));
        }
        if let Some(size) = self.size {
            all.insert("size_in_bytes".into(), json!(size));
        }
        serde_json::Value::Object(all)
    }
}

/// What pip is made to say.
fn refusal(name: &str) -> String {
    format!(
        "the environment {name} is built by gpuenv and does not change; \
         use \"gpuenv add NAME\" in its project instead"
    )
}

/// A script for `python`: a first line that runs it, then `body`. Where the kernel could not
/// read that line (too long, or a space in the path), a shell runs the interpreter: for the
/// shell the second line is a command, for Python it opens a string.
pub(super) fn python_script(python: &Path, args: &str, body: &[u8]) -> Vec<u8> {
    let mut text = python_first_line(python, args).into_bytes();
    text.extend_from_slice(body);
    text
}

/// The first line or lines of such a script. `args` are arguments of the interpreter, or empty.
pub(super) fn python_first_line(python: &Path, args: &str) -> String {
    let path = python.to_string_lossy();
    let plain = if args.is_empty() { format!("#!{path}") } else { format!("#!{path} {args}") };
    if plain.len() <= MAX_SHEBANG && !path.contains(char::is_whitespace) {
        return format!("{plain}\n");
    }
    let quoted: String = path
        .chars()
        .flat_map(|c| {
            let escaped = matches!(c, '"' | '\\' | '$' | '`');
            escaped.then_some('\\').into_iter().chain([c])
        })
        .collect();
    let args = if args.is_empty() { String::new() } else { format!("{args} ") };
    format!("#!/bin/sh\n'''exec' \"{quoted}\" {args}\"$0\" \"$@\"\n' '''\n")
}

/// `pyvenv.cfg` (the `site` module) for an interpreter in the directory `home`.
pub(super) fn pyvenv_cfg(home: &Path) -> String {
    format!("home = {}\ninclude-system-site-packages = false\n", home.display())
}

/// Base64 with the URL-safe alphabet and no padding (RFC 4648, section 5), as `RECORD` wants.
pub(super) fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |w, i| w << 8 | u32::from(*chunk.get(i).unwrap_or(&0)));
        for i in 0..=chunk.len() {
            text.push(ALPHABET[(word >> (18 - 6 * i)) as usize & 63] as char);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_has_a_url_that_names_no_place_of_this_machine() {
        let url =
            |channel: &str, given: Option<&str>| channel_base(channel, given).unwrap().to_string();
        assert_eq!(
            url("https://h.example.invalid/lab", Some("https://h.example.invalid/lab")),
            "https://h.example.invalid/lab"
        );
        assert_eq!(url("./channel", Some("./channel")), "file:///channel");
        assert_eq!(url("../../up", Some("../../up")), "file:///up");
        assert_eq!(url("dir:my chan#1", None), "file:///my%20chan%231");
        assert!(url("conda-forge", None).ends_with("/conda-forge"));
        assert!(url("conda-forge", None).starts_with("https://"));
    }

    #[test]
    fn base64_of_every_remainder() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")]
        {
            assert_eq!(base64_url(bytes.as_bytes()), text);
        }
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn long_or_spaced_interpreters_go_through_a_shell() {
        assert_eq!(python_first_line(Path::new("/v/bin/python"), "-E"), "#!/v/bin/python -E\n");
        // Exactly as long as the kernel takes, and one more.
        let fits = format!("/{}", "x".repeat(MAX_SHEBANG - 3));
        assert_eq!(python_first_line(Path::new(&fits), "").len(), MAX_SHEBANG + 1);
        let long = format!("{fits}x");
        assert!(python_first_line(Path::new(&long), "").starts_with("#!/bin/sh\n'''exec' "));
        assert!(python_first_line(Path::new("/a b/python"), "").starts_with("#!/bin/sh\n"));
    }
}
