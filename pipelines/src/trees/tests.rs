//! Ensembles against a walk of their sources, node by node.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Which node a value goes to, by the definitions of the sources.
fn goes_to(branch: &Branch, sets: &[Vec<u32>], x: f32) -> usize {
    let missing = x.is_nan() || (branch.zeros == Zeros::Missing && (-1e-35..=1e-35).contains(&x));
    let value = f64::from(x);
    let passes = match branch.test {
        _ if missing => branch.missing == Missing::Then,
        Test::AtMost(bound) => value <= bound,
        Test::Below(bound) => value < bound,
        Test::AtLeast(bound) => value >= bound,
        Test::Above(bound) => value > bound,
        Test::Equal(other) => value == other,
        Test::NotEqual(other) => value != other,
        Test::In(set) => sets[set as usize].iter().any(|member| f64::from(*member) == value.trunc()),
        Test::Member(set) => sets[set as usize].iter().any(|member| f64::from(*member) == value),
    };
    if passes { branch.then } else { branch.otherwise }
}

/// The outputs of a row without any of the arrangements of an ensemble.
fn naive(shape: &Shape, trees: &[SourceTree], row: &[f32]) -> Vec<f32> {
    let mut votes: Vec<Vec<f64>> = vec![Vec::new(); shape.base.len()];
    for tree in trees {
        let mut at = tree.root;
        loop {
            match &tree.nodes[at] {
                SourceNode::Branch(branch) => at = goes_to(branch, &tree.sets, row[branch.feature as usize]),
                SourceNode::Leaf { first, count } => {
                    for vote in &tree.votes[*first..first + count] {
                        votes[vote.output as usize].push(f64::from(vote.value as f32));
                    }
                    break;
                }
            }
        }
    }
    let aggregated = |votes: &Vec<f64>| match shape.aggregate {
        Aggregate::Sum => votes.iter().fold(0.0, |sum, vote| sum + vote),
        Aggregate::Average => votes.iter().fold(0.0, |sum, vote| sum + vote) / trees.len() as f64,
        Aggregate::Min => votes.iter().copied().reduce(f64::min).unwrap_or(0.0),
        Aggregate::Max => votes.iter().copied().reduce(f64::max).unwrap_or(0.0),
    };
    let sums: Vec<f64> = votes.iter().zip(&shape.base).map(|(votes, base)| aggregated(votes) + base).collect();
    let logistic = |s: f64| 1.0 / (1.0 + (-s).exp());
    let outputs: Vec<f64> = match shape.transform {
        Transform::None => sums,
        Transform::Logistic => sums.into_iter().map(logistic).collect(),
        Transform::Exp => sums.into_iter().map(f64::exp).collect(),
        Transform::Complement => vec![1.0 - sums[0], sums[0]],
        Transform::LogisticPair => vec![logistic(-sums[0]), logistic(sums[0])],
        Transform::Opposite => vec![-sums[0], sums[0]],
        Transform::Softmax => {
            let largest = sums.iter().copied().reduce(f64::max).unwrap();
            let powers: Vec<f64> = sums.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = powers.iter().sum();
            powers.into_iter().map(|power| power / total).collect()
        }
    };
    outputs.into_iter().map(|output| output as f32).collect()
}

/// Values that are near, at and far from thresholds, and those that are not numbers.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => (-40..40i32).prop_map(|quarter| quarter as f32 / 4.0),
        2 => -4.0..4.0f32,
        1 => Just(f32::NAN),
        1 => prop::sample::select(vec![0.0, -0.0, 1e-36, -1e-35, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.1]),
    ]
}

fn threshold() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-16..16i32).prop_map(|quarter| f64::from(quarter) / 4.0),
        // Between two values of f32.
        2 => -4.0..4.0f64,
        1 => prop::sample::select(vec![0.1, -0.1, 1e300, -1e300, 1e-300]),
    ]
}

/// A shape of an ensemble, with all aggregates and transforms.
fn shape() -> impl Strategy<Value = Shape> {
    let aggregate = prop::sample::select(vec![Aggregate::Sum, Aggregate::Average, Aggregate::Min, Aggregate::Max]);
    let single = prop::sample::select(vec![
        Transform::None,
        Transform::Logistic,
        Transform::Exp,
        Transform::Complement,
        Transform::LogisticPair,
        Transform::Opposite,
    ]);
    let several = prop::sample::select(vec![Transform::None, Transform::Logistic, Transform::Softmax]);
    let base = prop_oneof![(vec(-2.0..2.0f64, 1), single), (vec(-2.0..2.0f64, 2..5), several),];
    (1..300usize, base, aggregate).prop_map(|(inputs, (base, transform), aggregate)| Shape {
        inputs,
        base,
        aggregate,
        transform,
    })
}

/// The raw material of a node: where it is attached, its test, its flags and the votes of a leaf.
type Material = (prop::sample::Index, usize, f64, u32, u8, Vec<(u32, i16)>);

fn material() -> impl Strategy<Value = Vec<Material>> {
    let votes = vec((0..64u32, any::<i16>()), 0..3);
    vec((any::<prop::sample::Index>(), 0..10usize, threshold(), any::<u32>(), 0..8u8, votes), 0..40)
}

/// A tree with a split for each material, each put in place of a leaf of those before it.
fn tree(shape: &Shape, materials: &[Material], plain: bool) -> SourceTree {
    let mut tree = SourceTree { sets: vec![vec![0, 3, 4, 9], vec![], vec![64, 7, 200]], ..SourceTree::default() };
    let mut leaves = vec![0];
    tree.nodes.push(SourceNode::Leaf { first: 0, count: 0 });
    for (place, test, threshold, feature, flags, votes) in materials {
        let place = leaves.swap_remove(place.index(leaves.len()));
        let test = match test {
            _ if plain => Test::AtMost(*threshold),
            0..=3 => Test::AtMost(*threshold),
            4 => Test::Below(*threshold),
            5 => Test::AtLeast(*threshold),
            6 => Test::Above(*threshold),
            7 => Test::Equal(f64::from(threshold.clamp(-1e30, 1e30) as f32)),
            8 => Test::NotEqual(f64::from(threshold.clamp(-1e30, 1e30) as f32)),
            _ if *threshold > 0.0 => Test::In(feature % 3),
            _ => Test::Member(feature % 3),
        };
        let missing = if flags & 1 == 0 { Missing::Then } else { Missing::Otherwise };
        let ordered = matches!(test, Test::AtMost(_) | Test::Below(_) | Test::AtLeast(_) | Test::Above(_));
        let zeros = if flags & 6 == 0 && ordered && !plain { Zeros::Missing } else { Zeros::Numbers };
        let (then, otherwise) = (tree.nodes.len(), tree.nodes.len() + 1);
        leaves.extend([then, otherwise]);
        let first = tree.votes.len();
        let output = |output: &u32| output % shape.base.len() as u32;
        tree.votes.extend(votes.iter().map(|(o, value)| Vote { output: output(o), value: f64::from(*value) / 4096.0 }));
        if votes.is_empty() && plain {
            tree.votes.push(Vote { output: 0, value: 0.25 });
        }
        let leaf = SourceNode::Leaf { first, count: tree.votes.len() - first };
        tree.nodes.extend([leaf, leaf]);
        let feature = feature % shape.inputs as u32;
        tree.nodes[place] = SourceNode::Branch(Branch { feature, test, missing, zeros, then, otherwise });
    }
    tree
}

fn ensemble(shape: &Shape, trees: &[SourceTree]) -> TreeEnsemble {
    let mut builder = Builder::new(shape.clone()).unwrap();
    trees.iter().for_each(|tree| builder.add(tree).unwrap());
    builder.finish().unwrap()
}

/// A shape, trees of it, and rows.
fn case() -> impl Strategy<Value = (Shape, Vec<SourceTree>, Vec<f32>)> {
    let materials = vec((material(), any::<bool>()), 1..30);
    (shape(), materials, 0..150usize, vec(value(), 1..2000)).prop_map(|(shape, materials, rows, values)| {
        let trees = materials.iter().map(|(material, plain)| tree(&shape, material, *plain)).collect();
        // Some cases have no missing values at all, which is another way of walking.
        let numbers = rows % 3 == 0;
        let value = |value: f32| if numbers && value.is_nan() { 0.5 } else { value };
        let rows = values.iter().cycle().take(rows * shape.inputs).map(|v| value(*v)).collect();
        (shape, trees, rows)
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ensembles_score_as_their_sources((shape, trees, rows) in case()) {
        let ensemble = ensemble(&shape, &trees);
        let mut out = vec![0.0; ensemble.outputs()];
        for row in rows.chunks(shape.inputs) {
            ensemble.score(row, &mut out);
            prop_assert_eq!(bits(&out), bits(&naive(&shape, &trees, row)));
        }
    }

    #[test]
    fn many_rows_have_the_bits_of_each((shape, trees, rows) in case()) {
        let ensemble = ensemble(&shape, &trees);
        let mut out = vec![0.0; rows.len() / shape.inputs * ensemble.outputs()];
        ensemble.score_rows(&rows, &mut out);
        let mut one = vec![0.0; ensemble.outputs()];
        for (row, out) in rows.chunks(shape.inputs).zip(out.chunks(ensemble.outputs())) {
            ensemble.score(row, &mut one);
            prop_assert_eq!(bits(&one), bits(out));
        }
    }

    #[test]
    fn encoded_ensembles_are_decoded((shape, trees, _) in case()) {
        let ensemble = ensemble(&shape, &trees);
        let decoded = TreeEnsemble::decode(&ensemble.encode());
        prop_assert_eq!(decoded.as_ref(), Ok(&ensemble));
    }

    #[test]
    fn damaged_bytes_give_an_error_or_an_ensemble_of_those_bytes(
        (shape, trees, _) in case(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = ensemble(&shape, &trees).encode();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let cut = end.index(bytes.len());
        prop_assert!(TreeEnsemble::decode(&bytes[..cut]).is_err() || cut == bytes.len());
        if let Ok(decoded) = TreeEnsemble::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
            let mut out = vec![0.0; decoded.outputs()];
            decoded.score(&vec![1.0; decoded.inputs()], &mut out);
            prop_assert!(out.iter().all(|output| output.is_finite()));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let mut headed = b"tree\x01".to_vec();
        headed.extend(&bytes);
        prop_assert!(TreeEnsemble::decode(&bytes).is_err());
        let _ = TreeEnsemble::decode(&headed);
    }
}

fn stump(branch: Branch) -> SourceTree {
    SourceTree {
        nodes: vec![
            SourceNode::Branch(branch),
            SourceNode::Leaf { first: 0, count: 1 },
            SourceNode::Leaf { first: 1, count: 1 },
        ],
        votes: vec![Vote { output: 0, value: 1.0 }, Vote { output: 0, value: 2.0 }],
        ..SourceTree::default()
    }
}

fn branch() -> Branch {
    let (missing, zeros) = (Missing::Otherwise, Zeros::Numbers);
    Branch { feature: 0, test: Test::AtMost(0.5), missing, zeros, then: 1, otherwise: 2 }
}

fn single(inputs: usize) -> Shape {
    Shape { inputs, base: vec![0.0], aggregate: Aggregate::Sum, transform: Transform::None }
}

/// The problem that a builder finds in the only tree.
fn problem(tree: &SourceTree) -> NodeProblem {
    match Builder::new(single(1)).unwrap().add(tree) {
        Err(TreeError::Node { tree: 0, problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn malformed_trees_are_refused_by_node() {
    assert_eq!(problem(&stump(Branch { feature: 1, ..branch() })), NodeProblem::Feature { feature: 1, inputs: 1 });
    assert_eq!(problem(&stump(Branch { then: 0, ..branch() })), NodeProblem::Shared);
    assert_eq!(problem(&stump(Branch { then: 2, ..branch() })), NodeProblem::Shared);
    assert_eq!(problem(&stump(Branch { then: 3, ..branch() })), NodeProblem::Child { child: 3, nodes: 3 });
    assert_eq!(problem(&stump(Branch { test: Test::Above(f64::NAN), ..branch() })), NodeProblem::Threshold);
    // No f32 has this value.
    assert_eq!(problem(&stump(Branch { test: Test::Equal(0.1), ..branch() })), NodeProblem::Threshold);
    assert_eq!(problem(&stump(Branch { test: Test::In(0), ..branch() })), NodeProblem::Set);
    let mut tree = stump(Branch { test: Test::In(0), ..branch() });
    tree.sets.push(vec![MEMBER_MAX + 1]);
    assert_eq!(problem(&tree), NodeProblem::Member { member: u64::from(MEMBER_MAX) + 1, max: MEMBER_MAX });
    let mut tree = stump(branch());
    tree.votes[1] = Vote { output: 0, value: 1e39 };
    assert_eq!(problem(&tree), NodeProblem::VoteValue { output: 0 });
    tree.votes[1] = Vote { output: 1, value: 0.0 };
    assert_eq!(problem(&tree), NodeProblem::Vote { output: 1, outputs: 1 });
    tree.votes.pop();
    assert_eq!(problem(&tree), NodeProblem::Votes);
}

/// A tree whose every second child is a split.
fn chain(splits: usize) -> SourceTree {
    let mut tree = SourceTree { votes: vec![Vote { output: 0, value: 1.0 }], ..SourceTree::default() };
    for split in 0..splits {
        let test = Test::Above(split as f64);
        tree.nodes.push(SourceNode::Branch(Branch { test, then: 2 * split + 2, otherwise: 2 * split + 1, ..branch() }));
        tree.nodes.push(SourceNode::Leaf { first: 0, count: 1 });
    }
    tree.nodes.push(SourceNode::Leaf { first: 0, count: 1 });
    tree
}

#[test]
fn trees_have_a_greatest_depth() {
    let ensemble = ensemble(&single(1), &[chain(DEPTH_MAX)]);
    assert_eq!(TreeEnsemble::decode(&ensemble.encode()), Ok(ensemble));
    assert_eq!(problem(&chain(DEPTH_MAX + 1)), NodeProblem::Depth { max: DEPTH_MAX });
}

#[test]
fn shapes_outside_the_bounds_are_refused() {
    let refused = |shape| Builder::new(shape).is_err();
    assert!(refused(single(0)));
    assert!(refused(single(INPUTS_MAX + 1)));
    assert!(refused(Shape { base: Vec::new(), ..single(1) }));
    assert!(refused(Shape { base: vec![0.0; OUTPUTS_MAX + 1], ..single(1) }));
    assert!(refused(Shape { base: vec![0.0; 2], transform: Transform::Complement, ..single(1) }));
    assert!(refused(Shape { base: vec![f64::NAN], ..single(1) }));
    assert!(Builder::new(single(1)).unwrap().finish().is_err());
}

#[test]
fn the_stored_form_has_these_bytes() {
    let tree = stump(branch());
    let bytes = ensemble(&single(3), &[tree]).encode();
    let expected = [
        b"tree\x01\x03\x01\0\0".as_slice(),
        &[0; 8],
        b"\x01\x03",
        // A threshold: feature 0, 0.5; NaN fails.
        b"\x01\0\0\0\0\x3f",
        // Two leaves with one vote each, for output 0.
        b"\x08\x01\0\0\0\x80\x3f",
        b"\x08\x01\0\0\0\0\x40",
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn outputs_are_finite() {
    let mut tree = stump(branch());
    tree.votes.iter_mut().for_each(|vote| vote.value = 3e38);
    let shape = Shape { transform: Transform::Exp, ..single(1) };
    let mut out = [0.0];
    ensemble(&shape, &[tree.clone()]).score(&[f32::INFINITY], &mut out);
    assert_eq!(out, [f32::MAX]);
    ensemble(&single(1), &[tree.clone(), tree]).score(&[f32::NAN], &mut out);
    assert_eq!(out, [f32::MAX]);
}
