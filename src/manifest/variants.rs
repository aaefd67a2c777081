//! `[variants]`: several environments of one env.toml, each the whole of it with a few lines
//! changed. Everything behind this file sees plain manifests, one a closure.

use std::fmt;
use std::str::FromStr;

use rattler_conda_types::{PackageName as CondaName, Subdir as Platform};
use uv_normalize::PackageName as DistName;

use super::model::{CondaDependency, Gpu, Manifest, Span, Spanned, WheelDependency};

/// What the environment is called that is no variant.
pub const DEFAULT_VARIANT: &str = "default";

/// The name of a variant: `[a-z0-9][a-z0-9-]*`, at most 32, not `default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantName(String);

/// A text that is no [`VariantName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVariantName {
    /// It means the environment that is no variant.
    #[error("`{DEFAULT_VARIANT}` is the environment without a variant")]
    Default,
    /// Other characters, none, or too many.
    #[error("use 1 to 32 of a-z 0-9 -, starting with a letter or digit")]
    Characters,
}

impl FromStr for VariantName {
    type Err = BadVariantName;

    fn from_str(text: &str) -> Result<Self, BadVariantName> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if text == DEFAULT_VARIANT {
            return Err(BadVariantName::Default);
        }
        if text.len() > 32
            || !text.starts_with(plain)
            || !text.chars().all(|c| plain(c) || c == '-')
        {
            return Err(BadVariantName::Characters);
        }
        Ok(VariantName(text.to_owned()))
    }
}

impl VariantName {
    /// As env.toml writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VariantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of `[variants]`: what differs from the rest of env.toml.
#[derive(Clone, Debug)]
pub struct Variant {
    /// `platforms`: some of those of `[env]`, sorted; without the key, all.
    pub platforms: Vec<Platform>,
    /// `gpu`.
    pub gpu: VariantGpu,
    /// `dependencies`: lines added, or in the place of those of the same name.
    pub dependencies: Vec<CondaDependency>,
    /// `NAME = false` in `dependencies`: lines left out.
    pub without: Vec<Spanned<CondaName>>,
    /// `pypi-dependencies`: lines added, or in the place of those of the same name.
    pub pypi_dependencies: Vec<WheelDependency>,
    /// `NAME = false` in `pypi-dependencies`: lines left out.
    pub without_pypi: Vec<Spanned<DistName>>,
    /// Where it is written.
    pub span: Span,
}

/// What a variant says of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariantGpu {
    /// Nothing: `[gpu]` counts.
    Same,
    /// `gpu = false`: it is for CPUs.
    Without,
    /// A table in the place of `[gpu]`.
    Other(Gpu),
}

/// Names one environment of an env.toml or a lock. Ordered as a lock has them: by platform, then
/// the one that is no variant, then variants by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Closure {
    /// conda subdir.
    pub platform: Platform,
    /// `None`: no variant.
    pub variant: Option<VariantName>,
}

/// `linux-64`, or `linux-64 cpu`.
impl fmt::Display for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.platform.as_str())?;
        match &self.variant {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}

impl Closure {
    /// The variant's name; `default` for none.
    pub fn variant_name(&self) -> &str {
        self.variant.as_ref().map_or(DEFAULT_VARIANT, VariantName::as_str)
    }
}

impl Manifest {
    /// The environments to be locked, in a lock's order, each with the env.toml that it would have
    /// if it were alone: lines of the variant are merged in, spans lead to where each was written.
    pub fn closures(&self) -> Vec<(Closure, Manifest)> {
        let mut out = Vec::new();
        let base = Manifest { variants: Default::default(), ..self.clone() };
        for (name, variant) in &self.variants {
            let merged = merge(&base, variant);
            for &platform in &variant.platforms {
                let closure = Closure { platform, variant: Some(name.clone()) };
                out.push((closure, merged.clone()));
            }
        }
        for &platform in &base.env.platforms {
            out.push((Closure { platform, variant: None }, base.clone()));
        }
        out.sort_by(|a, b| a.0.cmp(&b.0));
        out
    }

    /// All conda lines of env.toml, those of variants too.
    pub fn all_dependencies(&self) -> impl Iterator<Item = &CondaDependency> {
        let variants = self.variants.values();
        self.dependencies.iter().chain(variants.flat_map(|v| &v.dependencies))
    }

    /// All wheel lines of env.toml, those of variants too.
    pub fn all_pypi_dependencies(&self) -> impl Iterator<Item = &WheelDependency> {
        let variants = self.variants.values();
        self.pypi_dependencies.iter().chain(variants.flat_map(|v| &v.pypi_dependencies))
    }
}

fn merge(base: &Manifest, variant: &Variant) -> Manifest {
    let mut merged = base.clone();
    merged.env.platforms = variant.platforms.clone();
    match &variant.gpu {
        VariantGpu::Same => {}
        VariantGpu::Without => merged.gpu = None,
        VariantGpu::Other(gpu) => merged.gpu = Some(gpu.clone()),
    }
    merged.dependencies.retain(|line| !variant.without.iter().any(|name| name.value == line.name));
    for line in &variant.dependencies {
        match merged.dependencies.iter_mut().find(|there| there.name == line.name) {
            Some(there) => *there = line.clone(),
            None => merged.dependencies.push(line.clone()),
        }
    }
    let gone = |line: &WheelDependency| variant.without_pypi.iter().any(|n| n.value == line.name);
    merged.pypi_dependencies.retain(|line| !gone(line));
    for line in &variant.pypi_dependencies {
        match merged.pypi_dependencies.iter_mut().find(|there| there.name == line.name) {
            Some(there) => *there = line.clone(),
            None => merged.pypi_dependencies.push(line.clone()),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{inputs, parse};

    const TEXT: &str = r#"
[env]
name = "t"
platforms = ["linux-64", "osx-arm64"]
channels = ["conda-forge"]
[gpu]
cuda = "12.4"
[dependencies]
python = "3.11.*"
cudnn = "9.*"
[pypi-dependencies]
paddlepaddle-gpu = "==2.6.2"
numpy = ">=1.26"
[variants.cpu]
gpu = false
[variants.cpu.dependencies]
cudnn = false
python = "3.12.*"
[variants.cpu.pypi-dependencies]
paddlepaddle-gpu = false
paddlepaddle = "==2.6.2"
[variants.old]
platforms = ["linux-64"]
gpu = { cuda = "11.8" }
pypi-dependencies.paddlepaddle-gpu = "==2.5.2"
[variants.twin]
"#;

    fn facts(manifest: &Manifest) -> String {
        let keep = |key: &str| {
            ["dependencies.", "pypi-dependencies.", "gpu."].iter().any(|p| key.starts_with(p))
        };
        let facts = inputs(manifest).into_iter().filter(|(key, _)| keep(key));
        facts.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn each_closure_is_an_env_toml_of_its_own() {
        let manifest = parse(TEXT, "env.toml").unwrap_or_else(|error| panic!("{error}"));
        let closures = manifest.closures();
        let names: Vec<String> = closures.iter().map(|(c, _)| c.to_string()).collect();
        assert_eq!(
            names.join(", "),
            "linux-64, linux-64 cpu, linux-64 old, linux-64 twin, osx-arm64, osx-arm64 cpu, osx-arm64 twin"
        );
        let of = |name: &str| {
            let found = closures.iter().find(|(c, _)| c.to_string() == name).unwrap();
            facts(&found.1)
        };
        let base = "dependencies.cudnn 9.*; dependencies.python 3.11.*; gpu.cuda 12.4; \
                    pypi-dependencies.numpy >=1.26; pypi-dependencies.paddlepaddle-gpu ==2.6.2";
        assert_eq!(of("linux-64"), base);
        assert_eq!(of("linux-64 twin"), base);
        assert_eq!(
            of("linux-64 cpu"),
            "dependencies.python 3.12.*; pypi-dependencies.numpy >=1.26; \
             pypi-dependencies.paddlepaddle ==2.6.2"
        );
        assert_eq!(of("linux-64 old"), base.replace("12.4", "11.8").replace("==2.6.2", "==2.5.2"));
        // Errors of a solve show the line that counts.
        let cpu = &closures.iter().find(|(c, _)| c.to_string() == "osx-arm64 cpu").unwrap().1;
        let shown: Vec<&str> = cpu
            .dependencies
            .iter()
            .map(|d| d.span.clone())
            .chain(cpu.pypi_dependencies.iter().map(|d| d.span.clone()))
            .map(|span| &cpu.text[span])
            .collect();
        let expected = ["python = \"3.12.*\"", "numpy = \">=1.26\"", "paddlepaddle = \"==2.6.2\""];
        assert_eq!(shown, expected);
        let mut numbers: Vec<usize> = manifest.all_pypi_dependencies().map(|d| d.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn a_variant_is_an_input() {
        let manifest = parse(TEXT, "env.toml").unwrap_or_else(|error| panic!("{error}"));
        let facts: Vec<String> = inputs(&manifest)
            .into_iter()
            .filter_map(|(key, value)| {
                Some(format!("{} = {value}", key.strip_prefix("variants.")?))
            })
            .collect();
        assert_eq!(
            facts,
            [
                "cpu.dependencies.cudnn = false",
                "cpu.dependencies.python = 3.12.*",
                "cpu.gpu = false",
                "cpu.platforms = linux-64, osx-arm64",
                "cpu.pypi-dependencies.paddlepaddle = ==2.6.2",
                "cpu.pypi-dependencies.paddlepaddle-gpu = false",
                "old.gpu.cuda = 11.8",
                "old.platforms = linux-64",
                "old.pypi-dependencies.paddlepaddle-gpu = ==2.5.2",
                "twin.platforms = linux-64, osx-arm64",
            ]
        );
    }

    #[test]
    fn names() {
        for good in ["cpu", "cu118", "a", "0-b", &"x".repeat(32)] {
            assert_eq!(good.parse::<VariantName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "A", "a.b", "a_b", "ä", "a b", &"x".repeat(33)] {
            assert_eq!(bad.parse::<VariantName>(), Err(BadVariantName::Characters), "{bad}");
        }
        assert_eq!("default".parse::<VariantName>(), Err(BadVariantName::Default));
    }

    #[test]
    fn faults_have_their_place() {
        let base = "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n\
                    [pypi-dependencies]\nnumpy = \"*\"\n";
        for (text, words, hint, place) in [
            ("[variants.CPU]\n", "`CPU` is not the name of a variant", "a-z 0-9", "CPU"),
            ("[variants.default]\n", "`default` is not", "without a variant", "default"),
            ("[variants]\ncpu = 1\n", "`variants.cpu` is an integer", "a table", "1"),
            (
                "[variants.a]\nhost = 1\n",
                "unknown key `host` in [variants.a]",
                "`platforms`",
                "host",
            ),
            (
                "[variants.a]\ngpu = true\n",
                "`variants.a.gpu` is a boolean",
                "false or a table",
                "true",
            ),
            (
                "[variants.a.gpu]\n",
                "`cuda` is missing from [variants.a.gpu]",
                "cuda",
                "[variants.a.gpu]",
            ),
            ("[variants.a]\nplatforms = []\n", "`platforms` is missing", "linux-64", "[]"),
            (
                "[variants.a]\nplatforms = [\"win-64\"]\n",
                "platform `win-64` of a variant is not one of [env] platforms",
                "`linux-64`",
                "platforms = [\"win-64\"]",
            ),
            (
                "[variants.a.pypi-dependencies]\nnunpy = false\n",
                "variant `a` removes `nunpy`, which [pypi-dependencies] does not have",
                "`numpy`",
                "nunpy = false",
            ),
            (
                "[variants.a.dependencies]\nx = \"*\"\n",
                "[env] channels is empty",
                "channels",
                "x = \"*\"",
            ),
            (
                "[variants.a.pypi-dependencies]\nnumpy = false\nNumPy = \"*\"\n",
                "distribution `numpy` is given twice",
                "one of the two",
                "numpy = false",
            ),
            (
                "[pypi-options]\n[variants.a]\n[feature.a]\n",
                "[feature]",
                "variants.NAME",
                "feature",
            ),
        ] {
            let text = format!("{base}{text}");
            let error = parse(&text, "env.toml").expect_err(&text);
            let first = error.faults().next().unwrap();
            let said = first.kind.to_string();
            assert!(said.contains(words), "{text}\n{said}");
            let said = first.kind.hint().unwrap_or_default();
            assert!(said.contains(hint), "{text}\n{said}");
            assert_eq!(&text[first.span.clone()], place, "{text}");
        }
        let text = format!("{base}[variants.a.dependencies]\npython = \"*\"\n")
            .replace("[host]", "channels = [\"c\"]\n[host]");
        let error = parse(&text, "env.toml").unwrap_err().to_string();
        assert!(error.contains("takes the machine's Python"), "{error}");
    }
}
