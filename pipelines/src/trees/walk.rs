//! From the roots to the leaves.

use super::{Direction, Kind, Node, Sets, Tree, TreeEnsemble, ZERO};

/// Walks in one loop: enough for the memory accesses of one to hide behind those of others.
pub(super) const LANES: usize = 8;

impl TreeEnsemble {
    /// The leaf that `row` reaches in a tree.
    pub(super) fn leaf(&self, tree: Tree, row: &[f32]) -> u32 {
        let mut node = &self.nodes[tree.root as usize];
        while node.kind != Kind::Leaf {
            let passes = node.passes(row[usize::from(node.feature)], &self.sets);
            node = &self.nodes[node.next as usize + usize::from(!passes)];
        }
        node.extra
    }

    /// The leaves of several walks: lane `i` walks the tree with root `roots[i]`, of at most `depth` splits. `step(i,
    /// node)` is the step of the node by the lane's value for its feature: [`Node::step`], [`Node::step_of_number`] or
    /// [`Node::step_of_any`].
    ///
    /// All lanes take the same number of steps, without a branch on the values in plain trees. The loop ends when no
    /// lane has moved, because most walks are shorter than the longest.
    #[inline]
    pub(super) fn leaves(&self, roots: [u32; LANES], depth: u8, step: impl Fn(usize, &Node) -> u32) -> [u32; LANES] {
        let nodes = self.nodes.as_slice();
        let mut at = roots;
        for _ in 0..depth {
            let mut moved = 0;
            for lane in 0..LANES {
                let node = &nodes[at[lane] as usize];
                let next = node.next + step(lane, node);
                moved |= next ^ at[lane];
                at[lane] = next;
            }
            if moved == 0 {
                break;
            }
        }
        at.map(|node| nodes[node as usize].extra)
    }
}

impl Node {
    /// Which child `x` goes to, at a plain split: 0 or 1; at a leaf: 0.
    #[inline]
    pub(super) fn step(&self, x: f32) -> u32 {
        let passes = (x <= self.threshold) | (x.is_nan() & (self.direction as u8 == Direction::NanPasses as u8));
        u32::from(!passes)
    }

    /// The same for an `x` that is not NaN.
    #[inline]
    pub(super) fn step_of_number(&self, x: f32) -> u32 {
        u32::from(x > self.threshold)
    }

    /// The same for splits of all kinds.
    #[inline]
    pub(super) fn step_of_any(&self, x: f32, sets: &Sets) -> u32 {
        if self.is_plain() { self.step(x) } else { u32::from(!self.passes(x, sets)) }
    }

    fn passes(&self, x: f32, sets: &Sets) -> bool {
        let missing =
            x.is_nan() || (x.abs() <= ZERO && matches!(self.direction, Direction::ZeroFails | Direction::ZeroPasses));
        if missing {
            return matches!(self.direction, Direction::NanPasses | Direction::ZeroPasses);
        }
        match self.kind {
            Kind::Leaf | Kind::Threshold => x <= self.threshold,
            Kind::Equal => x == self.threshold,
            Kind::Set => contains(sets.words(self.extra), x.trunc()),
            Kind::ExactSet => x.trunc() == x && contains(sets.words(self.extra), x),
        }
    }
}

/// Whether the integer `member` is in the set.
fn contains(words: &[u64], member: f32) -> bool {
    if !(0.0..words.len() as f32 * 64.0).contains(&member) {
        return false;
    }
    let member = member as usize;
    words.get(member / 64).is_some_and(|word| word >> (member % 64) & 1 == 1)
}
