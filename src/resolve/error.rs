//! Why there is no answer.

use std::fmt;

use super::problem::Asker;
use super::provider::ProviderError;
use crate::error::{Exit, Report};
use crate::manifest::Span;

/// Why a solve has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SolveError {
    /// No set of packages satisfies all requirements.
    #[error("{0}")]
    Unsatisfiable(Explanation),
    /// A source failed.
    #[error("{0}")]
    Source(ProviderError),
    /// The requirements themselves cannot be worked with.
    #[error("{message}")]
    Problem {
        /// What is wrong.
        message: String,
        /// The line of env.toml, if it is one.
        span: Option<Span>,
    },
    /// The answer did not survive its own check: a bug.
    #[error("the solver's answer is wrong: {0}")]
    Broken(String),
}

impl SolveError {
    pub(super) fn problem(message: String, asker: Option<Asker>) -> Self {
        let span = match asker {
            Some(Asker::Manifest(span)) => Some(span),
            _ => None,
        };
        SolveError::Problem { message, span }
    }

    /// The line of env.toml that is at fault, for a snippet: the first of those involved.
    pub fn span(&self) -> Option<Span> {
        match self {
            SolveError::Unsatisfiable(explanation) => explanation.spans.first().cloned(),
            SolveError::Problem { span, .. } => span.clone(),
            SolveError::Source(_) | SolveError::Broken(_) => None,
        }
    }
}

impl Report for SolveError {
    fn exit(&self) -> Exit {
        match self {
            SolveError::Unsatisfiable(_) | SolveError::Problem { .. } => Exit::User,
            SolveError::Source(ProviderError::Unusable(_)) => Exit::Source,
            SolveError::Source(ProviderError::Failed { exit, .. }) => *exit,
            SolveError::Broken(_) => Exit::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SolveError::Unsatisfiable(explanation) => Some(explanation.advice.clone()),
            SolveError::Source(ProviderError::Failed { hint, .. }) => hint.clone(),
            SolveError::Source(ProviderError::Unusable(_)) => None,
            SolveError::Problem { .. } => Some("correct env.toml".to_owned()),
            SolveError::Broken(_) => {
                Some("please report this with env.toml and gpuenv.lock".to_owned())
            }
        }
    }
}

/// The reasons of an unsatisfiable problem, in the user's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What cannot be had, one line.
    pub headline: String,
    /// The chain of reasons, a sentence each, without full stop; from env.toml to the clash.
    pub reasons: Vec<String>,
    /// What to change.
    pub advice: String,
    /// Lines of env.toml that are involved, in the order of the reasons.
    pub spans: Vec<Span>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline)?;
        for reason in &self.reasons {
            write!(f, "\n  - {reason}")?;
        }
        Ok(())
    }
}
