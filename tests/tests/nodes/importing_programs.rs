//! `celeris import` of what other programs wrote: Gorse and Amazon Personalize.

use celeris_tests::Node;
use celeris_tests::fixtures::create_model;
use serde_json::{Value, json};

use super::importing::{assert_contains, create, import, imported, observations, refused, write};

#[test]
fn an_export_of_gorse_becomes_observations_and_items() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let shop = create(&node.client(), "shop", "implicit");
    let line = |kind: &str, user: &str, item: &str| {
        format!(
            "{}\n",
            json!({"FeedbackType": kind, "UserId": user, "ItemId": item, "Value": 0, "Timestamp": "2024-03-01T10:00:00Z",
            "Updated": "2024-03-01T10:00:00Z", "Labels": null, "Comment": ""})
        )
    };
    let rows = [("read", "u1", "i1"), ("like", "u1", "i1"), ("like", "u2", "i2"), ("share", "u2", "i1")];
    let text: String = rows.iter().map(|(kind, user, item)| line(kind, user, item)).collect();
    let feedback = write(dir.path(), "feedback.jsonl", text);
    let users = [
        json!({"UserId": "u1", "Labels": null, "Comment": ""}),
        json!({"UserId": "u2", "Labels": {"age": 31, "home": {"city": "Bern"}}, "Comment": "vip"}),
    ];
    let users = write(dir.path(), "users.jsonl", format!("{}\n{}\n", users[0], users[1]));
    let items = [
        json!({"ItemId": "i1", "IsHidden": false, "Categories": ["tea"], "Timestamp": "2024-01-01T00:00:00Z",
            "Labels": {"brand": "x"}, "Comment": ""}),
        json!({"ItemId": "i2", "IsHidden": true, "Categories": [], "Timestamp": "0001-01-01T00:00:00Z", "Labels": null, "Comment": ""}),
    ];
    let items = write(dir.path(), "items.jsonl", format!("{}\n{}\n", items[0], items[1]));

    let no_labels = refused(&shop, &[&feedback]);
    assert_contains(&no_labels, &["FeedbackType", "--label-of like=1,read=0.2", "nothing was taken"]);
    let missing = refused(&shop, &[&feedback, "--label-of", "read=1,like=4"]);
    assert_contains(&missing, &["feedback.jsonl:4: column FeedbackType: \"share\" has no label"]);
    let arguments = [&feedback, &items, &users, "--label-of", "read=1,like=4,share="];
    let counts = imported(&shop, &arguments);
    assert_contains(
        &counts,
        &["2 items described", "3 observations taken, 0 were there already, 0 skipped, 0 refused"],
    );
    assert_contains(
        &counts,
        &["1 of kinds of feedback without a label left out", "1 users described", "1 users left out"],
    );
    let known = shop.get("users/u2").expect(200)["attributes"].clone();
    assert_eq!(known, json!({"age": 31, "home.city": "Bern", "comment": "vip"}));
    assert_contains(&imported(&shop, &arguments), &["0 observations taken, 3 were there already"]);
    assert_eq!(observations(&shop), 3);
    let history = shop.user("u1", 2)["history"].clone();
    let labels: Vec<(&Value, &Value)> =
        history.as_array().unwrap().iter().map(|event| (&event["feedback"], &event["label"])).collect();
    assert!(
        labels.contains(&(&json!("read"), &json!(1.0))) && labels.contains(&(&json!("like"), &json!(4.0))),
        "{history}"
    );
    let attributes = shop.get("items/i1").expect(200)["attributes"].clone();
    assert_eq!(attributes, json!({"categories": ["tea"], "brand": "x", "timestamp": 1_704_067_200_000_i64}));
    let body = json!({"user": "new", "k": 5, "policy": "greedy"});
    let shown = shop.post("recommend", &body).expect(200)["items"].clone();
    let shown: Vec<&Value> = shown.as_array().unwrap().iter().map(|item| &item["item"]).collect();
    assert_eq!(shown, ["i1"], "a hidden item is not recommended");
}

#[test]
fn datasets_of_amazon_personalize_are_taken_with_their_schemas() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let interactions = write(
        dir.path(),
        "interactions.csv",
        "USER_ID,ITEM_ID,EVENT_TYPE,EVENT_VALUE,TIMESTAMP,DEVICE,HOUR,IMPRESSION\nu1,i1,watch,0.5,1709287200,tv,7,i1|i2\n\
        u2,i2,click,,1709287201,mobile,8,\n",
    );
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "categorical": kind == "string"});
    let schema = json!({"type": "record", "name": "Interactions", "fields": [field("USER_ID", "string"), field("ITEM_ID", "string"),
        field("EVENT_TYPE", "string"), field("TIMESTAMP", "long"), field("DEVICE", "string"), field("HOUR", "string")]});
    let schema = write(dir.path(), "interactions.json", schema.to_string());
    assert_contains(&refused(&films, &[&interactions]), &["interactions.csv:3: column EVENT_VALUE: is empty"]);
    let arguments = [&interactions, "--label-of", "watch=5,click=1", "--schema", &schema];
    assert_contains(&imported(&films, &arguments), &["2 observations taken"]);
    let event = films.user("u1", 1)["history"][0].clone();
    assert_eq!((&event["label"], &event["feedback"]), (&json!(5.0), &json!("watch")));
    assert_eq!(event["context"], json!({"DEVICE": "tv", "HOUR": "7"}), "{event}");

    let items = write(
        dir.path(),
        "items.csv",
        "ITEM_ID,GENRES,PRICE,CREATION_TIMESTAMP\ni1,Drama|War,9.5,1600000000\ni2,Crime,,1600000001\n",
    );
    assert_contains(&imported(&films, &[&items]), &["2 items described"]);
    let attributes = films.get("items/i1").expect(200)["attributes"].clone();
    assert_eq!(attributes, json!({"GENRES": ["Drama", "War"], "PRICE": 9.5, "CREATION_TIMESTAMP": 1_600_000_000}));

    let users = write(dir.path(), "users.csv", "USER_ID,AGE\nu1,30\n");
    let done = import(&films, &[&users, "--from", "personalize"]);
    assert_contains(&done.stderr, &["1 users described"]);
    assert_eq!(done.code, Some(0));
    assert_eq!(films.get("users/u1").expect(200)["attributes"], json!({"AGE": 30}));
    let broken = write(dir.path(), "broken.json", "{}");
    let done = import(&films, &[&items, "--schema", &broken]);
    assert_eq!(done.code, Some(2));
    assert_contains(&done.stderr, &["--schema", "is not the Avro schema of a dataset"]);
    assert_contains(
        &refused(&films, &[&items, "--schema", &schema]),
        &["none of the schemas given by --schema is that of Items"],
    );
}
