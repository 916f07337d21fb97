use std::fs::File;
use std::time::Duration;

use allot_apiserver::pki::Authority;

use super::*;

/// A key that was read while it was written was not read again: the complete file had the same size and time.
#[test]
fn regression_files_that_were_read_half_written_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let [chain, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    let authority = Authority::generate("ca").unwrap();
    let write = |name: &str| {
        let identity = authority.server(name, &[name.to_owned()], &[]).unwrap();
        std::fs::write(&chain, identity.certificate).unwrap();
        std::fs::write(&key, &identity.key).unwrap();
        identity.key
    };
    write("first");
    let certificate = Certificate::load(&chain, &key).unwrap();
    let first = certificate.current();
    let content = write("second");
    // Both versions may be written within one tick of the file system's clock.
    let time = std::fs::metadata(&key).unwrap().modified().unwrap() + Duration::from_secs(1);
    // A file that has its size before its content.
    std::fs::write(&key, "\0".repeat(content.len())).unwrap();
    let set_time = || {
        File::options()
            .write(true)
            .open(&key)
            .unwrap()
            .set_modified(time)
    };
    set_time().unwrap();
    assert!(Arc::ptr_eq(&certificate.current(), &first));
    std::fs::write(&key, content).unwrap();
    set_time().unwrap();
    let second = certificate.current();
    assert!(!Arc::ptr_eq(&second, &first));
    assert!(Arc::ptr_eq(&certificate.current(), &second));
}
