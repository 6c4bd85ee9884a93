//! How the rows of files become observations: what the caller says, completed by what the layout of a file says.

mod layouts;

use celeris_model::{LabelRange, Loss};

use crate::display::name;
use crate::input::Input;
use crate::kinds::Kind;
use crate::labels::LabelsOf;
use crate::layout::personalize::Schema;
use crate::layout::{Layout, Subject};
use crate::mapping::{Mapping, Role, Wish, column_of, listed, plain, role_of};
use crate::source::{Reading, Rows};
use crate::times::TimeUnit;

/// Names of columns with kinds of feedback, where labels are given by them.
const KIND_NAMES: [&str; 7] = ["feedback", "feedbacktype", "event", "eventtype", "action", "behavior", "behaviour"];

/// How rows become observations, beside what the files say.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub reading: Reading,
    /// The columns that the caller names.
    pub wishes: Vec<Wish>,
    /// The label of all observations.
    pub label: Option<f32>,
    /// Labels by the kind of feedback; empty if they are elsewhere.
    pub labels_of: LabelsOf,
    /// The weight of all observations.
    pub weight: Option<f32>,
    /// The kind of feedback of all observations.
    pub feedback: Option<String>,
    /// The unit of times that are numbers.
    pub time_unit: Option<TimeUnit>,
    /// Columns of item attributes.
    pub attributes: Vec<String>,
    /// Columns of user attributes, in files of users.
    pub user_attributes: Vec<String>,
    /// Columns of fields of the context.
    pub context: Vec<String>,
    /// Schemas of files of Amazon Personalize.
    pub schemas: Vec<Schema>,
    /// The types of columns, as far as a schema gives them; callers leave it empty.
    pub kinds: Vec<(String, Kind)>,
    /// How the file writes that there is no time, beside an empty cell; callers leave it out.
    pub no_time: Option<&'static str>,
    /// The loss of the model, if it is known; it decides which labels are valid.
    pub loss: Option<Loss>,
    /// The only valid labels, if the model refuses others.
    pub label_range: Option<LabelRange>,
    /// The earliest valid time, in Unix milliseconds.
    pub earliest: Option<i64>,
    /// The latest valid time, in Unix milliseconds.
    pub latest: i64,
}

impl Rules {
    /// The roles that need no column.
    pub(crate) fn given(&self) -> Vec<Role> {
        let given = [
            (Role::Label, self.label.is_some() || !self.labels_of.is_empty()),
            (Role::Weight, self.weight.is_some()),
            (Role::Feedback, self.feedback.is_some()),
        ];
        given.into_iter().filter_map(|(role, given)| given.then_some(role)).collect()
    }

    /// The mapping of these columns, complete or not.
    ///
    /// # Errors
    /// As [`Mapping::of`].
    pub fn mapping(&self, columns: &[String]) -> Result<Mapping, String> {
        Mapping::of(columns, &self.wishes, &self.given())
    }

    /// The role that a column of this name would have beside these, if no wish decides.
    pub(crate) fn role_of(&self, column: &str, columns: &[String]) -> Option<Role> {
        let is_open = |role: &Role| !self.given().contains(role) && !self.wishes.iter().any(|wish| wish.role == *role);
        role_of(column, columns).filter(is_open)
    }

    /// How a file of this layout is read, before its columns are known.
    pub(crate) fn reading(&self, layout: Layout) -> Reading {
        let mut reading = self.reading.clone();
        if layout == (Layout::MovieLens { header: false }) && reading.columns.is_none() {
            reading.columns = Some(["user", "item", "rating", "timestamp"].map(str::to_owned).to_vec());
        }
        reading
    }

    /// The rules for an input with these columns.
    ///
    /// # Errors
    /// If the columns are not those of the input's layout.
    pub(crate) fn of(&self, input: &Input, columns: &[String]) -> Result<Self, String> {
        let mut rules = layouts::complete(self.clone(), input.layout, columns)?;
        // Types that no schema gives would need another reading.
        if input.is_stream() && rules.schemas.is_empty() {
            rules.context.clone_from(&self.context);
        }
        let is_known = rules.feedback.is_some() || rules.wishes.iter().any(|wish| wish.role == Role::Feedback);
        if !rules.labels_of.is_empty() && !is_known {
            let found = KIND_NAMES.iter().find_map(|name| columns.iter().find(|column| plain(column) == *name));
            rules.wishes.extend(found.map(|column| Wish { role: Role::Feedback, column: Some(column.clone()) }));
        }
        Ok(rules)
    }

    /// The columns of attributes of what rows describe.
    pub(crate) fn attributes_of(&self, subject: Subject) -> &[String] {
        if subject == Subject::Users { &self.user_attributes } else { &self.attributes }
    }

    /// The type of a column, as far as a schema gives it.
    pub(crate) fn kind_of(&self, column: &str) -> Kind {
        self.kinds.iter().find(|(name, _)| name == column).map_or_else(Kind::default, |(_, kind)| *kind)
    }
}

/// Name and index of the columns of the context.
pub(crate) fn context_columns(input: &Input, rules: &Rules, rows: &dyn Rows) -> Result<Vec<(String, usize)>, String> {
    let columns = rows.columns();
    let is_known = |name: &String| rules.kinds.iter().any(|(of, _)| of == name);
    if input.is_stream() && !rules.context.iter().all(is_known) {
        return Err(
            "can be read only once, and --context needs the types of the columns first; save it to a file, or \
                    name a column of JSON objects by --map context=COLUMN"
                .to_owned(),
        );
    }
    let mut found: Vec<(String, usize)> = Vec::with_capacity(rules.context.len());
    for name in &rules.context {
        let index = column_of(columns, name).map_err(|problem| format!("--context: {problem}"))?;
        if found.iter().any(|(_, before)| *before == index) {
            return Err(format!("--context: names the column {name} twice"));
        }
        found.push((rows.field(index).to_owned(), index));
    }
    Ok(found)
}

/// Checks that user, item and label have columns.
pub(crate) fn check_complete(mapping: &Mapping, rules: &Rules, columns: &[String]) -> Result<(), String> {
    let listed = listed(columns);
    match (mapping.get(Role::User), mapping.get(Role::Item)) {
        (Some(_), Some(_)) => {}
        (Some(user), None) => {
            if let Some(problem) = rules.user_attributes.iter().find_map(|name| column_of(columns, name).err()) {
                return Err(format!("--user-attributes: {problem}"));
            }
            return Err(format!(
                "no column for the item among {listed}; name it by --map item=COLUMN. If the rows describe users (column \
                 {}), name their columns by --user-attributes",
                name(&user.name)
            ));
        }
        (None, Some(item)) => {
            return Err(format!(
                "no column for the user among {listed}; name it by --map user=COLUMN. If the rows describe items (column \
                 {}), name their columns by --attributes",
                name(&item.name)
            ));
        }
        (None, None) => {
            return Err(format!(
                "no columns for user and item among {listed}; name them by --map user=COLUMN,item=COLUMN, or, if the first \
                 line is not a header, all columns by --columns"
            ));
        }
    }
    if !rules.labels_of.is_empty() && rules.feedback.is_none() && mapping.get(Role::Feedback).is_none() {
        return Err(format!(
            "--label-of needs the column of kinds of feedback, which is not known among {listed}; name it by --map \
             feedback=COLUMN"
        ));
    }
    let has_label = mapping.get(Role::Label).is_some() || rules.given().contains(&Role::Label);
    if let Some(kinds) = mapping.get(Role::Feedback).filter(|_| !has_label) {
        return Err(format!(
            "no column for the label among {listed}; give each kind of feedback in {} a label, as by --label-of like=1,read=0.2, \
             or name a column by --label-from COLUMN{}",
            name(&kinds.name),
            one_label(rules)
        ));
    }
    if !has_label {
        return Err(format!(
            "no column for the label among {listed}; name one by --label-from COLUMN (ratings for a model with \"loss\": \
             \"squared\", clicks of 0 and 1 for \"logistic\", counts for \"implicit\"){}",
            one_label(rules)
        ));
    }
    Ok(())
}

/// The advice to give all rows one label, unless it is known that the model would learn nothing from it.
fn one_label(rules: &Rules) -> &'static str {
    match rules.loss {
        Some(Loss::Squared | Loss::Logistic) => "",
        None | Some(Loss::Implicit) => {
            ", or give every row the same by --label 1: it happened, which suits a model with \"loss\": \"implicit\""
        }
    }
}
