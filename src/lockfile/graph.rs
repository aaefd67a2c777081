//! The packages of one environment as a graph: what `list`, `tree` and `why` show.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};

use super::model::{ArtifactKind, Lock, LockedEnvironment, LockedPackage, PackageId};
use crate::hash::ShortHash;

/// The world and name that an edge of a package of world `kind` leads to.
pub(super) fn edge_target(kind: ArtifactKind, edge: &str) -> (ArtifactKind, &str) {
    match edge.split_once(':') {
        Some(("conda", name)) => (ArtifactKind::Conda, name),
        Some(("wheel", name)) => (ArtifactKind::Wheel, name),
        _ => (kind, edge),
    }
}

/// The packages of one environment; an edge leads from a package to what it requires.
pub struct Graph<'l> {
    graph: DiGraph<&'l LockedPackage, ()>,
    asked: BTreeSet<NodeIndex>,
    roots: Vec<NodeIndex>,
}

/// Names a package within one [`Graph`]; ordered by link order.
pub type Node = NodeIndex;

/// A package with what it requires.
#[derive(Clone, Debug)]
pub struct Tree<'l> {
    /// The package.
    pub package: &'l LockedPackage,
    /// What it requires, sorted by name; empty where [`Tree::repeated`].
    pub children: Vec<Tree<'l>>,
    /// Its requirements are shown at an earlier place.
    pub repeated: bool,
}

impl Lock {
    /// What env.toml asks for in `environment`, by world and name, as the inputs write it: its own
    /// lines, with those of the variant added, put in their place or taken away.
    pub fn requirements(
        &self,
        environment: &LockedEnvironment,
    ) -> BTreeMap<(ArtifactKind, &str), &str> {
        let tables =
            [("dependencies.", ArtifactKind::Conda), ("pypi-dependencies.", ArtifactKind::Wheel)];
        let mut out = BTreeMap::new();
        for (table, kind) in tables {
            let lines = self.inputs_below(table);
            out.extend(lines.into_iter().map(|(name, line)| ((kind, name), line)));
            let Some(variant) = &environment.variant else { continue };
            for (name, line) in self.inputs_below(&format!("variants.{variant}.{table}")) {
                match line {
                    "false" => out.remove(&(kind, name)),
                    line => out.insert((kind, name), line),
                };
            }
        }
        out
    }

    /// Which packages count as asked for in the view of an env id: those that the first environment
    /// of that id asks for.
    pub fn asked(&self, env_id: ShortHash) -> Vec<&PackageId> {
        let Some(first) = self.environments.iter().find(|e| e.env_id == env_id) else {
            return Vec::new();
        };
        let graph = self.graph(first);
        let mut asked: Vec<&PackageId> =
            graph.asked.iter().map(|node| &graph.graph[*node].id).collect();
        asked.sort();
        asked
    }

    /// The graph of `environment`. An edge to a package that this environment does not hold (it
    /// comes from a marker that is true on another platform only, or from another variant) is left
    /// out.
    pub fn graph<'l>(&'l self, environment: &LockedEnvironment) -> Graph<'l> {
        let mut graph = DiGraph::new();
        let mut nodes = BTreeMap::new();
        for package in self.packages_of(environment) {
            let node = graph.add_node(package);
            nodes.insert((package.kind, package.name.as_str()), node);
        }
        let from: Vec<(Node, &'l LockedPackage)> =
            graph.node_indices().map(|node| (node, graph[node])).collect();
        for (node, package) in from {
            for edge in &package.edges {
                if let Some(to) = nodes.get(&edge_target(package.kind, edge)) {
                    graph.update_edge(node, *to, ());
                }
            }
        }
        let mut asked = BTreeSet::new();
        for (kind, name) in self.requirements(environment).into_keys() {
            // A conda package may stand in for a distribution of the same name.
            let found = nodes.get(&(kind, name)).or(nodes.get(&(ArtifactKind::Conda, name)));
            asked.extend(found);
        }
        // What gpuenv adds by itself, so that `pip list` works, say, nobody requires.
        let mut roots = asked.clone();
        for node in graph.node_indices() {
            if graph.neighbors_directed(node, Direction::Incoming).next().is_none() {
                roots.insert(node);
            }
        }
        Graph { graph, asked, roots: roots.into_iter().collect() }
    }
}

impl<'l> Graph<'l> {
    /// Packages in link order.
    pub fn packages(&self) -> impl Iterator<Item = (Node, &'l LockedPackage)> {
        self.graph.node_indices().map(|node| (node, self.graph[node]))
    }

    /// The package at `node`.
    pub fn package(&self, node: Node) -> &'l LockedPackage {
        self.graph[node]
    }

    /// What env.toml asks for, and what gpuenv adds, in link order.
    pub fn roots(&self) -> &[Node] {
        &self.roots
    }

    /// Whether env.toml itself asks for `node`.
    pub fn is_asked_for(&self, node: Node) -> bool {
        self.asked.contains(&node)
    }

    /// Packages called `name` in either world (PEP 503 spelling is forgiven), in link order.
    pub fn find(&self, name: &str) -> Vec<Node> {
        let normal = |name: &str| name.to_lowercase().replace(['_', '.'], "-");
        let exact: Vec<Node> = self.nodes_where(|package| package.name == name);
        match exact.is_empty() {
            true => self.nodes_where(|package| normal(&package.name) == normal(name)),
            false => exact,
        }
    }

    fn nodes_where(&self, keep: impl Fn(&LockedPackage) -> bool) -> Vec<Node> {
        self.graph.node_indices().filter(|node| keep(self.graph[*node])).collect()
    }

    /// What `node` requires, sorted by name.
    pub fn requires(&self, node: Node) -> Vec<Node> {
        self.sorted(node, Direction::Outgoing)
    }

    /// Who requires `node`, sorted by name.
    pub fn required_by(&self, node: Node) -> Vec<Node> {
        self.sorted(node, Direction::Incoming)
    }

    fn sorted(&self, node: Node, direction: Direction) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.graph.neighbors_directed(node, direction).collect();
        nodes.sort_by_key(|node| (&self.graph[*node].name, self.graph[*node].kind));
        nodes
    }

    /// `nodes` and all they require, in link order.
    pub fn closure(&self, nodes: &[Node]) -> Vec<Node> {
        let mut seen: BTreeSet<Node> = nodes.iter().copied().collect();
        let mut todo: Vec<Node> = nodes.to_vec();
        while let Some(node) = todo.pop() {
            for next in self.graph.neighbors(node) {
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        seen.into_iter().collect()
    }

    /// Why `node` is there: for each root that leads to it, one shortest path from that root to
    /// `node`, both included; shortest first. A root's own path is itself alone.
    pub fn why(&self, node: Node) -> Vec<Vec<Node>> {
        // One search backwards from `node` finds, for each package, its next step towards it.
        let mut next: BTreeMap<Node, Node> = BTreeMap::new();
        let mut seen = BTreeSet::from([node]);
        let mut queue = VecDeque::from([node]);
        while let Some(at) = queue.pop_front() {
            for from in self.required_by(at) {
                if seen.insert(from) {
                    next.insert(from, at);
                    queue.push_back(from);
                }
            }
        }
        let mut paths: Vec<Vec<Node>> = self
            .roots
            .iter()
            .filter(|root| seen.contains(root))
            .map(|root| {
                let mut path = vec![*root];
                let mut at = *root;
                while let Some(step) = next.get(&at) {
                    path.push(*step);
                    at = *step;
                }
                path
            })
            .collect();
        paths.sort_by_key(|path| (path.len(), path.first().map(|n| &self.graph[*n].name)));
        paths
    }

    /// The roots with all below them. What a package requires is spelled out where it comes first.
    pub fn tree(&self) -> Vec<Tree<'l>> {
        self.tree_from(&self.roots)
    }

    /// `nodes` with all below them, as [`Graph::tree`] shows the roots.
    pub fn tree_from(&self, nodes: &[Node]) -> Vec<Tree<'l>> {
        let mut roots = nodes.to_vec();
        roots.sort_by_key(|node| (&self.graph[*node].name, self.graph[*node].kind));
        let mut shown = BTreeSet::new();
        roots.into_iter().map(|root| self.subtree(root, &mut shown)).collect()
    }

    /// Depth is bounded by the number of packages, since each is spelled out once.
    fn subtree(&self, node: Node, shown: &mut BTreeSet<Node>) -> Tree<'l> {
        let package = self.graph[node];
        let requires = self.requires(node);
        if !shown.insert(node) {
            return Tree { package, children: Vec::new(), repeated: !requires.is_empty() };
        }
        let children = requires.into_iter().map(|child| self.subtree(child, shown)).collect();
        Tree { package, children, repeated: false }
    }
}
