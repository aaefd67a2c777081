//! The grammar of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Exit codes, shown below every `--help`.
const EXITS: &str = "\
Exit status:
  0   done
  1   something you can mend: unsatisfiable requirements, a hash mismatch, a failed check
  2   the command line is wrong
  3   a source or the network failed; the same command may work later
  70  a bug in gpuenv";

const START: &str = "\
Start here:
  gpuenv init --host-python 3.11     write an env.toml in this directory
  gpuenv add --pypi torch            add a wheel (or: gpuenv add numpy, from conda)
  gpuenv realize                     lock if needed, download, build the environment
  gpuenv run -- python train.py      run in it
  git add env.toml gpuenv.lock       and colleagues rebuild the same bits

Exit status:
  0   done
  1   something you can mend: unsatisfiable requirements, a hash mismatch, a failed check
  2   the command line is wrong
  3   a source or the network failed; the same command may work later
  70  a bug in gpuenv";

/// Declarative, reproducible deep-learning environments
///
/// You declare what you need in env.toml: conda packages, wheels, CUDA. gpuenv resolves all of it
/// together into gpuenv.lock, every artifact pinned by hash, and builds the environment from an
/// immutable store.
#[derive(Debug, Parser)]
#[command(name = "gpuenv", version, after_help = START, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Directory of env.toml [default: here, or the nearest directory above that has one]
    #[arg(long, global = true, value_name = "DIR", env = "GPUENV_PROJECT", hide_env_values = true)]
    pub project: Option<PathBuf>,
    /// The store [default: the XDG data directory]
    #[arg(long, global = true, value_name = "DIR", env = "GPUENV_STORE", hide_env_values = true)]
    pub store: Option<PathBuf>,
    /// gpuenv's own configuration [default: gpuenv/config.toml in the XDG configuration directory]
    #[arg(long, global = true, value_name = "FILE", env = "GPUENV_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Ask no source: use what the caches and the store hold
    #[arg(long, global = true)]
    pub offline: bool,
    /// Say only what must be said
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Print one JSON object a line instead of words
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write an env.toml
    ///
    /// With wheels alone, take the Python of the machine; with conda, name channels:
    ///
    ///   gpuenv init --host-python 3.11
    ///   gpuenv init --channel conda-forge --python 3.11
    #[command(verbatim_doc_comment)]
    Init(InitArgs),
    /// Add requirements to env.toml
    ///
    /// Comments and layout stay. A name that is there already gets the new requirement.
    ///
    ///   gpuenv add numpy 'cudnn=8.1.*'                   from conda
    ///   gpuenv add --pypi 'torch==2.1.0'                 a wheel from the default index
    ///   gpuenv add --pypi 'paddlepaddle-gpu' --index paddle
    ///   gpuenv add --pypi ./dist/mine-1.0-py3-none-any.whl
    #[command(verbatim_doc_comment)]
    Add(AddArgs),
    /// Remove requirements from env.toml
    Remove(RemoveArgs),
    /// Resolve env.toml into gpuenv.lock
    ///
    /// Conda packages, wheels and Python are solved together, for every platform and variant of
    /// env.toml, on any machine. What the old lock holds is kept where it still fits. Where the lock fits
    /// already, no source is asked and nothing is written.
    ///
    ///   gpuenv lock              after editing env.toml, or to mend a bad merge of the lock
    ///   gpuenv lock --fresh      the newest of everything
    ///   gpuenv lock --check      in CI: does the committed lock fit env.toml?
    #[command(verbatim_doc_comment)]
    Lock(LockArgs),
    /// Move packages of gpuenv.lock to newer versions, within env.toml
    ///
    /// Named packages move to the newest version that fits; whatever has to move with them does,
    /// and all else stays. Without a name, everything moves.
    ///
    ///   gpuenv update                everything
    ///   gpuenv update torch          torch, and what it needs newer
    ///   gpuenv update --dry-run      what would change?
    #[command(verbatim_doc_comment)]
    Update(UpdateArgs),
    /// Build the environment: lock if needed, download, link, run the post-build check
    ///
    /// Packages go into the store once per machine; the environment is a view of links to them,
    /// and .gpuenv/current points at it. Realizing again does nothing.
    ///
    ///   gpuenv realize --locked     in CI and on clusters: exactly what is committed
    ///   gpuenv realize --dry-run    what would be downloaded?
    ///
    /// Of several variants of an env.toml, the one named with --variant is built, and stays the
    /// one in use; before any is named, the one that suits the machine: with an NVIDIA driver the
    /// first that is for GPUs, without one the first that is not.
    #[command(verbatim_doc_comment)]
    Realize(RealizeArgs),
    /// Run a command in the environment
    ///
    /// gpuenv becomes the command: its exit status and signals are its own.
    ///
    ///   gpuenv run -- python train.py --epochs 10
    #[command(verbatim_doc_comment)]
    Run(RunArgs),
    /// Start a shell in the environment
    Shell(ShellArgs),
    /// Print what activates the environment in this shell: eval "$(gpuenv activate)"
    ///
    /// `gpuenv_deactivate` in that shell puts everything back.
    ///
    ///   eval "$(gpuenv activate)"       bash, zsh, sh
    ///   gpuenv activate | source        fish
    #[command(verbatim_doc_comment)]
    Activate(ActivateArgs),
    /// List the packages of the lock
    List(ListArgs),
    /// Show the packages of the lock as a tree of who needs whom
    Tree(TreeArgs),
    /// Show why a package is in the lock
    Why(WhyArgs),
    /// Print completions for a shell
    ///
    ///   gpuenv completions bash > ~/.local/share/bash-completion/completions/gpuenv
    #[command(verbatim_doc_comment)]
    Completions(CompletionsArgs),
    /// Print the manual page
    ///
    ///   gpuenv man > gpuenv.1 && man ./gpuenv.1
    #[command(verbatim_doc_comment)]
    Man,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct InitArgs {
    /// Name of the environment [default: the directory's]
    pub name: Option<String>,
    /// A conda channel; may be repeated, first is strongest
    #[arg(long, short, value_name = "CHANNEL")]
    pub channel: Vec<String>,
    /// A target platform; may be repeated [default: linux-64]
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Vec<String>,
    /// Python from conda, as a version spec
    #[arg(long, value_name = "SPEC", conflicts_with = "host_python")]
    pub python: Option<String>,
    /// Python of the machine, as a version such as 3.11
    #[arg(long, value_name = "VERSION")]
    pub host_python: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct AddArgs {
    /// What to add: `numpy`, `numpy>=1.26`, `cudnn=8.1.*`; with --pypi as PEP 508: `torch[opt]==2.1.0`
    #[arg(required = true, value_name = "SPEC")]
    pub specs: Vec<String>,
    /// Add to [pypi-dependencies] instead of [dependencies]
    #[arg(long)]
    pub pypi: bool,
    /// Take it from this index of [pypi-options.indexes]
    #[arg(long, requires = "pypi", value_name = "NAME")]
    pub index: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct RemoveArgs {
    /// Names to remove
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct LockArgs {
    /// Write nothing; exit 1 if gpuenv.lock does not fit env.toml, saying what changed
    #[arg(long)]
    pub check: bool,
    /// Resolve again from nothing instead of keeping what the old lock holds
    #[arg(long, conflicts_with = "check")]
    pub fresh: bool,
}

/// Which of several environments is meant.
#[derive(Debug, Args)]
pub struct VariantArgs {
    /// A variant of env.toml; `default` is the one outside of [variants]
    #[arg(long, value_name = "NAME", env = "GPUENV_VARIANT", hide_env_values = true)]
    pub variant: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct UpdateArgs {
    /// Packages to update, from conda or as wheels [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Say what would change; write nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct RealizeArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
    /// Fail if gpuenv.lock does not fit env.toml; never write it
    #[arg(long)]
    pub locked: bool,
    /// Say what would be downloaded and built; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not run the post-build check of [verify]
    #[arg(long)]
    pub no_verify: bool,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct RunArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct ShellArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct ListArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct ActivateArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
    /// The shell to write for [default: from $SHELL]
    #[arg(long, value_name = "SHELL")]
    pub shell: Option<ShellName>,
}

/// The shells that activation speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellName {
    Bash,
    Zsh,
    Fish,
    Sh,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct TreeArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
    /// Show only what these names bring in
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = EXITS)]
pub struct WhyArgs {
    #[command(flatten)]
    pub variant: VariantArgs,
    /// The package
    pub name: String,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// The grammar, for completions and the manual page.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// The grammar for an environment: a variable that is empty says nothing.
pub fn command_for(env: impl Fn(&str) -> Option<std::ffi::OsString>) -> clap::Command {
    let options =
        [("project", "GPUENV_PROJECT"), ("store", "GPUENV_STORE"), ("config", "GPUENV_CONFIG")];
    options.into_iter().fold(command(), |command, (option, variable)| {
        if env(variable).is_some_and(|value| value.is_empty()) {
            command.mut_arg(option, |arg| arg.env(clap::builder::Resettable::Reset))
        } else {
            command
        }
    })
}
