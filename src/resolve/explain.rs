//! From a conflict to sentences in the user's names.
//!
//! The solver hands over the part of the problem that proves that there is no answer. First the
//! root requirements in it are thinned out to a set of which none can be left out (by solving
//! again without each). Of what remains, every requirement becomes a sentence, candidates of one
//! name with the same requirement being one; a requirement that nothing fits says why, from what
//! was passed over when its candidates were read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::{Bfs, EdgeRef};
use resolvo::conflict::{ConflictCause, ConflictEdge, ConflictGraph, ConflictNode};
use resolvo::{SolvableId, VersionSetId};

use super::engine::Engine;
use super::error::{Explanation, SolveError};
use super::names::{Name, Set, World};
use super::problem::Asker;
use super::reasons::Reasons;
use super::solver::{Failed, Root, run, single_set};
use super::words;

/// More sentences than this help nobody.
const SENTENCES: usize = 14;
/// Thinning out solves once for each root requirement; beyond this number it is left.
const THINNED: usize = 16;

/// A conflict, free of the solver that found it.
pub(super) struct Facts {
    graph: ConflictGraph<SolvableId>,
}

impl Facts {
    pub(super) fn of(graph: ConflictGraph<SolvableId>) -> Self {
        Facts { graph }
    }

    /// The root requirements that take part.
    fn roots(&self, roots: &[Root]) -> Vec<Root> {
        let sets: HashSet<VersionSetId> = self
            .graph
            .graph
            .edges_directed(self.graph.root_node, Direction::Outgoing)
            .filter_map(|edge| match edge.weight() {
                ConflictEdge::Requires(requirement) => single_set(*requirement),
                ConflictEdge::Conflict(_) => None,
            })
            .collect();
        roots
            .iter()
            .filter(|root| {
                single_set(root.requirement.requirement).is_some_and(|set| sets.contains(&set))
                    // A condition is not an edge of the graph.
                    || root.requirement.condition.is_some()
            })
            .cloned()
            .collect()
    }
}

/// The error for a conflict.
pub(super) fn unsatisfiable(engine: &Engine<'_>, roots: &[Root], facts: Facts) -> SolveError {
    let (roots, facts) = thin_out(engine, facts.roots(roots), facts);
    let mut text = Text { engine, roots: &roots, facts: &facts, reasons: Reasons::new(engine) };
    let sentences = text.sentences();
    let advice = text.advice();
    let mut spans: Vec<_> = Vec::new();
    for root in &roots {
        if let Asker::Manifest(span) = &root.asker
            && !spans.contains(span)
        {
            spans.push(span.clone());
        }
    }
    let mut named: Vec<String> =
        roots.iter().filter(|root| root.named).map(|root| format!("`{}`", root.words)).collect();
    named.dedup();
    let platform = engine.problem.platform;
    let headline = match named.as_slice() {
        [] => format!("nothing can be installed on {platform}"),
        [one] => format!("{one} cannot be had on {platform}"),
        more if more.len() <= 4 => {
            format!("{} cannot be had together on {platform}", words::list(more, "and"))
        }
        _ => format!("what env.toml asks for cannot be had together on {platform}"),
    };
    SolveError::Unsatisfiable(Explanation { headline, reasons: sentences, advice, spans })
}

/// Leaves out root requirements as long as there is still no answer.
fn thin_out(engine: &Engine<'_>, mut roots: Vec<Root>, mut facts: Facts) -> (Vec<Root>, Facts) {
    let named = roots.iter().filter(|root| root.named).count();
    if named > THINNED || named < 2 {
        return (roots, facts);
    }
    let mut index = 0;
    while index < roots.len() {
        if !roots[index].named {
            index += 1;
            continue;
        }
        let mut fewer = roots.clone();
        let removed = fewer.remove(index);
        match run(engine, &fewer) {
            Err(Failed::Unsatisfiable(smaller)) => {
                // What is not in the smaller proof can go as well; but what has been tried and
                // found needed stays before `index`.
                let kept = smaller.roots(&fewer);
                let before = fewer[..index]
                    .iter()
                    .filter(|root| kept.iter().any(|kept| kept.requirement == root.requirement))
                    .count();
                index = before;
                roots = kept;
                facts = *smaller;
            }
            Ok(_) => index += 1,
            // The reasons at hand will do.
            Err(Failed::Source(_)) => {
                let _ = removed;
                return (roots, facts);
            }
        }
    }
    (roots, facts)
}

/// Who requires something.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Parent {
    Root,
    /// Candidates of this name.
    Name(Name),
}

/// One requirement of some candidates of one name.
struct Need {
    /// When the breadth-first walk from the roots came to it.
    order: usize,
    parent: Parent,
    ids: Vec<SolvableId>,
    set: VersionSetId,
    unresolved: bool,
}

struct Text<'t, 'p> {
    engine: &'t Engine<'p>,
    roots: &'t [Root],
    facts: &'t Facts,
    reasons: Reasons<'t, 'p>,
}

impl Text<'_, '_> {
    fn sentences(&mut self) -> Vec<String> {
        let mut sentences: Vec<(usize, String)> = Vec::new();
        let order = self.walk();
        for need in self.needs(&order) {
            if let Some(sentence) = self.need(&need) {
                sentences.push((need.order, sentence));
            }
        }
        sentences.extend(self.exclusions(&order));
        sentences.extend(self.constraints(&order));
        sentences.sort();
        let mut said: Vec<String> = Vec::new();
        for (_, sentence) in sentences {
            if !said.contains(&sentence) {
                said.push(sentence);
            }
        }
        let only = self.only_one();
        if said.len() > SENTENCES {
            let more = said.len() - SENTENCES;
            said.truncate(SENTENCES);
            said.push(format!("… and {}", words::count(more, "more requirement")));
        }
        said.extend(only);
        said
    }

    /// Nodes by distance from the roots.
    fn walk(&self) -> HashMap<NodeIndex, usize> {
        let graph = &self.facts.graph;
        let mut order = HashMap::new();
        let mut bfs = Bfs::new(&graph.graph, graph.root_node);
        while let Some(node) = bfs.next(&graph.graph) {
            order.insert(node, order.len());
        }
        order
    }

    /// The candidate that a node of metadata belongs to; other candidates as they are.
    fn owner(&self, id: SolvableId) -> SolvableId {
        match self.engine.name_of(id) {
            Name::Metadata(wheel) => *wheel,
            _ => id,
        }
    }

    fn needs(&self, order: &HashMap<NodeIndex, usize>) -> Vec<Need> {
        let graph = &self.facts.graph.graph;
        let mut needs: BTreeMap<(Parent, VersionSetId), Need> = BTreeMap::new();
        for edge in graph.edge_references() {
            let ConflictEdge::Requires(requirement) = edge.weight() else {
                continue;
            };
            let Some(set) = single_set(*requirement) else {
                continue;
            };
            let (parent, id) = match graph[edge.source()] {
                ConflictNode::Root => (Parent::Root, None),
                ConflictNode::Solvable(id) => {
                    let id = self.owner(id);
                    (Parent::Name(self.engine.name_of(id).clone()), Some(id))
                }
                _ => continue,
            };
            let at = order.get(&edge.source()).copied().unwrap_or(usize::MAX);
            let need = needs.entry((parent.clone(), set)).or_insert_with(|| Need {
                order: at,
                parent,
                ids: Vec::new(),
                set,
                unresolved: false,
            });
            need.order = need.order.min(at);
            need.unresolved |= matches!(graph[edge.target()], ConflictNode::UnresolvedDependency);
            if let Some(id) = id
                && !need.ids.contains(&id)
            {
                need.ids.push(id);
            }
        }
        let mut needs: Vec<Need> = needs.into_values().collect();
        needs.sort_by_key(|need| (need.order, need.set));
        needs
    }

    fn need(&mut self, need: &Need) -> Option<String> {
        let name = self.engine.pool.resolve_version_set_package_name(need.set);
        let name = self.engine.pool.resolve_package_name(name);
        let set = self.engine.pool.resolve_version_set(need.set);
        if matches!(name, Name::Metadata(_) | Name::World(_) | Name::Extra(..)) {
            return None;
        }
        let mut sentence = match &need.parent {
            Parent::Root => self.root(need.set)?,
            Parent::Name(_) => {
                let many = need.ids.len() > 1;
                let who = self.reasons.candidates(&need.ids);
                match set {
                    Set::Pythons(mask) => {
                        let pythons = self.engine.pythons().describe(mask);
                        let verb = if many { "run" } else { "runs" };
                        format!("{who} {verb} on {pythons} only")
                    }
                    Set::Records(_) => {
                        let verb = if many { "come" } else { "comes" };
                        format!("{who} {verb} with {name} of conda")
                    }
                    _ => {
                        let verb = if many { "need" } else { "needs" };
                        format!("{who} {verb} {}", self.reasons.requirement(name, set))
                    }
                }
            }
        };
        if need.unresolved
            && let Some(why) = self.reasons.why_nothing_fits(name, set)
        {
            sentence.push_str(&format!(", but {why}"));
        }
        Some(sentence)
    }

    /// A requirement of env.toml, or of gpuenv itself.
    fn root(&self, set: VersionSetId) -> Option<String> {
        let root =
            self.roots.iter().find(|root| single_set(root.requirement.requirement) == Some(set))?;
        Some(match &root.asker {
            Asker::Manifest(_) => format!("env.toml asks for `{}`", root.words),
            Asker::Gpuenv(why) => format!("gpuenv asks for {} ({why})", root.words),
        })
    }

    /// Candidates that cannot be used at all.
    fn exclusions(&mut self, order: &HashMap<NodeIndex, usize>) -> Vec<(usize, String)> {
        let graph = &self.facts.graph.graph;
        let mut excluded: BTreeMap<(Name, String), (usize, Vec<SolvableId>)> = BTreeMap::new();
        for edge in graph.edge_references() {
            let (ConflictNode::Solvable(id), ConflictNode::Excluded(reason)) =
                (graph[edge.source()], graph[edge.target()])
            else {
                continue;
            };
            let id = self.owner(id);
            let key = (
                self.engine.name_of(id).clone(),
                self.engine.pool.resolve_string(reason).to_owned(),
            );
            let at = order.get(&edge.source()).copied().unwrap_or(usize::MAX);
            let entry = excluded.entry(key).or_insert((at, Vec::new()));
            entry.0 = entry.0.min(at);
            entry.1.push(id);
        }
        excluded
            .into_iter()
            .map(|((_, reason), (at, ids))| {
                self.reasons.advise_on(&reason);
                (at, format!("{} cannot be used: {reason}", self.reasons.candidates(&ids)))
            })
            .collect()
    }

    /// Candidates that exclude others.
    fn constraints(&mut self, order: &HashMap<NodeIndex, usize>) -> Vec<(usize, String)> {
        let graph = &self.facts.graph.graph;
        type Entry = (usize, BTreeSet<SolvableId>, BTreeSet<SolvableId>);
        let mut found: BTreeMap<(Name, VersionSetId), Entry> = BTreeMap::new();
        for edge in graph.edge_references() {
            let ConflictEdge::Conflict(ConflictCause::Constrains(set)) = edge.weight() else {
                continue;
            };
            let (ConflictNode::Solvable(parent), ConflictNode::Solvable(other)) =
                (graph[edge.source()], graph[edge.target()])
            else {
                continue;
            };
            let at = order.get(&edge.source()).copied().unwrap_or(usize::MAX);
            let entry = found.entry((self.engine.name_of(parent).clone(), *set)).or_insert((
                at,
                BTreeSet::new(),
                BTreeSet::new(),
            ));
            entry.0 = entry.0.min(at);
            entry.1.insert(parent);
            entry.2.insert(other);
        }
        found
            .into_iter()
            .map(|((_, set), (at, parents, others))| {
                let parents: Vec<_> = parents.into_iter().collect();
                let others: Vec<_> = others.into_iter().collect();
                let many = parents.len() > 1;
                let who = self.reasons.candidates(&parents);
                let name = self.engine.pool.resolve_version_set_package_name(set);
                let name = self.engine.pool.resolve_package_name(name);
                let set = self.engine.pool.resolve_version_set(set);
                let sentence = if let (Name::World(dist), Set::World(World::Conda)) = (name, set) {
                    self.reasons.advise_worlds(dist);
                    let verb = if many { "provide" } else { "provides" };
                    format!("{who} of conda {verb} {dist}: a wheel of it cannot be beside it")
                } else {
                    let verb = if many { "work" } else { "works" };
                    format!(
                        "{who} {verb} only with {}, not with {}",
                        self.reasons.requirement(name, set),
                        self.reasons.candidates(&others)
                    )
                };
                (at, sentence)
            })
            .collect()
    }

    /// The names of which two versions would be needed.
    fn only_one(&self) -> Option<String> {
        let graph = &self.facts.graph.graph;
        let names: BTreeSet<String> = graph
            .edge_references()
            .filter(|edge| {
                matches!(
                    edge.weight(),
                    ConflictEdge::Conflict(ConflictCause::ForbidMultipleInstances)
                )
            })
            .filter_map(|edge| match graph[edge.source()] {
                ConflictNode::Solvable(id) => match self.engine.name_of(id) {
                    Name::Conda(name) => Some(name.to_string()),
                    Name::Dist(name) => Some(name.to_string()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let names: Vec<String> = names.into_iter().collect();
        if names.is_empty() || names.len() > 3 {
            return None;
        }
        Some(format!("there can be only one version of {}", words::list(&names, "and")))
    }

    fn advice(&mut self) -> String {
        let mut named: Vec<String> = self
            .roots
            .iter()
            .filter(|root| root.named)
            .map(|root| format!("`{}`", root.words))
            .collect();
        named.dedup();
        let mut advice: Vec<String> = self.reasons.advice();
        match named.as_slice() {
            [] => {}
            [one] if advice.is_empty() => {
                advice.push(format!("change or remove {one} in env.toml"));
            }
            [_] => {}
            more => advice.push(format!(
                "loosen or remove one of {} in env.toml",
                words::short_list(more, 6, "and")
            )),
        }
        if advice.is_empty() {
            advice.push("change the requirements in env.toml".to_owned());
        }
        advice.join("\n")
    }
}
