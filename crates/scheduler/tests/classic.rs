//! Classic claims end to end: API server, claim controller, scheduler and a model of a driver, in one process.

mod classic {
    pub mod cluster;
    pub mod driver;
    mod flows;
}
