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
use resolvo::{NameId, SolvableId, VersionSetId};

use super::engine::Engine;
use super::error::{Explanation, SolveError};
use super::gpu::Line;
use super::names::{Name, Set, World};
use super::problem::Asker;
use super::provider::ProviderError;
use super::reasons::Reasons;
use super::relax::Item;
use super::solver::{Failed, Refusal, Root, run};
use super::target::PyMask;
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
    fn roots(&self, engine: &Engine<'_>, roots: &[Root]) -> Vec<Root> {
        let sets: HashSet<VersionSetId> = self
            .graph
            .graph
            .edges_directed(self.graph.root_node, Direction::Outgoing)
            .filter_map(|edge| match edge.weight() {
                ConflictEdge::Requires(requirement) => Some(engine.parts(*requirement)?.0),
                ConflictEdge::Conflict(_) => None,
            })
            .collect();
        roots.iter().filter(|root| sets.contains(&root.set)).cloned().collect()
    }
}

/// The error where there is no answer.
pub(super) fn unsatisfiable(engine: &Engine<'_>, roots: &[Root]) -> Refusal {
    engine.proving.set(true);
    let error = match prove(engine, roots) {
        Proof::Found(facts) => {
            let taking_part = facts.roots(engine, roots);
            let (roots, facts) = thin_out(engine, taking_part, *facts);
            explained(engine, &roots, &facts)
        }
        Proof::Failed(error) => SolveError::Source(error).into(),
        Proof::None => SolveError::Broken(
            "there is no answer, but also no proof that there is none".to_owned(),
        )
        .into(),
    };
    engine.proving.set(false);
    error
}

enum Proof {
    Found(Box<Facts>),
    Failed(ProviderError),
    None,
}

/// Solves again, for the proof. What hangs on extras is left out until something asks for them, so
/// that it can take more than one run.
fn prove(engine: &Engine<'_>, roots: &[Root]) -> Proof {
    loop {
        let extras = engine.wanted_extras.borrow().len();
        match run(engine, roots) {
            Err(Failed::Unsatisfiable(Some(facts))) => return Proof::Found(facts),
            Err(Failed::Source(error)) => return Proof::Failed(error),
            Ok(_) if engine.wanted_extras.borrow().len() > extras => {}
            Ok(_) | Err(Failed::Unsatisfiable(None)) => return Proof::None,
        }
    }
}

fn explained(engine: &Engine<'_>, roots: &[Root], facts: &Facts) -> Refusal {
    let mut text = Text { engine, roots, facts, reasons: Reasons::new(engine) };
    let sentences = text.sentences();
    let advice = text.advice();
    let mut conflict = text.reasons.conflict();
    let items: BTreeSet<Item> = roots.iter().filter_map(|root| root.item).collect();
    for item in &items {
        conflict.root(engine.problem, *item, items.len());
    }
    if items.len() < roots.len() {
        conflict.pythons(engine.problem);
    }
    let mut spans: Vec<_> = Vec::new();
    for root in roots {
        if let Asker::Manifest(span) = &root.asker
            && !spans.contains(span)
        {
            spans.push(span.clone());
        }
    }
    let mut named: Vec<String> =
        roots.iter().filter(|root| root.named()).map(|root| format!("`{}`", root.words)).collect();
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
    let explanation = Explanation { headline, reasons: sentences, advice, spans };
    Refusal::Unsatisfiable(Box::new((explanation, conflict)))
}

/// Leaves out root requirements as long as there is still no answer.
fn thin_out(engine: &Engine<'_>, mut roots: Vec<Root>, mut facts: Facts) -> (Vec<Root>, Facts) {
    let named = roots.iter().filter(|root| root.named()).count();
    if !(2..=THINNED).contains(&named) {
        return (roots, facts);
    }
    let mut index = 0;
    while index < roots.len() {
        if !roots[index].named() {
            index += 1;
            continue;
        }
        let mut fewer = roots.clone();
        fewer.remove(index);
        match run(engine, &fewer) {
            Err(Failed::Unsatisfiable(Some(smaller))) => {
                // What is not in the smaller proof can go as well; what has been found needed
                // stays before `index`.
                let kept = smaller.roots(engine, &fewer);
                index = fewer[..index]
                    .iter()
                    .filter(|root| kept.iter().any(|kept| kept.set == root.set))
                    .count();
                roots = kept;
                facts = *smaller;
            }
            Ok(_) => index += 1,
            // The reasons at hand will do.
            Err(_) => break,
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
    /// What else satisfies it: other Pythons, or doing without an extra.
    ways_out: Vec<VersionSetId>,
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
        // Many versions with as many bounds on one other name: a sentence for all.
        let mut together: BTreeMap<(Parent, NameId, bool), Vec<Need>> = BTreeMap::new();
        for need in self.needs(&order) {
            let name = self.engine.pool.resolve_version_set_package_name(need.set);
            let key = (need.parent.clone(), name, self.nothing_fits(need.set));
            together.entry(key).or_default().push(need);
        }
        for ((parent, ..), needs) in &together {
            let chunk = match parent {
                Parent::Name(_) if needs.len() > 3 => needs.len(),
                _ => 1,
            };
            for needs in needs.chunks(chunk) {
                if let Some(sentence) = self.need(needs) {
                    sentences.push((needs[0].order, sentence));
                }
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
            let Some((set, ways_out)) = self.engine.parts(*requirement) else {
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
                ways_out,
            });
            need.order = need.order.min(at);
            if let Some(id) = id
                && !need.ids.contains(&id)
            {
                need.ids.push(id);
            }
        }
        let mut needs = self.join_pythons(needs.into_values());
        needs.sort_by_key(|need| (need.order, need.set));
        needs
    }

    /// Files of one version that run on different Pythons: the version runs on all of those.
    fn join_pythons(&self, needs: impl Iterator<Item = Need>) -> Vec<Need> {
        let mut joined: BTreeMap<(Parent, String), (Need, PyMask)> = BTreeMap::new();
        let mut others = Vec::new();
        for need in needs {
            let Set::Pythons(mask) = self.engine.pool.resolve_version_set(need.set) else {
                others.push(need);
                continue;
            };
            if need.parent == Parent::Root {
                others.push(need);
                continue;
            }
            let who = self.reasons.candidates(&need.ids);
            let mask = mask.clone();
            joined
                .entry((need.parent.clone(), who))
                .and_modify(|(known, all)| {
                    known.order = known.order.min(need.order);
                    *all = all.or(&mask);
                })
                .or_insert((need, mask));
        }
        others.extend(joined.into_values().map(|(mut need, mask)| {
            need.set = self.engine.set(Name::Conda("python".into()), Set::Pythons(mask));
            need
        }));
        others
    }

    fn nothing_fits(&self, set: VersionSetId) -> bool {
        let name = self.engine.pool.resolve_version_set_package_name(set);
        match (
            self.engine.pool.resolve_package_name(name),
            self.engine.pool.resolve_version_set(set),
        ) {
            (Name::Conda(_), _) => self.engine.conda_matching(set).is_empty(),
            (Name::Dist(dist), Set::Specifiers(specifiers)) => {
                let candidates = &self.engine.dist(dist).candidates;
                self.engine.admitted(dist, candidates, specifiers).is_empty()
            }
            (Name::Refused(_), _) => true,
            _ => false,
        }
    }

    /// ` on Python 3.9`, ` for its extra \`cli\``.
    fn at_times(&self, ways_out: &[VersionSetId]) -> String {
        let mut words = String::new();
        for set in ways_out {
            let name = self.engine.pool.resolve_version_set_package_name(*set);
            match (
                self.engine.pool.resolve_package_name(name),
                self.engine.pool.resolve_version_set(*set),
            ) {
                (Name::Extra(_, extra), _) => words.push_str(&format!(" for its extra `{extra}`")),
                (_, Set::Pythons(others)) => {
                    let pythons = self.engine.pythons();
                    let mask = pythons.every().minus(others);
                    words.push_str(&format!(" on {}", pythons.describe(&mask)));
                }
                _ => {}
            }
        }
        words
    }

    /// Whether a line of env.toml asks.
    fn is_named_root(&self, need: &Need) -> bool {
        need.parent == Parent::Root
            && self.roots.iter().any(|root| root.named() && root.set == need.set)
    }

    /// Candidates in words, and whether the words are a plural.
    fn who(&self, ids: &[SolvableId]) -> (String, bool) {
        let who = self.reasons.candidates(ids);
        let many = who.starts_with("some ")
            || !who.starts_with("every ")
                && (who.contains(" and ") || who.contains(" to ") || who.contains(", "));
        (who, many)
    }

    /// One sentence for requirements of one name on another.
    fn need(&mut self, needs: &[Need]) -> Option<String> {
        let need = needs.first()?;
        let name = self.engine.pool.resolve_version_set_package_name(need.set);
        let name = self.engine.pool.resolve_package_name(name);
        let set = self.engine.pool.resolve_version_set(need.set);
        if matches!(name, Name::Metadata(_) | Name::World(_) | Name::Extra(..)) {
            return None;
        }
        let mut ids: Vec<SolvableId> = needs.iter().flat_map(|need| need.ids.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let (who, many) = self.who(&ids);
        let times = self.at_times(&need.ways_out);
        let mut sentence = match (&need.parent, name, set) {
            (Parent::Root, ..) => self.root(need.set)?,
            (_, Name::Refused(reason), _) => {
                self.reasons.advise_on(reason);
                return Some(format!("{who} cannot be used{times}: {reason}"));
            }
            (_, _, Set::Pythons(mask)) => {
                let pythons = self.engine.pythons().describe(mask);
                let verb = if many { "run" } else { "runs" };
                format!("{who} {verb} on {pythons} only")
            }
            (_, Name::Cuda, Set::Major(_)) => {
                let verb = if many { "are" } else { "is" };
                let lines: BTreeSet<Line> =
                    ids.iter().filter_map(|id| self.engine.line_of(*id)).collect();
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                format!("{who} {verb} for {}{times}", words::short_list(&lines, 3, "or"))
            }
            (_, Name::Cudnn, Set::Major(major)) => {
                let verb = if many { "are" } else { "is" };
                format!("{who} {verb} cuDNN {major}{times}")
            }
            (_, _, Set::Records(_)) => {
                let verb = if many { "come" } else { "comes" };
                format!("{who} {verb} with {name} of conda")
            }
            _ => {
                let verb = if many { "need" } else { "needs" };
                let mut wanted: Vec<String> = Vec::new();
                for need in needs {
                    let set = self.engine.pool.resolve_version_set(need.set);
                    let words = self.reasons.requirement(name, set);
                    if !wanted.contains(&words) {
                        wanted.push(words);
                    }
                }
                format!("{who} {verb} {}{times}", words::short_list(&wanted, 3, "or"))
            }
        };
        if needs.iter().all(|need| self.nothing_fits(need.set))
            && let Some(why) = self.reasons.why_nothing_fits(name, set, self.is_named_root(need))
        {
            sentence.push_str(&format!(", but {why}"));
        }
        Some(sentence)
    }

    /// A requirement of env.toml, or of gpuenv itself.
    fn root(&self, set: VersionSetId) -> Option<String> {
        let root = self.roots.iter().find(|root| root.set == set)?;
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
                let (who, many) = self.who(&parents);
                let name = self.engine.pool.resolve_version_set_package_name(set);
                let name = self.engine.pool.resolve_package_name(name);
                let set = self.engine.pool.resolve_version_set(set);
                let sentence = if let (Name::World(dist), Set::World(World::Conda)) = (name, set) {
                    self.reasons.advise_worlds(dist);
                    let verb = if many { "provide" } else { "provides" };
                    let bound = match self.engine.problem.constraints.get(dist) {
                        Some(bound) => format!(" (the constraint on it is {bound})"),
                        None => String::new(),
                    };
                    format!(
                        "{who} of conda {verb} {dist}: a wheel of it cannot be beside it{bound}"
                    )
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
                    Name::Cuda => Some("CUDA (its major)".to_owned()),
                    Name::Cudnn => Some("cuDNN (its major)".to_owned()),
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
            .filter(|root| root.named())
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
