//! Store tests are added below by topic.
