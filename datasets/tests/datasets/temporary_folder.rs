use std::fs;
use std::os::unix::fs::PermissionsExt;

use celeris_datasets::TemporaryFolder;

#[test]
fn temporary_folders_are_distinct_private_and_removed_with_their_content() {
    let parent = tempfile::tempdir().unwrap();
    let folders = [(); 2].map(|()| TemporaryFolder::new_in(parent.path(), ".part").unwrap());
    assert_ne!(folders[0].path(), folders[1].path());
    for folder in &folders {
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), "content").unwrap();
    }
    drop(folders);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}
