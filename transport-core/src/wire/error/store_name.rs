//! Names of object stores: `object_store::Error` takes them as `&'static str`.

use std::sync::{Mutex, PoisonError};

/// The library and its users have about twenty. A peer can make this process keep no more than these two numbers'
/// product, 4 KiB.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 64;

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// `name` for the rest of the process, or `None` if it is too long or too many others came before.
pub(super) fn intern(name: &str) -> Option<&'static str> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    intern_in(&mut names, name)
}

fn intern_in(names: &mut Vec<&'static str>, name: &str) -> Option<&'static str> {
    if let Some(known) = names.iter().find(|known| **known == name) {
        return Some(known);
    }
    if names.len() >= MAX_NAMES || name.len() > MAX_NAME_BYTES {
        return None;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.push(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let mut names = Vec::new();
        assert_eq!(intern_in(&mut names, "S3"), Some("S3"));
        assert_eq!(intern_in(&mut names, "S3"), Some("S3"));
        assert_eq!(names, ["S3"]);
    }

    #[test]
    fn a_peer_cannot_fill_the_memory_with_names() {
        let mut names = Vec::new();
        for number in 0..1000 {
            intern_in(&mut names, &number.to_string());
        }
        assert_eq!(names.len(), MAX_NAMES);
        assert_eq!(intern_in(&mut names, "0"), Some("0"));
        assert_eq!(intern_in(&mut names, "1000"), None);

        names.clear();
        assert_eq!(intern_in(&mut names, &"x".repeat(MAX_NAME_BYTES + 1)), None);
    }
}
