//! Datasets of Amazon Personalize, with their schemas and without.

use celeris_import::layout::personalize::Schema;
use celeris_import::layout::{Layout, Program, Subject};
use celeris_import::{Finding, Input, Rules, find};
use serde_json::{Value, json};

use crate::{Folder, checked, items, rules, taken};

const INTERACTIONS: &str = "USER_ID,ITEM_ID,EVENT_TYPE,EVENT_VALUE,TIMESTAMP,DEVICE,PLACE,IMPRESSION,RECOMMENDATION_ID\n\
    u1,i1,watch,0.75,1709287200,mobile,1010,i1|i2|i3,rec-1\n\
    u2,i2,click,1,1709287201,tv,,,\n";

const SCHEMA: &str = r#"{"type": "record", "name": "Interactions", "namespace": "com.amazonaws.personalize.schema", "fields": [
    {"name": "USER_ID", "type": "string"}, {"name": "ITEM_ID", "type": "string"}, {"name": "EVENT_TYPE", "type": "string"},
    {"name": "EVENT_VALUE", "type": ["float", "null"]}, {"name": "TIMESTAMP", "type": "long"},
    {"name": "DEVICE", "type": "string", "categorical": true}, {"name": "PLACE", "type": ["string", "null"], "categorical": true},
    {"name": "IMPRESSION", "type": ["string", "null"]}, {"name": "RECOMMENDATION_ID", "type": ["string", "null"]}], "version": "1.0"}"#;

const ITEMS: &str = "ITEM_ID,GENRES,PRICE,ADULT,TEXT,YEAR,CREATION_TIMESTAMP\n\
    i1,Drama|War,9.5,true,a | b,1999,1600000000\n\
    i2,Crime,,false,plain,2001,1600000001\n";

const ITEMS_SCHEMA: &str = r#"{"type": "record", "name": "Items", "namespace": "com.amazonaws.personalize.schema", "fields": [
    {"name": "ITEM_ID", "type": "string"}, {"name": "GENRES", "type": "string", "categorical": true},
    {"name": "PRICE", "type": ["float", "null"]}, {"name": "ADULT", "type": "boolean"},
    {"name": "TEXT", "type": "string", "textual": true}, {"name": "YEAR", "type": "string", "categorical": true},
    {"name": "CREATION_TIMESTAMP", "type": "long"}], "version": "1.0"}"#;

fn with(schemas: &[&str]) -> Rules {
    Rules { schemas: schemas.iter().map(|schema| Schema::parse(schema).unwrap()).collect(), ..rules(&[]) }
}

fn input(folder: &Folder, name: &str, program: Option<Program>) -> Result<Input, String> {
    let finding = Finding { program, ..Finding::default() };
    Ok(find(&[folder.path(name)], finding).map_err(|error| error.to_string())?.remove(0))
}

#[test]
fn interactions_have_events_values_and_circumstances() {
    let folder = Folder::of(&[("interactions.csv", INTERACTIONS.as_bytes())]);
    let input = input(&folder, "interactions.csv", None).unwrap();
    assert_eq!(input.layout, Layout::Personalize(Subject::Feedback));
    for (rules, place) in [(rules(&[]), json!(1010)), (with(&[SCHEMA, ITEMS_SCHEMA]), json!("1010"))] {
        let rows = taken(&input, &rules);
        assert_eq!((rows[0].user.as_str(), rows[0].item.as_str(), rows[0].label), ("u1", "i1", 0.75));
        assert_eq!((rows[0].feedback.as_deref(), rows[0].timestamp), (Some("watch"), Some(1_709_287_200_000)));
        assert_eq!(json!(rows[0].context), json!({"DEVICE": "mobile", "PLACE": place}));
        assert_eq!(json!(rows[1].context), json!({"DEVICE": "tv"}));
        assert_eq!(rows[0].decision_id, None, "a recommendation of another service is no decision");
    }
}

#[test]
fn items_have_the_types_of_their_schema() {
    let folder = Folder::of(&[("items.csv", ITEMS.as_bytes())]);
    let input = input(&folder, "items.csv", None).unwrap();
    assert_eq!(input.layout, Layout::Personalize(Subject::Items));
    let attributes = |rules: &Rules| Value::from(items(&input, rules).0[0].attributes.clone());
    let expected = json!({"GENRES": ["Drama", "War"], "PRICE": 9.5, "ADULT": true, "TEXT": "a | b", "YEAR": "1999",
        "CREATION_TIMESTAMP": 1_600_000_000});
    assert_eq!(attributes(&with(&[ITEMS_SCHEMA])), expected);
    let guessed = attributes(&rules(&[]));
    assert_eq!((&guessed["TEXT"], &guessed["YEAR"]), (&json!(["a", "b"]), &json!(1999)));
}

#[test]
fn what_is_not_of_the_schema_is_a_bad_row_with_the_column() {
    let text = ITEMS.replace("9.5", "cheap").replace("false", "perhaps");
    let folder = Folder::of(&[("items.csv", text.as_bytes())]);
    let input = input(&folder, "items.csv", None).unwrap();
    let (_, bad) = checked(&input, &with(&[ITEMS_SCHEMA])).unwrap();
    let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert!(bad[0].contains("items.csv:2: column PRICE: \"cheap\" is not of the schema's type, number"), "{bad:?}");
    assert!(
        bad[1].contains("items.csv:3: column ADULT: \"perhaps\" is not of the schema's type, true or false"),
        "{bad:?}"
    );

    let problem = checked(&input, &with(&[SCHEMA])).unwrap_err().to_string();
    assert!(problem.contains("none of the schemas given by --schema is that of Items"), "{problem}");
    let narrow = ITEMS.replace("YEAR", "YEARS");
    folder.write("narrow.csv", narrow.as_bytes());
    let input = crate::personalize::input(&folder, "narrow.csv", None).unwrap();
    let problem = checked(&input, &with(&[ITEMS_SCHEMA])).unwrap_err().to_string();
    assert!(problem.contains("the schema has the field YEAR, which is no column"), "{problem}");
}

#[test]
fn a_program_that_is_named_decides_where_columns_do_not() {
    let folder = Folder::of(&[("u.csv", b"USER_ID,AGE\nu1,30\n"), ("x.csv", b"a,b\n1,2\n")]);
    let users = input(&folder, "u.csv", Some(Program::Personalize)).unwrap();
    assert_eq!(users.layout, Layout::Personalize(Subject::Users));
    let (rows, _) = items(&users, &rules(&[]));
    assert_eq!((rows[0].id.as_str(), Value::from(rows[0].attributes.clone())), ("u1", serde_json::json!({"AGE": 30})));
    let problem = input(&folder, "x.csv", Some(Program::Personalize)).unwrap_err();
    assert!(problem.contains("x.csv: no columns USER_ID and ITEM_ID"), "{problem}");
}
