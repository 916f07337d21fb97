use super::*;

#[test]
fn a_burst_is_free_and_the_rest_is_spaced() {
    let (now, mut rate) = (Instant::now(), Rate::new(10.0, 3));
    let waits: Vec<u128> = (0..5).map(|_| rate.take(now).as_millis()).collect();
    assert_eq!(waits, [0, 0, 0, 100, 200]);
}

#[test]
fn an_idle_bucket_fills_up_to_the_burst() {
    let (start, mut rate) = (Instant::now(), Rate::new(10.0, 2));
    (0..2).for_each(|_| assert_eq!(rate.take(start), Duration::ZERO));
    let later = start + Duration::from_secs(60);
    let waits: Vec<u128> = (0..3).map(|_| rate.take(later).as_millis()).collect();
    assert_eq!(waits, [0, 0, 100]);
}

#[test]
fn a_burst_of_nothing_still_lets_one_through() {
    let (now, mut rate) = (Instant::now(), Rate::new(2.0, 0));
    assert_eq!(rate.take(now), Duration::ZERO);
    assert_eq!(rate.take(now), Duration::from_millis(500));
}
