//! Reads MovieLens latest-small (September 2018), if it is available.

use std::collections::HashSet;

use celeris_datasets::Dataset;
use celeris_skip::{Need, unless_downloaded};

#[test]
fn latest_small_has_the_published_counts() {
    let Some(folder) = unless_downloaded(Need::MovieLens, "ml-latest-small") else { return };
    let dataset = Dataset::load(&folder).unwrap();
    assert_eq!(dataset.name, "ml-latest-small");
    assert_eq!(dataset.ratings.len(), 100_836);
    assert_eq!(dataset.ratings.iter().map(|rating| &rating.user).collect::<HashSet<_>>().len(), 610);
    assert_eq!(dataset.items.len(), 9_742);
    let items = dataset.items_by_id();
    assert!(dataset.ratings.iter().all(|rating| items.contains_key(&rating.item)), "every rated film has a title");
    assert!(dataset.items.iter().any(|item| item.title == "Misérables, Les (1995)"));
    assert_eq!(dataset.items[0].genres, ["Adventure", "Animation", "Children", "Comedy", "Fantasy"]);
}
