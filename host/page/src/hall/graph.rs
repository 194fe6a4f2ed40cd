//! Renders the dependencies of commissions as a picture and as a list.
//!
//! A commission stands one layer behind the last of those that it depends on: its layer is the length of the longest
//! way to it.

use std::collections::{BTreeMap, BTreeSet};

use guild_contract::{
    hall::{Graph, Node, label},
    text::one_line,
};
use maud::{Markup, html};

use super::{commission_path, words};
use crate::parts::{curve, text};

/// The most commissions in the picture.
const NODES: usize = 60;
/// The most characters of a title in the picture.
const TITLE_CHARS: usize = 26;
/// The size of a commission in the picture, and the distance from one to the next.
const WIDTH: usize = 200;
const HEIGHT: usize = 40;
const ACROSS: usize = 250;
const DOWN: usize = 54;
/// The edge of the picture.
const MARGIN: usize = 6;

/// The place of a commission in the picture.
struct Placed<'a> {
    node: &'a Node,
    x: usize,
    y: usize,
}

/// The graph of a project.
pub(super) fn graph(project: &str, graph: &Graph) -> Markup {
    let bound: BTreeSet<&str> = graph.edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    let mut nodes: Vec<&Node> = graph.nodes.iter().filter(|node| bound.contains(node.id.as_str())).collect();
    if nodes.is_empty() {
        return html! { p.quiet { "No commission depends on another." } };
    }
    let all = nodes.len();
    nodes.sort_by_key(|node| node.status.phase());
    nodes.truncate(NODES);
    let known: BTreeMap<&str, &Node> = nodes.iter().map(|node| (node.id.as_str(), *node)).collect();
    let edges = graph.edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str()));
    let edges: Vec<(&str, &str)> =
        edges.filter(|(from, to)| known.contains_key(from) && known.contains_key(to)).collect();
    html! {
        (picture(project, &nodes, &edges))
        @if all > nodes.len() {
            p.quiet { "The picture has " (nodes.len()) " of " (all) " commissions, those under way first." }
        }
        details {
            summary { "As a list" }
            ul { @for node in &nodes {
                @let before: Vec<&&Node> =
                    edges.iter().filter(|(_, to)| *to == node.id.as_str()).filter_map(|(from, _)| known.get(from)).collect();
                @if !before.is_empty() {
                    li {
                        (link(project, node)) " waits for "
                        @for (index, node) in before.iter().enumerate() {
                            @if index > 0 { ", " }
                            (link(project, node))
                        }
                    }
                }
            } }
        }
    }
}

fn link(project: &str, node: &Node) -> Markup {
    html! {
        a href=(commission_path(project, node.id.as_str())) { (text(label(&node.title))) } " (" (words(node.status)) ")"
    }
}

/// The layer of each commission. Records written by other programs can wait for each other in a circle; the layers of a
/// circle end with the number of commissions.
fn layers<'a>(nodes: &[&'a Node], edges: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, usize> {
    let mut layers: BTreeMap<&str, usize> = nodes.iter().map(|node| (node.id.as_str(), 0)).collect();
    for _ in 1..nodes.len() {
        let mut changed = false;
        for (from, to) in edges {
            let behind = layers.get(from).map_or(0, |layer| layer + 1);
            if let Some(layer) = layers.get_mut(to).filter(|layer| **layer < behind && behind < nodes.len()) {
                *layer = behind;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layers
}

fn picture(project: &str, nodes: &[&Node], edges: &[(&str, &str)]) -> Markup {
    let layers = layers(nodes, edges);
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let placed: BTreeMap<&str, Placed<'_>> = nodes
        .iter()
        .map(|node| {
            let layer = layers.get(node.id.as_str()).copied().unwrap_or_default();
            let row = rows.entry(layer).or_default();
            let place = Placed { node, x: MARGIN + layer * ACROSS, y: MARGIN + *row * DOWN };
            *row += 1;
            (node.id.as_str(), place)
        })
        .collect();
    let width = placed.values().map(|place| place.x).max().unwrap_or_default() + WIDTH + MARGIN;
    let height = placed.values().map(|place| place.y).max().unwrap_or_default() + HEIGHT + MARGIN;
    html! {
        div.scroll tabindex="0" role="region" aria-label="Picture of the dependencies" {
            svg.graph width=(width) height=(height) role="group" aria-label="commissions, each behind those that it waits for" {
                @for (from, to) in edges {
                    @if let (Some(from), Some(to)) = (placed.get(from), placed.get(to)) {
                        path.edge d=(line(from, to)) {}
                    }
                }
                @for Placed { node, x, y } in placed.values() {
                    a href=(commission_path(project, node.id.as_str())) {
                        title { (text(label(&node.title))) ", " (words(node.status)) }
                        rect class={ "node " (node.status.as_str()) } x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="4" {}
                        text x=(x + 8) y=(y + 17) { (one_line(label(&node.title), TITLE_CHARS)) }
                        text.state x=(x + 8) y=(y + 33) { (words(node.status)) }
                    }
                }
            }
        }
    }
}

/// The line from a commission to one that waits for it.
fn line(from: &Placed<'_>, to: &Placed<'_>) -> String {
    curve((from.x + WIDTH, from.y + HEIGHT / 2), (to.x, to.y + HEIGHT / 2), (ACROSS - WIDTH) / 2)
}

#[cfg(test)]
mod tests {
    use guild_contract::hall::{CommissionStatus, Edge};

    use super::*;

    fn node(id: &str, title: &str) -> Node {
        Node {
            id: id.parse().unwrap(),
            title: title.to_owned(),
            status: CommissionStatus::Pending,
            worker: None,
            project_name: "demo".to_owned(),
        }
    }

    fn edge(from: &str, to: &str) -> Edge {
        Edge { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    #[test]
    fn a_commission_stands_behind_the_longest_way_to_it() {
        let nodes = ["a", "b", "c", "alone"].map(|id| node(id, "Commission: <b>"));
        let all = Graph { nodes: nodes.to_vec(), edges: vec![edge("a", "c"), edge("b", "c"), edge("a", "b")] };
        let html = graph("demo", &all).into_string();
        for (id, x) in [("a", 6), ("b", 256), ("c", 506)] {
            let (_, rest) =
                html.split_once(&format!("<a href=\"/page/hall/projects/demo/commissions/{id}\"><title>")).unwrap();
            assert!(rest.split_once(" x=\"").unwrap().1.starts_with(&format!("{x}\"")), "{id}: {html}");
        }
        assert!(!html.contains("alone") && !html.contains("<b>"), "{html}");
    }

    #[test]
    fn a_circle_and_a_crowd_have_an_end() {
        let ids: Vec<String> = (0..100).map(|id| format!("n{id}")).collect();
        let nodes = ids.iter().map(|id| node(id, id)).collect();
        let edges = ids.iter().zip(ids.iter().cycle().skip(1)).map(|(from, to)| edge(from, to)).collect();
        let html = graph("demo", &Graph { nodes, edges }).into_string();
        assert!(html.contains("60 of 100 commissions"), "{html}");
    }
}
