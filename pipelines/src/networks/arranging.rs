//! Operators that arrange elements.

use super::{Around, ImportError, Shape, volume};

impl Around<'_, '_> {
    pub(super) fn concat(&self) -> Result<Shape, ImportError> {
        let inputs = self.inputs()?;
        let Some(first) = inputs.first() else { return self.refuse("input", "there is none") };
        let axis = self.place(self.node.value::<i64>("axis")?.unwrap_or(1), first.len())?;
        let mut shape = first.clone();
        for input in &inputs[1..] {
            let fits = |(at, length): (usize, &usize)| at == axis || first[at] == *length;
            if input.len() != first.len() || !input.iter().enumerate().all(fits) {
                return self.refuse("input", format!("the shapes {first:?} and {input:?} do not go together"));
            }
            shape[axis] = usize::saturating_add(shape[axis], input[axis]);
        }
        Ok(shape)
    }

    pub(super) fn split(&self) -> Result<Vec<Shape>, ImportError> {
        let input = self.input(0)?;
        let axis = self.place(self.node.value::<i64>("axis")?.unwrap_or(0), input.len())?;
        let given = self.parts("split")?;
        let mut lengths: Vec<usize> =
            given.into_iter().map(|length| usize::try_from(length).unwrap_or(0).min(input[axis] + 1)).collect();
        if lengths.is_empty() {
            lengths = vec![input[axis] / self.node.outputs.len(); self.node.outputs.len()];
        }
        if lengths.contains(&0) || lengths.iter().sum::<usize>() != input[axis] {
            return self.refuse("split", format!("the parts {lengths:?} are not those of {input:?}"));
        }
        let part = |length: &usize| {
            let mut shape = input.clone();
            shape[axis] = *length;
            shape
        };
        Ok(lengths.iter().map(part).collect())
    }

    pub(super) fn slice(&self) -> Result<Shape, ImportError> {
        let mut shape = self.input(0)?.clone();
        if self.known.opset < 10 {
            return self.refuse("starts", "the version 10 and later ones can be run");
        }
        let starts = self.integers(1)?.unwrap_or_default();
        let ends = self.integers(2)?.unwrap_or_default();
        let axes = self.integers(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.integers(4)?.unwrap_or_else(|| vec![1; starts.len()]);
        if starts.is_empty() || [ends.len(), axes.len(), steps.len()].iter().any(|count| *count != starts.len()) {
            return self.refuse("starts", "there must be as many starts as ends, axes and steps");
        }
        let mut seen = Vec::new();
        for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
            let axis = self.place(*axis, shape.len())?;
            if seen.contains(&axis) || *step != 1 {
                return self.refuse("steps", "each axis can be cut once, with the step 1");
            }
            seen.push(axis);
            let length = shape[axis] as i64;
            let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at }.clamp(0, length);
            shape[axis] = usize::try_from(place(*end) - place(*start)).unwrap_or(0);
            if shape[axis] == 0 {
                return self.refuse("ends", "nothing is left");
            }
        }
        Ok(shape)
    }

    pub(super) fn gather(&self) -> Result<Shape, ImportError> {
        let (input, indices) = (self.input(0)?, self.input(1)?);
        let axis = self.place(self.node.value::<i64>("axis")?.unwrap_or(0), input.len())?;
        // The library does not check them.
        let length = input[axis] as i64;
        let Some(places) = self.integers(1)? else { return self.refuse("indices", "there are none") };
        if places.iter().any(|place| !(-length..length).contains(place)) {
            return self.refuse("indices", format!("one of them is not within {length}"));
        }
        Ok([&input[..axis], indices, &input[axis + 1..]].concat())
    }

    pub(super) fn reshape(&self) -> Result<Shape, ImportError> {
        let input = self.input(0)?;
        if self.node.value::<i64>("allowzero")?.unwrap_or(0) != 0 {
            return self.refuse("allowzero", "axes without entries cannot be run");
        }
        let wanted = self.integers(1)?.unwrap_or_default();
        let mut shape = Vec::with_capacity(wanted.len());
        for (at, length) in wanted.iter().enumerate() {
            shape.push(match (*length, input.get(at)) {
                (0, Some(length)) => *length,
                (-1, _) => 1,
                (length, _) if length > 0 => length as usize,
                _ => return self.refuse("shape", format!("{input:?} cannot become {wanted:?}")),
            });
        }
        let (count, of_others) = (volume(input), volume(&shape));
        let mut open = (0..wanted.len()).filter(|at| wanted[*at] == -1);
        match (open.next(), open.next()) {
            (None, _) if count == of_others => Ok(shape),
            (Some(at), None) if count.is_multiple_of(of_others) => {
                shape[at] = count / of_others;
                Ok(shape)
            }
            _ => self.refuse("shape", format!("{input:?} cannot become {wanted:?}")),
        }
    }

    pub(super) fn transpose(&self) -> Result<Shape, ImportError> {
        let input = self.input(0)?;
        let order: Vec<i64> = self.node.list("perm", super::AXES_MAX)?;
        if order.is_empty() {
            return Ok(input.iter().rev().copied().collect());
        }
        let mut places: Vec<usize> =
            order.iter().filter_map(|axis| usize::try_from(*axis).ok()).filter(|axis| *axis < input.len()).collect();
        let shape = places.iter().map(|place| input[*place]).collect();
        places.sort_unstable();
        let is_order = places.into_iter().eq(0..input.len()) && order.len() == input.len();
        if is_order { Ok(shape) } else { self.refuse("perm", "it is no order of the axes") }
    }

    pub(super) fn squeeze(&self) -> Result<Shape, ImportError> {
        let input = self.input(0)?;
        let ones = || (0..input.len()).filter(|axis| input[*axis] == 1).collect();
        let axes: Vec<usize> = self.axes(input.len())?.unwrap_or_else(ones);
        if axes.iter().any(|axis| input[*axis] != 1) {
            return self.refuse("axes", "an axis has more than one entry");
        }
        Ok((0..input.len()).filter(|axis| !axes.contains(axis)).map(|axis| input[axis]).collect())
    }

    pub(super) fn unsqueeze(&self) -> Result<Shape, ImportError> {
        let input = self.input(0)?;
        let count = self.parts("axes")?.len();
        if count > super::AXES_MAX {
            return self.refuse("axes", "there are too many");
        }
        let Some(axes) = self.axes(input.len() + count)? else { return self.refuse("axes", "there are none") };
        let mut lengths = input.iter();
        let length = |axis: usize| if axes.contains(&axis) { Some(1) } else { lengths.next().copied() };
        Ok((0..input.len() + count).filter_map(length).collect())
    }

    pub(super) fn reduce(&self) -> Result<Shape, ImportError> {
        let input = self.input(0)?;
        let axes = self.axes(input.len())?;
        if axes.is_none() && self.node.value::<i64>("noop_with_empty_axes")?.unwrap_or(0) != 0 {
            return self.refuse("axes", "there are none");
        }
        self.without(&axes.unwrap_or_else(|| (0..input.len()).collect()))
    }

    /// The shape of the first input without these axes, or with the length 1 there.
    pub(super) fn without(&self, axes: &[usize]) -> Result<Shape, ImportError> {
        let keeps = self.node.value::<i64>("keepdims")?.unwrap_or(1) != 0;
        let lengths = self.input(0)?.iter().enumerate();
        let length = |(axis, length): (usize, &usize)| match axes.contains(&axis) {
            true => keeps.then_some(1),
            false => Some(*length),
        };
        Ok(lengths.filter_map(length).collect())
    }
}
