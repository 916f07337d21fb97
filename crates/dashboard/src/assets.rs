//! The page's files, built from `web/` (see docs/dashboard.md) and part of the program.

use http::StatusCode;

use crate::answer::{Answer, whole};

/// Path, type and content. The directory of the page is the empty path.
const FILES: [(&str, &str, &[u8]); 5] = [
    (
        "",
        "text/html; charset=utf-8",
        include_bytes!("../assets/index.html"),
    ),
    (
        "app.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../assets/app.js"),
    ),
    (
        "app.css",
        "text/css; charset=utf-8",
        include_bytes!("../assets/app.css"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_bytes!("../assets/icon.svg"),
    ),
    (
        "licences.txt",
        "text/plain; charset=utf-8",
        include_bytes!("../assets/licences.txt"),
    ),
];

/// The file at a path.
pub fn file(path: &str) -> Option<Answer> {
    let (_, kind, content) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some(whole(StatusCode::OK, kind, *content))
}
