//! Generated clicks in contexts follow their true probabilities.

use celeris_datasets::DatasetError;
use celeris_datasets::synthetic::clicks::{ClickRow, ClickSettings, Clicks, GENRES};
use celeris_datasets::synthetic::{Circumstances, DEVICES};

fn clicks() -> Clicks {
    ClickSettings { users: 500, items: 60, rows: 60_000, seed: 7 }.generate().unwrap()
}

#[test]
fn equal_seeds_give_equal_clicks_and_rows_change_nothing_else() {
    let settings = ClickSettings { users: 50, items: 20, rows: 500, seed: 7 };
    let clicks = settings.generate().unwrap();
    assert_eq!(clicks, settings.generate().unwrap());
    assert_ne!(clicks.rows, ClickSettings { seed: 8, ..settings.clone() }.generate().unwrap().rows);
    let fewer = ClickSettings { rows: 200, ..settings }.generate().unwrap();
    assert_eq!((&fewer.items, &fewer.truth), (&clicks.items, &clicks.truth));
    assert_eq!(fewer.rows, clicks.rows[..200]);
}

#[test]
fn clicks_are_drawn_from_the_true_probabilities() {
    let clicks = clicks();
    let probability = |row: &ClickRow| clicks.truth.probability(row.user, row.item, row.circumstances);
    for (device, name) in DEVICES.iter().enumerate() {
        for (genre, of_genre) in GENRES.iter().enumerate() {
            let rows: Vec<_> = clicks
                .rows
                .iter()
                .filter(|row| row.circumstances.device == device && clicks.items[row.item].genre == genre)
                .collect();
            let count = rows.len() as f64;
            let expected = rows.iter().map(|row| probability(row)).sum::<f64>() / count;
            let rate = rows.iter().filter(|row| row.clicked).count() as f64 / count;
            // Four standard errors of a rate.
            assert!((rate - expected).abs() < 2.0 / count.sqrt(), "{name} {of_genre}: {rate} {expected}");
        }
    }
}

#[test]
fn the_effect_is_one_of_genre_and_context_together() {
    let clicks = clicks();
    let log_odds = |item: usize, device: usize, hour: u8| {
        let probability = clicks.truth.probability(3, item, Circumstances { device, hour });
        (probability / (1.0 - probability)).ln()
    };
    let by_device = |item: usize, hour: u8| log_odds(item, 0, hour) - log_odds(item, 2, hour);
    let alike: Vec<usize> = (0..60).filter(|item| clicks.items[*item].genre == clicks.items[0].genre).collect();
    let other = (0..60).find(|item| clicks.items[*item].genre != clicks.items[0].genre).unwrap();
    assert!(alike.iter().all(|item| (by_device(*item, 9) - by_device(0, 20)).abs() < 1e-9));
    assert!((by_device(other, 9) - by_device(0, 9)).abs() > 0.01);
    // The parts of a day begin at 6, 12 and 18.
    assert!((log_odds(0, 0, 5) - log_odds(0, 0, 0)).abs() < 1e-12);
    assert!((log_odds(0, 0, 5) - log_odds(0, 0, 6)).abs() > 0.01);
}

#[test]
fn items_and_contexts_have_the_fields_that_pipelines_read() {
    let clicks = clicks();
    let attributes = clicks.items[0].attributes();
    assert_eq!(attributes["genre"], GENRES[clicks.items[0].genre]);
    assert!(attributes["price"].as_f64().unwrap() > 0.0);
    let context = serde_json::to_value(Circumstances { device: 1, hour: 23 }.context()).unwrap();
    assert_eq!(context, serde_json::json!({"device": "tablet", "hour": 23}));
    assert_eq!(Circumstances { device: 1, hour: 23 }.day_part(), 3);
}

#[test]
fn a_setting_out_of_range_is_named() {
    let refused = ClickSettings { users: 0, ..ClickSettings::default() }.generate().unwrap_err();
    assert!(matches!(refused, DatasetError::Setting { setting: "users", .. }), "{refused}");
}
