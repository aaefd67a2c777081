//! From a conflict to sentences.
use resolvo::SolvableId;
use resolvo::conflict::ConflictGraph;

use super::engine::Engine;
use super::error::{Explanation, SolveError};
use super::solver::Root;

/// A conflict, free of the solver that found it.
pub(super) struct Facts {
    graph: ConflictGraph<SolvableId>,
}

impl Facts {
    pub(super) fn of(_: &Engine<'_>, graph: &ConflictGraph<SolvableId>) -> Self {
        Facts { graph: graph.clone() }
    }
}

pub(super) fn unsatisfiable(engine: &Engine<'_>, roots: &[Root], facts: Facts) -> SolveError {
    let _ = (engine, roots, &facts.graph);
    SolveError::Unsatisfiable(Explanation {
        headline: "unsatisfiable".to_owned(),
        reasons: vec![],
        advice: String::new(),
        spans: vec![],
    })
}
