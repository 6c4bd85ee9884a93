//! Labels by the kind of feedback: `read=0.2,like=1`.

/// The kind that stands for all that are not named.
const OTHERS: &str = "*";

/// The label of one kind of feedback.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelOf {
    kind: String,
    /// `None` leaves rows of this kind out.
    label: Option<f32>,
}

impl LabelOf {
    /// The label of a text such as `like=1`; `like=` leaves the kind out, and `*` stands for all other kinds.
    ///
    /// # Errors
    /// What is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, label) = text.rsplit_once('=').ok_or_else(|| {
            format!("expected KIND=LABEL, such as like=1, or KIND= to leave the kind out, got {text:?}")
        })?;
        let (kind, label) = (kind.trim(), label.trim());
        if kind.is_empty() {
            return Err(format!("expected a kind of feedback before the label in {text:?}, such as like=1"));
        }
        let number = |label: &str| label.parse().ok().filter(|label: &f32| label.is_finite());
        let label = match label {
            "" => None,
            label => Some(number(label).ok_or_else(|| format!("the label of {kind:?} is not a number: {label:?}"))?),
        };
        Ok(Self { kind: kind.to_owned(), label })
    }
}

/// The labels of all kinds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelsOf(Vec<LabelOf>);

impl LabelsOf {
    /// # Errors
    /// If one kind has two labels.
    pub fn new(labels: Vec<LabelOf>) -> Result<Self, String> {
        for (index, label) in labels.iter().enumerate() {
            if labels[..index].iter().any(|before| before.kind == label.kind) {
                return Err(format!("the kind {:?} has two labels", label.kind));
            }
        }
        Ok(Self(labels))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The label of a kind: `Some(None)` if its rows are left out, `None` if nothing is said of it.
    pub(crate) fn get(&self, kind: &str) -> Option<Option<f32>> {
        let of = |name: &str| self.0.iter().find(|label| label.kind == name).map(|label| label.label);
        of(kind).or_else(|| of(OTHERS))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn kinds_have_labels_or_are_left_out() {
        let labels: Vec<LabelOf> = ["read=0.2", "a=b=1", "share="].map(|text| LabelOf::parse(text).unwrap()).into();
        let labels = LabelsOf::new(labels).unwrap();
        assert_eq!(labels.get("read"), Some(Some(0.2)));
        assert_eq!(labels.get("a=b"), Some(Some(1.0)));
        assert_eq!((labels.get("share"), labels.get("like")), (Some(None), None));
        let others = LabelsOf::new(vec![LabelOf::parse("*=1").unwrap(), LabelOf::parse("read=").unwrap()]).unwrap();
        assert_eq!((others.get("like"), others.get("read")), (Some(Some(1.0)), Some(None)));
    }

    #[test]
    fn what_is_no_label_is_refused() {
        for text in ["like", "=1", "like=many", "like=inf", "like=NaN"] {
            assert!(LabelOf::parse(text).is_err(), "{text}");
        }
        let twice = ["like=1", "like=2"].map(|text| LabelOf::parse(text).unwrap());
        assert!(LabelsOf::new(twice.into()).unwrap_err().contains("two labels"));
    }
}
