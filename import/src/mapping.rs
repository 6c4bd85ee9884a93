//! Which column has which role: named by the caller, or guessed by usual names.

use std::fmt;

use crate::display::name;

/// What a column says about an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    User,
    Item,
    Label,
    Time,
    Weight,
    Feedback,
    Id,
    Decision,
    Context,
}

impl Role {
    pub const ALL: [Self; 9] = [
        Self::User,
        Self::Item,
        Self::Label,
        Self::Time,
        Self::Weight,
        Self::Feedback,
        Self::Id,
        Self::Decision,
        Self::Context,
    ];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Item => "item",
            Self::Label => "label",
            Self::Time => "time",
            Self::Weight => "weight",
            Self::Feedback => "feedback",
            Self::Id => "id",
            Self::Decision => "decision",
            Self::Context => "context",
        }
    }

    /// Whether its column is guessed in exports only.
    fn is_of_exports(self) -> bool {
        matches!(self, Self::Weight | Self::Feedback | Self::Id | Self::Decision | Self::Context)
    }

    /// Names of columns that have this role, the likeliest first; without case, spaces and
    /// punctuation.
    fn usual_names(self) -> &'static [&'static str] {
        match self {
            Self::User => &[
                "user",
                "userid",
                "customer",
                "customerid",
                "client",
                "clientid",
                "member",
                "memberid",
                "account",
                "accountid",
                "visitor",
                "visitorid",
                "buyer",
                "buyerid",
                "player",
                "playerid",
                "reviewer",
                "reviewerid",
                "uid",
                "username",
            ],
            Self::Item => &[
                "item",
                "itemid",
                "product",
                "productid",
                "movie",
                "movieid",
                "film",
                "filmid",
                "article",
                "articleid",
                "book",
                "bookid",
                "isbn",
                "asin",
                "sku",
                "stockcode",
                "song",
                "songid",
                "track",
                "trackid",
                "artist",
                "artistid",
                "video",
                "videoid",
                "game",
                "gameid",
                "content",
                "contentid",
                "page",
                "pageid",
            ],
            Self::Label => {
                &["label", "rating", "ratings", "stars", "score", "reward", "overall", "grade", "bookrating"]
            }
            Self::Time => &[
                "time",
                "timestamp",
                "date",
                "datetime",
                "createdat",
                "created",
                "ts",
                "eventtime",
                "unixreviewtime",
                "orderdate",
                "orderedat",
                "purchasedate",
                "purchasedat",
                "invoicedate",
                "reviewdate",
                "occurredat",
            ],
            // Other columns of these names may mean anything; they are taken from exports only.
            Self::Weight => &["weight"],
            Self::Feedback => &["feedback"],
            Self::Id => &["observationid"],
            Self::Decision => &["decisionid"],
            Self::Context => &["context"],
        }
    }
}

/// Names of columns that count something; they are labels where no other column is.
const COUNTS: [&str; 12] = [
    "count",
    "qty",
    "quantity",
    "plays",
    "playcount",
    "listens",
    "listencount",
    "clicks",
    "clicked",
    "click",
    "views",
    "purchases",
];

/// What the caller says about a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub role: Role,
    /// The column; `None` for no column at all, also not a guessed one.
    pub column: Option<String>,
}

impl Wish {
    /// The wish of a text such as `user=customer_id`.
    ///
    /// # Errors
    /// What is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (role, column) = text
            .split_once('=')
            .ok_or_else(|| format!("expected ROLE=COLUMN, such as user=customer_id, got {text:?}"))?;
        let role = role.trim();
        let known = Role::ALL.into_iter().find(|known| known.name() == role);
        let known = known.or_else(|| (role == "timestamp").then_some(Role::Time)).ok_or_else(|| {
            let names = Role::ALL.map(Role::name).join(", ");
            format!("no role {role:?}; roles are {names}")
        })?;
        Ok(Self { role: known, column: Some(column.trim()).filter(|column| !column.is_empty()).map(str::to_owned) })
    }
}

/// A column with a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    pub index: usize,
    pub name: String,
    /// Whether its name was the reason.
    pub guessed: bool,
}

/// The columns by their roles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    mapped: [Option<Mapped>; Role::ALL.len()],
}

impl Mapping {
    /// The columns that `wishes` name, and guesses for the other roles, except those in `given`,
    /// which need no column.
    ///
    /// # Errors
    /// A wish names a column that there is not, or one role twice.
    pub fn of(columns: &[String], wishes: &[Wish], given: &[Role]) -> Result<Self, String> {
        let mut mapping = Self::default();
        for role in Role::ALL {
            let mut of_role = wishes.iter().filter(|wish| wish.role == role);
            let Some(wish) = of_role.next() else { continue };
            if of_role.next().is_some() || given.contains(&role) {
                return Err(format!("the {} is given twice", role.name()));
            }
            if let Some(name) = &wish.column {
                let index = column_of(columns, name)?;
                mapping.mapped[role as usize] = Some(Mapped { index, name: columns[index].clone(), guessed: false });
            }
        }
        let is_open = |role: Role| !given.contains(&role) && !wishes.iter().any(|wish| wish.role == role);
        let is_export = columns.iter().any(|name| is_id(name));
        for role in Role::ALL.into_iter().filter(|role| is_open(*role)) {
            if role.is_of_exports() && !is_export {
                continue;
            }
            let counts = if role == Role::Label { COUNTS.as_slice() } else { &[] };
            let found = role.usual_names().iter().chain(counts).find_map(|usual| {
                columns.iter().position(|name| plain(name) == *usual).filter(|index| !mapping.uses(*index))
            });
            mapping.mapped[role as usize] =
                found.map(|index| Mapped { index, name: columns[index].clone(), guessed: true });
        }
        Ok(mapping)
    }

    /// The column with a role.
    #[must_use]
    pub fn get(&self, role: Role) -> Option<&Mapped> {
        self.mapped[role as usize].as_ref()
    }

    /// Whether a column has a role.
    #[must_use]
    pub fn uses(&self, index: usize) -> bool {
        self.mapped.iter().flatten().any(|mapped| mapped.index == index)
    }

    /// Whether the label is a count by its name.
    #[must_use]
    pub fn label_is_count(&self) -> bool {
        self.get(Role::Label).is_some_and(|label| COUNTS.contains(&plain(&label.name).as_str()))
    }
}

impl fmt::Display for Mapping {
    /// As on the command line: `user=customer_id item=product_id`.
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let shown: Vec<String> = Role::ALL
            .into_iter()
            .filter_map(|role| Some(format!("{}={}", role.name(), name(&self.get(role)?.name))))
            .collect();
        formatter.write_str(&shown.join(" "))
    }
}

/// The column of this name: exactly, or without case, spaces and punctuation.
///
/// # Errors
/// There is none, or several.
pub fn column_of(columns: &[String], wanted: &str) -> Result<usize, String> {
    if let Some(index) = columns.iter().position(|column| column == wanted) {
        return Ok(index);
    }
    let mut similar = (0..columns.len()).filter(|index| plain(&columns[*index]) == plain(wanted));
    match (similar.next(), similar.next()) {
        (Some(index), None) => Ok(index),
        _ => Err(format!("there is no column {wanted:?}; the columns are {}", listed(columns))),
    }
}

/// The role that a column beside these has by its name.
#[must_use]
pub fn role_of(column: &str, columns: &[String]) -> Option<Role> {
    let plain_name = plain(column);
    let is_usual = |role: &Role| {
        role.usual_names().contains(&plain_name.as_str())
            || *role == Role::Label && COUNTS.contains(&plain_name.as_str())
    };
    let is_export = || is_id(column) || columns.iter().any(|name| is_id(name));
    Role::ALL.into_iter().find(is_usual).filter(|role| !role.is_of_exports() || is_export())
}

/// Whether a column is the one by which an export is recognised.
fn is_id(column: &str) -> bool {
    plain(column) == "observationid"
}

/// Columns that a message names, at most.
const LISTED_MAX: usize = 12;

/// The columns for a message: the first of them, and the number of the others.
#[must_use]
pub fn listed<S: AsRef<str>>(columns: &[S]) -> String {
    let first: Vec<_> = columns.iter().take(LISTED_MAX).map(|column| name(column.as_ref())).collect();
    let others = columns.len().saturating_sub(LISTED_MAX);
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("{}{more}", first.join(", "))
}

/// Whether a column of this name usually has the role.
#[must_use]
pub fn is_usual_name(role: Role, column: &str) -> bool {
    role.usual_names().contains(&plain(column).as_str())
}

/// Whether a column describes the user, by its name.
#[must_use]
pub fn describes_user(name: &str) -> bool {
    let name = plain(name);
    Role::User.usual_names().contains(&name.as_str())
        || ["user", "customer", "visitor"].iter().any(|of| name.starts_with(of))
}

pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn columns(header: &str) -> Vec<String> {
        header.split(',').map(str::to_owned).collect()
    }

    fn guessed(header: &str) -> String {
        Mapping::of(&columns(header), &[], &[]).unwrap().to_string()
    }

    #[test]
    fn usual_names_are_guessed() {
        for (header, mapping) in [
            ("userId,movieId,rating,timestamp", "user=userId item=movieId label=rating time=timestamp"),
            ("customer_id,product_id,qty,created_at", "user=customer_id item=product_id label=qty time=created_at"),
            ("Reviewer ID,ASIN,Overall,price", "user=Reviewer ID item=ASIN label=Overall"),
            ("user,item,quantity,stars", "user=user item=item label=stars"),
            ("user,item,weight,feedback", "user=user item=item"),
            (
                "user,item,label,weight,feedback,timestamp,observation_id",
                "user=user item=item label=label time=timestamp weight=weight feedback=feedback id=observation_id",
            ),
        ] {
            assert_eq!(guessed(header), mapping);
        }
    }

    #[test]
    fn wishes_go_before_guesses() {
        let header = columns("user,item,rating,Price,when");
        let wishes: Vec<Wish> =
            ["label=price", "timestamp=when"].iter().map(|text| Wish::parse(text).unwrap()).collect();
        let mapping = Mapping::of(&header, &wishes, &[]).unwrap();
        assert_eq!(mapping.to_string(), "user=user item=item label=Price time=when");
        let none = [Wish::parse("label=").unwrap()];
        assert_eq!(Mapping::of(&header, &none, &[]).unwrap().get(Role::Label), None);
        let problem = Mapping::of(&header, &[Wish::parse("user=custmer").unwrap()], &[]).unwrap_err();
        assert_eq!(problem, "there is no column \"custmer\"; the columns are user, item, rating, Price, when");
        assert!(Wish::parse("usr=x").unwrap_err().contains("roles are user, item"));
        assert!(Wish::parse("user").unwrap_err().contains("ROLE=COLUMN"));
    }
}
