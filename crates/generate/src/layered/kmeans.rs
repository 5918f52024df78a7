//! Picks inodes that differ: one of each cluster of their attribute vectors.

use super::core::{Graph, NodeId};
use crate::choice::Choices;

/// Number of attributes: type, symlinked, access time, depth, links, children, opens.
const ATTRIBUTES: usize = 7;

/// Rounds after which clusters are good enough.
const ROUNDS: usize = 6;

type Vector = [f64; ATTRIBUTES];

fn vector(graph: &Graph, id: NodeId) -> Vector {
    let Some(node) = graph.node(id) else { return [0.0; ATTRIBUTES] };
    [
        node.kind as u8 as f64,
        f64::from(node.symlinked),
        node.accessed as f64,
        graph.depth(id) as f64,
        node.links.len() as f64,
        node.children() as f64,
        f64::from(node.opens),
    ]
}

fn distance(one: &Vector, other: &Vector) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// One inode of each of at most `clusters` clusters.
pub(super) fn typical(
    graph: &Graph,
    ids: &[NodeId],
    clusters: usize,
    choices: &mut Choices,
) -> Vec<NodeId> {
    if ids.len() <= clusters {
        return ids.to_vec();
    }
    let vectors = normalised(ids.iter().map(|id| vector(graph, *id)).collect());
    let mut centres: Vec<Vector> = vec![*choices.pick(&vectors)];
    // The next centre is what is farthest from all before.
    while centres.len() < clusters {
        let far = |v: &Vector| centres.iter().map(|c| distance(v, c)).fold(f64::MAX, f64::min);
        let farthest = vectors.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
        centres.extend(farthest.copied());
    }
    let mut member: Vec<usize> = Vec::new();
    for _ in 0..ROUNDS {
        let nearest = |v: &Vector| {
            let by = |a: &usize, b: &usize| {
                distance(v, &centres[*a]).total_cmp(&distance(v, &centres[*b]))
            };
            (0..clusters).min_by(by).unwrap_or(0)
        };
        let now: Vec<usize> = vectors.iter().map(nearest).collect();
        if now == member {
            break;
        }
        member = now;
        for (cluster, centre) in centres.iter_mut().enumerate() {
            *centre = mean(&vectors, &member, cluster).unwrap_or(*centre);
        }
    }
    (0..clusters)
        .filter_map(|cluster| {
            let of: Vec<NodeId> =
                (0..ids.len()).filter(|at| member[*at] == cluster).map(|at| ids[at]).collect();
            (!of.is_empty()).then(|| *choices.pick(&of))
        })
        .collect()
}

fn mean(vectors: &[Vector], member: &[usize], cluster: usize) -> Option<Vector> {
    let of: Vec<&Vector> =
        vectors.iter().zip(member).filter(|(_, of)| **of == cluster).map(|(v, _)| v).collect();
    if of.is_empty() {
        return None;
    }
    let mut sum = [0.0; ATTRIBUTES];
    for v in &of {
        sum.iter_mut().zip(v.iter()).for_each(|(sum, part)| *sum += part);
    }
    Some(sum.map(|sum| sum / of.len() as f64))
}

/// Every attribute from 0 to 1, so that none counts more than another.
fn normalised(mut vectors: Vec<Vector>) -> Vec<Vector> {
    for at in 0..ATTRIBUTES {
        let of = || vectors.iter().map(|v| v[at]);
        let (low, high) = (of().fold(f64::MAX, f64::min), of().fold(f64::MIN, f64::max));
        let span = if high > low { high - low } else { 1.0 };
        vectors.iter_mut().for_each(|v| v[at] = (v[at] - low) / span);
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::super::core::Command;
    use super::*;

    /// Four empty directories and one that is not: both kinds are picked (footnote 9 of the paper).
    #[test]
    fn an_inode_that_is_unlike_the_others_is_picked() {
        let mut graph = Graph::default();
        for number in 1..=5 {
            graph.apply(&Command::Mkdir { dir: 0, name: number, new: number });
        }
        graph.apply(&Command::Create { dir: 3, name: 6, new: 6 });
        let ids = [1, 2, 3, 4, 5];
        let mut choices = Choices::new(1);
        for _ in 0..20 {
            let picked = typical(&graph, &ids, 2, &mut choices);
            assert!(picked.len() == 2 && picked.contains(&3), "{picked:?}");
        }
        // By chance alone it would be missed more often than not.
        let mut missed = 0;
        for _ in 0..100 {
            missed += u32::from(*choices.pick(&ids) != 3 && *choices.pick(&ids) != 3);
        }
        assert!(missed > 40);
    }
}
