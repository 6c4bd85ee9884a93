//! Genres of the generated films: position in taste space, and words for titles.

/// One genre, which is also one axis of true taste.
pub(super) struct Genre {
    pub(super) name: &'static str,
    /// Position on the axes bright to dark, intimate to grand, childlike to grown-up. Tastes for
    /// genres with similar positions are correlated.
    pub(super) temperament: [f64; 3],
    pub(super) adjectives: [&'static str; 14],
    pub(super) nouns: [&'static str; 14],
    pub(super) places: [&'static str; 10],
    /// Beginnings of titles that are completed by a place.
    pub(super) openings: [&'static str; 8],
}

/// All genres, in the order of the axes. Rustfmt would put each word on its own line.
#[rustfmt::skip]
pub(super) const GENRES: [Genre; 12] = [
    Genre {
        name: "Horror",
        temperament: [0.9, -0.2, 0.4],
        adjectives: [
            "Haunted", "Hollow", "Whispering", "Bloodless", "Unburied", "Cursed", "Pale", "Sleepless", "Withered",
            "Screaming", "Thirteenth", "Drowned", "Nameless", "Crawling",
        ],
        nouns: [
            "Lighthouse", "Cellar", "Scarecrow", "Orphanage", "Mirror", "Crypt", "Asylum", "Puppet", "Attic",
            "Hearse", "Séance", "Graveyard", "Nursery", "Coven",
        ],
        places: [
            "Blackmoor Hall", "Hollow Creek", "Ravenscar", "Ashgrove Manor", "Widow's Point", "Saint Barrow",
            "Dead Man's Fen", "Thornfield Wood", "Mourning Island", "Candlewick Lane",
        ],
        openings: [
            "Night Falls on", "Nobody Leaves", "Whispers from", "Never Return to", "They Came from",
            "The Thing beneath", "Bury Me at", "The Children of",
        ],
    },
    Genre {
        name: "Comedy",
        temperament: [-0.6, -0.4, 0.3],
        adjectives: [
            "Reluctant", "Hapless", "Accidental", "Overdressed", "Half-Baked", "Honorary", "Unlikely", "Clumsy",
            "Part-Time", "Overqualified", "Misplaced", "Absent-Minded", "Second-Best", "Bumbling",
        ],
        nouns: [
            "Bridesmaid", "Plumber", "Landlord", "Dentist", "Mayor", "Butler", "Roommate", "Wedding Planner",
            "Substitute", "Mother-in-Law", "Magician", "Janitor", "Best Man", "Pizza Boy",
        ],
        places: [
            "Lower Piddleton", "Camp Wannahoppa", "Sunnyside Acres", "Dullsville", "Cloud Nine Resort",
            "Nowhere, Ohio", "Pickle Falls", "Greater Snoring", "Gridlock City", "Upper Crustley",
        ],
        openings: [
            "Trouble in", "Two Weeks in", "Lost in", "Wrong Turn to", "Goodbye,", "Stuck in", "No Refunds in",
            "Everybody Hates",
        ],
    },
    Genre {
        name: "Space Opera",
        temperament: [0.1, 0.9, 0.0],
        adjectives: [
            "Last", "Galactic", "Stellar", "Exiled", "Crystal", "Infinite", "Burning", "Orbital", "Forgotten",
            "Starborn", "Ninth", "Quantum", "Silent", "Imperial",
        ],
        nouns: [
            "Armada", "Star Pilot", "Nebula", "Starship", "Mutiny", "Wormhole", "Emperor", "Android", "Colony",
            "Asteroid", "Smuggler", "Beacon", "Cosmonaut", "Oracle",
        ],
        places: [
            "Andromeda", "Titan Station", "Kepler Nine", "the Outer Moons", "Vega", "the Crimson Nebula",
            "New Carthage", "Orion's Gate", "the Perseus Arm", "Europa",
        ],
        openings: [
            "Escape from", "War for", "Beyond", "Signal from", "Exiles of", "The Fall of", "Voyage to", "Pilots of",
        ],
    },
    Genre {
        name: "Children's",
        temperament: [-0.7, 0.1, -0.9],
        adjectives: [
            "Littlest", "Magical", "Brave Little", "Sleepy", "Runaway", "Giggling", "Enormous", "Ticklish",
            "Secret", "Marvelous", "Muddy", "Polka-Dot", "Wobbly", "Flying",
        ],
        nouns: [
            "Tugboat", "Duckling", "Tree House", "Snowman", "Puppy", "Teddy Bear", "Hedgehog", "Hot-Air Balloon",
            "Piglet", "Circus", "Kite", "Penguin", "Toy Maker", "Dinosaur",
        ],
        places: [
            "Buttercup Farm", "Marshmallow Mountain", "Honeybee Hollow", "Pumpkin Pond", "Puddle Lane",
            "the Candy Forest", "Rainbow Bay", "Whistle Hill", "Bunny Island", "Gingerbread Town",
        ],
        openings: [
            "Adventures at", "A Picnic at", "Hooray for", "Off to", "Goodnight,", "A Parade for", "Friends from",
            "Happy Birthday,",
        ],
    },
    Genre {
        name: "Noir",
        temperament: [0.8, -0.5, 0.8],
        adjectives: [
            "Crooked", "Midnight", "Smoking", "Double-Crossed", "Velvet", "Rain-Soaked", "Rotten", "Cold",
            "Two-Timing", "Counterfeit", "Bitter", "Neon", "Loaded", "Fatal",
        ],
        nouns: [
            "Alibi", "Detective", "Dame", "Bail Bondsman", "Ledger", "Gambler", "Blackmailer", "Witness",
            "Trench Coat", "Nightclub", "Safecracker", "Bookmaker", "Chanteuse", "Verdict",
        ],
        places: [
            "Alder Street", "Pier Nineteen", "the Blue Parrot", "South Harbor", "Union Station", "Bunker Heights",
            "the Lower East Side", "Mulholland Pass", "Dock Street", "the Starlight Motel",
        ],
        openings: [
            "Murder at", "Last Call at", "Farewell to", "The Woman from", "Shadows over", "Dead Drop at",
            "A Gun for", "The Long Walk to",
        ],
    },
    Genre {
        name: "Romance",
        temperament: [-0.3, -0.7, 0.2],
        adjectives: [
            "Tender", "Unsent", "Forbidden", "Faithful", "Parisian", "Blushing", "Borrowed", "Lovesick", "Moonlit",
            "Longed-For", "Second", "Wistful", "Autumn", "Stolen",
        ],
        nouns: [
            "Kiss", "Letter", "Waltz", "Promise", "Florist", "Honeymoon", "Bride", "Valentine", "Proposal",
            "Serenade", "Sweetheart", "Rendezvous", "Poet", "Heiress",
        ],
        places: [
            "Bellagio", "Montmartre", "Rose Harbor", "Lisbon", "Willow Bay", "Vermont", "Amalfi", "Savannah",
            "Seville", "Kyoto",
        ],
        openings: [
            "One Summer in", "Love Letters from", "Springtime in", "My Heart Belongs to", "Falling for",
            "Strangers in", "Back to", "Married in",
        ],
    },
    Genre {
        name: "Western",
        temperament: [0.3, 0.4, 0.4],
        adjectives: [
            "Lonesome", "Dusty", "Outlawed", "Wanted", "Gunmetal", "Dead-Eye", "Tumbleweed", "Sunburnt", "Iron",
            "Six-Gun", "Unbroken", "Vengeful", "Wild", "Silver-Spurred",
        ],
        nouns: [
            "Stagecoach", "Sheriff", "Drifter", "Saloon", "Mustang", "Posse", "Outlaw", "Gold Rush", "Bounty",
            "Ranch Hand", "Gunslinger", "Cattle Drive", "Prospector", "Deputy",
        ],
        places: [
            "Dry Gulch", "Abilene", "Coyote Pass", "Santa Rosa", "Tombstone Ridge", "the Rio Bravo",
            "Deadwood Flats", "Red Mesa", "Perdition", "Laramie",
        ],
        openings: [
            "Showdown at", "Last Train to", "Sundown at", "Ride to", "Gunsmoke over", "Ambush at", "West of",
            "A Rope for",
        ],
    },
    Genre {
        name: "Documentary",
        temperament: [0.0, -0.3, 0.9],
        adjectives: [
            "Hidden", "Living", "Vanishing", "Unseen", "Endless", "Ordinary", "Untold", "Ancient", "Undersea",
            "Breathing", "Everyday", "Final", "Remarkable", "Solitary",
        ],
        nouns: [
            "Glacier", "Archive", "Harvest", "Beekeeper", "River", "Assembly Line", "Orchestra", "Coral Reef",
            "Migration", "Census", "Ferryman", "Rainforest", "Chess Club", "Marathon",
        ],
        places: [
            "Svalbard", "Lagos", "the Mekong", "Patagonia", "Detroit", "the Sahara", "the Galápagos", "Naples",
            "Lake Baikal", "Mumbai",
        ],
        openings: [
            "Inside", "Portrait of", "Listening to", "The Last Days of", "Voices of", "Mapping", "Leaving",
            "Notes from",
        ],
    },
    Genre {
        name: "War",
        temperament: [0.5, 0.6, 0.7],
        adjectives: [
            "Fallen", "Broken", "Unknown", "Valiant", "Besieged", "Thundering", "Bloody", "Captured", "Abandoned",
            "Scarred", "Decorated", "Retreating", "Defiant", "Doomed",
        ],
        nouns: [
            "Battalion", "Bridge", "Sergeant", "Trench", "Convoy", "Paratrooper", "Armistice", "Submarine",
            "Regiment", "Medic", "Bugler", "Minefield", "Prisoner", "Sniper",
        ],
        places: [
            "Monte Sagro", "the Ardennes", "Hill 402", "Fort Calloway", "Dunmere Beach", "Saint-Rémy",
            "the Eastern Front", "the Java Strait", "the Volga", "Cape Merrow",
        ],
        openings: [
            "Retreat from", "Letters from", "Forty Days at", "The Battle for", "Brothers at", "Crossing",
            "Dawn over", "The Guns of",
        ],
    },
    Genre {
        name: "Musical",
        temperament: [-0.6, 0.3, -0.1],
        adjectives: [
            "Dancing", "Singing", "Tap-Dancing", "Dazzling", "Broadway", "Swinging", "Golden", "Off-Key",
            "Sparkling", "Jazz-Age", "Melodious", "Toe-Tapping", "Show-Stopping", "Glittering",
        ],
        nouns: [
            "Chorus Girl", "Bandleader", "Revue", "Songbird", "Cabaret", "Trombone", "Understudy", "Overture",
            "Ballroom", "Crooner", "Matinee", "Piano Tuner", "Showboat", "Quartet",
        ],
        places: [
            "Fifty-First Street", "Rio", "Tin Pan Alley", "New Orleans", "Coney Island", "the Palladium", "Vienna",
            "Harlem", "the Moulin Bleu", "Buenos Aires",
        ],
        openings: [
            "A Song for", "Hello,", "The Toast of", "Goodbye to", "The Ballad of", "The Lights of", "Dancing to",
            "One More Chorus for",
        ],
    },
    Genre {
        name: "Fantasy",
        temperament: [0.0, 0.9, -0.4],
        adjectives: [
            "Enchanted", "Elven", "Dragonbone", "Shattered", "Sorcerous", "Timeless", "Emerald", "Rune-Carved",
            "Prophesied", "Winged", "Moonforged", "Invisible", "Spellbound", "Wandering",
        ],
        nouns: [
            "Sword", "Dragon", "Wizard", "Crown", "Labyrinth", "Unicorn", "Talisman", "Griffin", "Prophecy",
            "Alchemist", "Throne", "Changeling", "Sorceress", "Quest",
        ],
        places: [
            "Eldermere", "the Silver Vale", "Karandoth", "Wyrmwood", "the Seven Towers", "Avelorn", "Mistfall",
            "the Glass Mountain", "Thistledown", "Old Faerie",
        ],
        openings: [
            "The Road to", "Heirs of", "The Siege of", "The Legend of", "Return to", "Songs of", "Keepers of",
            "Beneath",
        ],
    },
    Genre {
        name: "Thriller",
        temperament: [0.7, 0.3, 0.5],
        adjectives: [
            "Vanished", "Encrypted", "Ticking", "Anonymous", "Sleeper", "Lethal", "Classified", "Erased", "Perfect",
            "Compromised", "Watchful", "Last-Minute", "Offshore", "Poisoned",
        ],
        nouns: [
            "Courier", "Hostage", "Passenger", "Informer", "Deadline", "Countdown", "Conspiracy", "Stranger",
            "Double Agent", "Manhunt", "Ransom", "Cipher", "Assassin", "Safe House",
        ],
        places: [
            "Flight 909", "the Hague", "Checkpoint Nine", "Helsinki", "Gate 22", "Zürich", "Platform Six",
            "Cold River Dam", "Istanbul", "the Night Ferry",
        ],
        openings: [
            "No Exit from", "Terror at", "The Man from", "Eleven Hours to", "Hostages of", "The Truth about",
            "Blackout at", "Run from",
        ],
    },
];
