//! Problems over real channel data, where it is at hand: `GPUENV_TEST_DATA`, or `../shared/data`
//! beside the checkout. Ignored otherwise.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuenv::manifest::Prereleases;
use gpuenv::resolve::{
    Asker, ChosenKind, CondaRequirement, Keep, Key, Problem, Provider, ProviderError, Solution,
    SolveError, Want, WheelFile, WheelListing, WheelMetadata, WheelOrigin, WheelRequirement, solve,
};
use rattler_conda_types::{
    Channel, GenericVirtualPackage, MatchSpec, PackageName, ParseMatchSpecOptions, RepoData,
    RepoDataRecord, Subdir,
};
use uv_distribution_filename::WheelFilename;

/// Channels of a directory, for linux-64.
struct Channels {
    channels: Vec<BTreeMap<String, Vec<Arc<RepoDataRecord>>>>,
}

fn data() -> PathBuf {
    std::env::var_os("GPUENV_TEST_DATA")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"))
}

impl Channels {
    fn load(names: &[&str]) -> Self {
        let mut channels = Vec::new();
        for name in names {
            let mut records: BTreeMap<String, Vec<Arc<RepoDataRecord>>> = BTreeMap::new();
            for subdir in ["linux-64", "noarch"] {
                let path = data().join("repodata").join(name).join(subdir);
                let bytes = std::fs::read(path.join("repodata.json.zst")).unwrap();
                let json = zstd::decode_all(bytes.as_slice()).unwrap();
                let repodata: RepoData = serde_json::from_slice(&json).unwrap();
                let channel = Channel::from_url(
                    format!("https://conda.example.invalid/{name}").parse::<url::Url>().unwrap(),
                );
                for record in repodata.into_repo_data_records(&channel) {
                    records
                        .entry(record.package_record.name.as_normalized().to_owned())
                        .or_default()
                        .push(Arc::new(record));
                }
            }
            channels.push(records);
        }
        Channels { channels }
    }
}

impl Provider for Channels {
    fn conda(
        &self,
        name: &rattler_conda_types::PackageName,
    ) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError> {
        Ok(Arc::new(
            self.channels
                .iter()
                .map(|names| names.get(name.as_normalized()).cloned().unwrap_or_default())
                .collect(),
        ))
    }

    fn conda_names(&self) -> Vec<String> {
        self.channels.iter().flat_map(|names| names.keys().cloned()).collect()
    }

    fn wheels(
        &self,
        name: &uv_normalize::PackageName,
        _: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        let files: Vec<_> = WHEELS
            .iter()
            .map(|(file, _)| (file, file.parse::<WheelFilename>().unwrap()))
            .filter(|(_, filename)| filename.name == *name)
            .map(|(file, filename)| {
                Arc::new(WheelFile {
                    filename,
                    file: (*file).to_owned(),
                    source: "wheels".to_owned(),
                    url: format!("https://wheels.example.invalid/{file}"),
                    size: None,
                    sha256: None,
                    requires_python: None,
                    yanked: None,
                    upload_time: None,
                    indexed: true,
                })
            })
            .collect();
        let unknown = files.is_empty();
        Ok(Arc::new(WheelListing { files, unknown, ..WheelListing::default() }))
    }

    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        let requires = WHEELS.iter().find(|(name, _)| *name == file.file).unwrap().1;
        Ok(Arc::new(WheelMetadata {
            name: file.filename.name.clone(),
            version: file.filename.version.clone(),
            requires_python: None,
            requires_dist: requires.iter().map(|text| text.parse().unwrap()).collect(),
            extras: Vec::new(),
        }))
    }

    fn prefetch(&self, _: Vec<Want>) {}
}

/// Wheels beside the channels.
const WHEELS: &[(&str, &[&str])] = &[
    ("trainer-2.0-py3-none-any.whl", &["torch>=2", "numpy", "tool[fast]; python_version < '4'"]),
    ("tool-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", &["pyyaml"]),
    ("tool-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", &["pyyaml"]),
    ("tool-1.1-cp310-cp310-manylinux_2_17_x86_64.whl", &["pyyaml"]),
    ("torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl", &["sympy"]),
    ("numpy-2.3.0-cp311-cp311-manylinux_2_28_x86_64.whl", &[]),
    ("pyyaml-6.0-cp311-cp311-manylinux_2_17_x86_64.whl", &[]),
    ("pyyaml-6.0-cp310-cp310-manylinux_2_17_x86_64.whl", &[]),
];

/// Conda problems; the same list is what other solvers were compared on.
const PROBLEMS: &[(&[&str], &[&str], Option<&str>)] = &[
    (&["conda-forge"], &["python 3.11.*"], None),
    (&["conda-forge"], &["numpy"], None),
    (&["conda-forge"], &["pytorch"], None),
    (&["conda-forge"], &["pytorch"], Some("12.4")),
    (&["conda-forge"], &["pytorch", "python 3.10.*"], Some("11.8")),
    (&["conda-forge"], &["pytorch >=2.1,<2.3", "cuda-version 11.8.*"], Some("12.4")),
    (&["conda-forge"], &["tensorflow"], Some("12.4")),
    (&["conda-forge"], &["tensorflow", "python 3.9.*"], None),
    (&["conda-forge"], &["jax", "jaxlib"], Some("12.4")),
    (&["conda-forge"], &["cudnn", "cudatoolkit"], Some("12.4")),
    (&["conda-forge"], &["scipy", "pandas", "matplotlib", "scikit-learn"], None),
    (&["conda-forge"], &["jupyterlab", "ipywidgets"], None),
    (&["conda-forge"], &["opencv", "pillow"], None),
    (&["conda-forge"], &["transformers"], Some("12.4")),
    (&["pytorch", "nvidia", "conda-forge"], &["pytorch"], Some("12.4")),
    (
        &["pytorch", "nvidia", "conda-forge"],
        &["pytorch 2.1.*", "python 3.9.*", "torchvision"],
        None,
    ),
    (&["pytorch", "conda-forge"], &["pytorch 1.13.*", "cpuonly"], None),
    (&["conda-forge"], &["xarray", "dask", "zarr"], None),
    (&["conda-forge"], &["pytorch-lightning"], None),
    (&["conda-forge"], &["numpy <1.24", "python >=3.10"], None),
];

fn virtual_package(name: &str, version: &str) -> GenericVirtualPackage {
    GenericVirtualPackage {
        name: PackageName::new_unchecked(name),
        version: version.parse().unwrap(),
        build_string: "0".parse().unwrap(),
    }
}

fn problem(channels: &[&str], specs: &[&str], cuda: Option<&str>) -> Problem {
    let mut virtual_packages: Vec<_> =
        [("__glibc", "2.28"), ("__linux", "4.18"), ("__unix", "0"), ("__archspec", "1")]
            .iter()
            .map(|(name, version)| virtual_package(name, version))
            .collect();
    virtual_packages.extend(cuda.map(|cuda| virtual_package("__cuda", cuda)));
    Problem {
        platform: Subdir::Linux64,
        virtual_packages,
        glibc: Some((2, 28)),
        host_python: None,
        channels: channels.iter().map(ToString::to_string).collect(),
        conda: specs
            .iter()
            .enumerate()
            .map(|(line, spec)| CondaRequirement {
                spec: MatchSpec::from_str(spec, ParseMatchSpecOptions::lenient()).unwrap(),
                asker: Asker::Manifest(line..line + 1),
            })
            .collect(),
        wheels: Vec::new(),
        indexes: Vec::new(),
        constraints: BTreeMap::new(),
        overrides: BTreeMap::new(),
        prereleases: Prereleases::default(),
        conda_pypi_map: BTreeMap::new(),
        gpu: None,
        exclude_newer: Default::default(),
        keep: Keep::default(),
    }
}

fn records(solution: &Solution) -> Vec<Arc<RepoDataRecord>> {
    solution
        .packages
        .iter()
        .map(|chosen| match &chosen.what {
            ChosenKind::Conda(record) => record.clone(),
            ChosenKind::Wheel { file, .. } => panic!("a wheel: {}", file.file),
        })
        .collect()
}

/// Each problem has an answer that is the same again, or reasons; what the old lock holds stays.
#[test]
#[ignore = "needs channel data"]
fn conda_problems() {
    for (channels, specs, cuda) in PROBLEMS {
        let world = Channels::load(channels);
        let problem = problem(channels, specs, *cuda);
        let mut lines = match solve(&problem, &world) {
            Ok(solution) => {
                let chosen = records(&solution);
                let again = solve(&problem, &world).unwrap();
                assert_eq!(chosen, records(&again), "{specs:?}");
                let mut keeping = problem.clone();
                for record in &chosen {
                    let record = &record.package_record;
                    let version = (record.version.to_string(), record.build.to_string());
                    keeping.keep.conda.insert(record.name.clone(), version);
                }
                let mut kept = records(&solve(&keeping, &world).unwrap());
                let mut chosen = chosen;
                kept.sort();
                chosen.sort();
                assert_eq!(chosen, kept, "{specs:?}");
                let keys: Vec<Key> = chosen
                    .iter()
                    .map(|record| Key::Conda(record.package_record.name.clone()))
                    .collect();
                for package in &solution.packages {
                    assert!(package.edges.iter().all(|edge| keys.contains(edge)));
                }
                chosen.iter().map(|record| record.identifier.to_string()).collect()
            }
            Err(SolveError::Unsatisfiable(explanation)) => {
                assert!(!explanation.reasons.is_empty());
                vec![format!("UNSAT {explanation}")]
            }
            Err(error) => panic!("{specs:?}: {error}"),
        };
        lines.sort();
        // For comparing with other solvers: --nocapture.
        println!(
            "RESULT {}",
            serde_json::json!({
                "channels": channels, "specs": specs, "cuda": cuda, "records": lines
            })
        );
    }
}

/// Conda's torch and numpy serve the wheel; what conda's part does not need is a wheel; the
/// interpreter is the newest that all agree on.
#[test]
#[ignore = "needs channel data"]
fn a_joint_problem() {
    let world = Channels::load(&["conda-forge"]);
    let mut problem = problem(&["conda-forge"], &["pytorch"], Some("12.4"));
    problem.wheels.push(WheelRequirement {
        name: "trainer".parse().unwrap(),
        extras: Vec::new(),
        specifiers: uv_pep440::VersionSpecifiers::empty(),
        origin: WheelOrigin::Default,
        marker: uv_pep508::MarkerTree::TRUE,
        asker: Asker::Manifest(50..51),
    });
    let solution = solve(&problem, &world).unwrap();
    let mut wheels = Vec::new();
    let mut conda = BTreeMap::new();
    for chosen in &solution.packages {
        match &chosen.what {
            ChosenKind::Wheel { file, .. } => wheels.push(file.file.as_str()),
            ChosenKind::Conda(record) => {
                let record = &record.package_record;
                conda.insert(record.name.as_normalized(), record.version.to_string());
            }
        }
    }
    wheels.sort_unstable();
    assert!(conda["python"].starts_with("3.11."));
    assert!(conda.contains_key("pytorch") && conda.contains_key("numpy"));
    assert_eq!(wheels.len(), 3, "{wheels:?}");
    assert!(wheels.iter().all(|file| !file.starts_with("torch-") && !file.starts_with("numpy-")));
    assert_eq!(solution.warnings, ["tool 1.0 has no extra `fast`; it is ignored"]);
}

/// The mapping that the conda world publishes: wherever it says that a package provides
/// distributions, the shipped table names one of them, if any.
#[test]
#[ignore = "needs the published mapping"]
fn the_shipped_table_agrees_with_the_published_mapping() {
    let bytes = std::fs::read(data().join("mappings/conda-forge.json.zst")).unwrap();
    let json = zstd::decode_all(bytes.as_slice()).unwrap();
    let published: HashMap<String, Option<Vec<String>>> = serde_json::from_slice(&json).unwrap();
    let table: toml_edit::DocumentMut =
        include_str!("../src/resolve/conda_pypi.toml").parse().unwrap();
    let mut compared = 0;
    for (name, dists) in table.iter() {
        let dists: Vec<&str> =
            dists.as_array().unwrap().iter().filter_map(|dist| dist.as_str()).collect();
        if let Some(Some(known)) = published.get(name)
            && !dists.is_empty()
        {
            assert!(dists.iter().any(|dist| known.iter().any(|known| known == dist)), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 25, "{compared}");
}
