//! Nodes that nothing reads any more are removed.

use crate::optimizer::Draft;

pub(in crate::optimizer) fn remove(draft: &mut Draft) -> bool {
    !draft.settle().is_empty()
}
