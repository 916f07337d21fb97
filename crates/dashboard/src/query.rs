//! What the page may put into a request: parameters by name, each checked before it is used.

use percent_encoding::percent_decode_str;

/// The longest query: twenty pods of an explanation, each with the longest names.
const LONGEST: usize = 16 * 1024;
/// The longest name of an object of the API, and of a namespace.
const LONGEST_NAME: usize = 253;
/// The longest continue token and resource version. Servers generate a few hundred bytes.
const LONGEST_MARK: usize = 2048;

/// The parameters of a request, decoded.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query. Every name must be in `known`: unknown parameters are errors.
    ///
    /// # Errors
    /// The error.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Self, String> {
        let query = query.unwrap_or_default();
        if query.len() > LONGEST {
            return Err("the query is too long".to_owned());
        }
        let mut pairs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err("unknown parameter".to_owned());
            }
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| format!("{name} is no UTF-8"))?;
            pairs.push((name.to_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter that may be given once.
    ///
    /// # Errors
    /// It is given more than once.
    pub fn one(&self, name: &str) -> Result<Option<&str>, String> {
        let mut values = self.all(name);
        let first = values.next();
        match values.next() {
            Some(_) => Err(format!("{name} is given more than once")),
            None => Ok(first.filter(|value| !value.is_empty())),
        }
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(n, _)| n == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// A name of an object or a namespace, which becomes part of a path: without characters that could end that part.
///
/// # Errors
/// It is no such name.
pub fn name(text: &str) -> Result<&str, String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let fits = text.len() <= LONGEST_NAME && text.bytes().all(letters);
    if fits && ends(bytes.first()) && ends(bytes.last()) {
        Ok(text)
    } else {
        Err("no name of an object".to_owned())
    }
}

/// An opaque value of the server (a continue token, a resource version): only visible characters. It is encoded before
/// it becomes part of a query.
///
/// # Errors
/// It is no such mark.
pub fn mark(text: &str) -> Result<&str, String> {
    if text.len() <= LONGEST_MARK && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err("no mark of a server".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_part_of_a_path() {
        for good in ["a", "gpu.example.com", "node-1", "A1"] {
            assert_eq!(name(good), Ok(good));
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "..", "../x", "a/b", "a%2fb", "a?b", "a#b", "a b", "-a", "a.", "ä", "a\n",
            &long,
        ] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parameters_are_known_and_given_once() {
        let known = ["kind", "limit"];
        let query = Query::read(Some("kind=a%20b&limit="), &known).expect("a query");
        assert_eq!(query.one("kind"), Ok(Some("a b")));
        assert_eq!(query.one("limit"), Ok(None));
        assert!(Query::read(Some("kind=a&watch=1"), &known).is_err());
        assert!(Query::read(Some("kind=%ff"), &known).is_err());
        let twice = Query::read(Some("kind=a&kind=b"), &known).expect("a query");
        assert!(twice.one("kind").is_err());
        assert!(Query::read(Some(&"&".repeat(LONGEST + 1)), &known).is_err());
    }

    #[test]
    fn marks_are_visible() {
        assert_eq!(mark("eyJ2IjoibWV0YS5rOHM=&x"), Ok("eyJ2IjoibWV0YS5rOHM=&x"));
        for bad in ["a b", "a\r\nb", "ä"] {
            assert!(mark(bad).is_err(), "{bad:?}");
        }
    }
}
