#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::{Value, json};

use super::{Form, Line, LoggedDecision, files, looks_like};

fn parse(value: &Value) -> Result<Line, String> {
    Line::parse(value.to_string().as_bytes())
}

#[track_caller]
fn decision(value: &Value) -> LoggedDecision {
    match parse(value) {
        Ok(Line::Decision(decision)) => *decision,
        other => panic!("{other:?}"),
    }
}

fn of_one_slot() -> Value {
    json!({"_label_cost": -0.0, "_label_probability": 0.25, "_label_Action": 2, "EventId": "e-1",
        "c": {"_multi": [{"_tag": "a"}, {"_tag": "b"}]}})
}

fn of_slots(outcomes: &Value, slots: &Value) -> Value {
    json!({"EventId": "e-1", "c": {"_multi": [{}, {}, {}], "_slots": slots}, "_outcomes": outcomes})
}

#[test]
fn the_action_counts_from_0_or_from_1() {
    let mut line = of_one_slot();
    let read = decision(&line);
    assert_eq!((read.form, read.choices[0].action, read.choices[0].probability), (Form::OneSlot, 1, 0.25));
    assert_eq!(read.choices[0].candidates, [0, 1]);
    line["_labelIndex"] = json!(1);
    assert_eq!(decision(&line).choices[0].action, 1);
    line["_label_Action"] = Value::Null;
    assert_eq!(decision(&line).choices[0].action, 1);
    line["_labelIndex"] = Value::Null;
    assert!(parse(&line).unwrap_err().contains("_label_Action"));
    line["_label_Action"] = json!(0);
    assert_eq!(parse(&line).unwrap_err(), "_label_Action: expected an action from 1 to 2, got 0");
}

#[test]
fn ids_of_actions_are_in_several_places() {
    let actions = json!([{"_tag": "a"}, {"i": {"id": "b"}}, {"id": 3}, {"_aid": "d"}, {"__aid": 5}, {"ActionId": "f"}, {"x": 1}, {"_tag": ""}]);
    let mut line = of_one_slot();
    line["c"]["_multi"] = actions;
    let ids: Vec<Option<String>> = decision(&line).actions.into_iter().map(|action| action.id).collect();
    let expected = [Some("a"), Some("b"), Some("3"), Some("d"), Some("5"), Some("f"), None, None];
    assert_eq!(ids, expected.map(|id| id.map(str::to_owned)));
}

#[test]
fn slots_take_what_is_not_taken_above_and_what_they_include() {
    let outcomes =
        json!([{"_label_cost": -1, "_a": [2], "_p": [0.5]}, {"_label_cost": 0, "_a": [0, 1], "_p": [0.75, 0.25]}]);
    let read = decision(&of_slots(&outcomes, &json!([{}, {}])));
    assert_eq!(read.form, Form::Ranking);
    assert_eq!(read.choices[0].candidates, [0, 1, 2]);
    assert_eq!((read.choices[1].candidates.as_slice(), read.choices[1].cost), ([0, 1].as_slice(), 0.0));
    let read = decision(&of_slots(&outcomes, &json!([{"_inc": [2, 1]}, {"_inc": [0]}])));
    assert_eq!(
        (read.choices[0].candidates.as_slice(), read.choices[1].candidates.as_slice()),
        ([2, 1].as_slice(), [0].as_slice())
    );
    for (outcomes, slots, problem) in [
        (outcomes.clone(), json!([{}]), "_outcomes: expected one for each of the 1 slots"),
        (outcomes.clone(), json!([{"_inc": [0, 1]}, {}]), "_outcomes[0]._a: expected an action"),
        (outcomes, json!([{"_inc": [7]}, {}]), "c._slots[0]._inc: expected actions from 0 to 2"),
        (
            json!([{"_label_cost": 0, "_a": [1], "_p": [1]}, {"_label_cost": 0, "_a": [1], "_p": [1]}]),
            json!([{}, {}]),
            "_outcomes[1]._a",
        ),
        (json!([{"_label_cost": 0, "_a": [1]}]), json!([{}]), "_outcomes[0]._p: expected the probability"),
        (json!([{"_label_cost": 0, "_a": [1], "_p": [-1]}]), json!([{}]), "_outcomes[0]._p: expected a probability"),
        (json!([]), json!([]), "_outcomes: expected 1 to"),
    ] {
        let found = parse(&of_slots(&outcomes, &slots)).unwrap_err();
        assert!(found.starts_with(problem), "{found}");
    }
}

#[test]
fn slates_have_actions_of_each_slot_and_one_cost() {
    let line = json!({"_label_cost": -2.5, "EventId": "e-1", "c": {
        "_multi": [{"_slot_id": 0}, {"_slot_id": 1}, {"_slot_id": 0}, {"_slot_id": 1}], "_slots": [{}, {}]},
        "_outcomes": [{"_a": [1], "_p": [0.5]}, {"_a": [0], "_p": [0.25]}]});
    let read = decision(&line);
    assert_eq!(read.form, Form::Slates);
    let choices: Vec<(usize, f64, &[usize])> =
        read.choices.iter().map(|choice| (choice.action, choice.cost, choice.candidates.as_slice())).collect();
    assert_eq!(choices, [(2, 0.0, [0, 2].as_slice()), (1, -2.5, [1, 3].as_slice())]);
}

#[test]
fn decisions_that_were_never_shown_do_not_count() {
    let with = |field: &str, value: Value| {
        let mut line = of_one_slot();
        line["DeferredAction"] = json!(true);
        line[field] = value;
        decision(&line).active
    };
    assert!(!with("o", json!([])));
    assert!(!with("o", json!([{"v": 1.0, "EventId": "e-1"}])));
    assert!(with("o", json!([{"EventId": "e-1", "DeferredAction": false}])));
    assert!(with("o", json!([{"EventId": "e-1", "ActionTaken": true}])));
    assert!(!with("_skipLearn", json!(true)));
    assert!(with("DeferredAction", json!(false)));
}

#[test]
fn other_lines_are_no_decisions() {
    for text in ["", "  ", "[CHECKPOINT INFO LINE]", "x"] {
        assert_eq!(Line::parse(text.as_bytes()), Ok(Line::Nothing), "{text}");
    }
    assert_eq!(parse(&json!({"RewardValue": 1.0, "EventId": "e"})), Ok(Line::DanglingReward));
    assert!(Line::parse(b"{\"c\": ").unwrap_err().starts_with("not a JSON object"));
    assert_eq!(parse(&json!({"a": 1})), Err("has no field c, the context".to_owned()));
    let continuous = json!({"_label_ca": {"cost": 0}, "c": {}});
    assert!(parse(&continuous).unwrap_err().contains("continuous"));
    assert!(parse(&json!({"c": {"_multi": []}})).unwrap_err().contains("c._multi"));
    let mut unlabelled = of_one_slot();
    unlabelled["_label_cost"] = Value::Null;
    assert!(decision(&unlabelled).choices.is_empty());
    // An object nested deeper than a stack is refused, not followed.
    let deep = format!("{{\"c\": {}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert!(Line::parse(deep.as_bytes()).unwrap_err().contains("recursion"));
}

#[test]
fn fields_are_flat() {
    let mut line = of_one_slot();
    line["c"]["FromUrl"] = json!([{"hour": 9, "_internal": 1, "i": {"x": true}}, {"hour": 10, "day": "mon"}]);
    line["c"]["Geo"] = json!({"state": "Ohio", "at": [1.5, 2.5], "in": ["a", "b"], "none": null, "FromUrl": {"y": 1}});
    line["c"]["user=Tom"] = json!(1);
    line["c"]["_multi"][1] =
        json!({"i": {"constant": 1, "id": "b"}, "j": [{"color=red": 1, "color=blue": true, "big=no": 0.5}]});
    let read = decision(&line);
    let expected = json!({"hour": 9, "i.x": true, "day": "mon", "Geo.state": "Ohio", "Geo.at.0": 1.5, "Geo.at.1": 2.5,
        "Geo.in": ["a", "b"], "Geo.FromUrl.y": 1, "user": "Tom"});
    assert_eq!(Value::Object(read.context), expected);
    assert_eq!(Value::Object(read.actions[1].fields.clone()), json!({"color": ["blue", "red"], "big=no": 0.5}));
}

#[test]
fn logs_are_recognised_by_their_lines() {
    assert!(looks_like(of_one_slot().to_string().as_bytes()));
    assert!(looks_like(of_slots(&json!([]), &json!([])).to_string().as_bytes()));
    for other in
        [r#"{"user": "u", "item": "i", "label": 1}"#, r#"{"c": 1, "d": "_label_cost"}x"#, "user,item,_label_cost"]
    {
        assert!(!looks_like(other.as_bytes()) || other.contains("_label_cost"), "{other}");
    }
    assert!(files::head_is_dsjson(format!("[CHECKPOINT]\n{}", of_one_slot()).as_bytes()));
    assert!(!files::head_is_dsjson(b"{\"a\": 1}\n{\"b\": 2}"));
}
