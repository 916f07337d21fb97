use std::future::poll_fn;

use super::*;

const HALF: usize = UNREAD / 2;

fn bytes(size: usize) -> Bytes {
    vec![b'x'; size].into()
}

/// A connection of a user.
fn connection(pool: &Arc<Pool>, user: &str) -> Account {
    Account {
        unread: Unread::new(pool.clone(), CancellationToken::new()),
        owner: user.into(),
    }
}

/// The same connection with a request of another user.
fn shared(connection: &Account, user: &str) -> Account {
    Account {
        unread: connection.unread.clone(),
        owner: user.into(),
    }
}

#[test]
fn answers_count_until_they_are_dropped() {
    let pool = Pool::new(UNREAD);
    let unread = connection(&pool, "jane");
    let mut given = Vec::new();
    // An allowance and the pool, in halves.
    for _ in 0..4 {
        given.push(unread.give(&bytes(HALF)).unwrap());
    }
    assert_eq!(given[0], bytes(HALF));
    assert!(unread.give(&bytes(1)).is_none());
    assert_eq!(pool.held(), 2 * UNREAD);
    assert!(unread.unread.oldest().is_some());
    // Another connection still has its allowance, and no more.
    let other = connection(&pool, "jane");
    let of_other = [other.give(&bytes(UNREAD - 1)), other.give(&bytes(2))];
    assert!(of_other.iter().all(Option::is_some));
    assert!(other.give(&bytes(1)).is_none());
    // A part of an answer keeps the whole answer.
    let part = given[0].slice(..1);
    given.remove(0);
    assert!(unread.give(&bytes(1)).is_none());
    drop(part);
    drop(of_other);
    given.push(unread.give(&bytes(1)).unwrap());
    drop(given);
    assert_eq!(pool.held(), 0);
    assert_eq!(pool.beyond.load(Ordering::Relaxed), 0);
    assert!(unread.unread.oldest().is_none());
}

#[tokio::test]
async fn a_stream_waits_for_what_its_connection_sends() {
    let pool = Pool::new(0);
    let unread = connection(&pool, "jane");
    let stream = Stream::of(&unread);
    poll_fn(|context| stream.poll_room(context)).await;
    let piece = stream.count(bytes(3 * UNREAD));
    assert_eq!(pool.held(), 3 * UNREAD);
    let waiting = tokio::spawn(async move {
        poll_fn(|context| stream.poll_room(context)).await;
        stream
    });
    while unread.unread.state.lock().waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    drop(piece);
    let stream = waiting.await.unwrap();
    drop(stream);
    assert_eq!(pool.held(), 0);
}

/// A stream that its client cancels while it waits leaves no waker behind.
#[test]
fn a_stream_that_ends_does_not_wait() {
    let unread = connection(&Pool::new(0), "jane");
    let held = unread.give(&bytes(UNREAD));
    let mut context = Context::from_waker(Waker::noop());
    let stream = Stream::of(&unread);
    assert!(stream.poll_room(&mut context).is_pending());
    assert_eq!(unread.unread.state.lock().waiting.len(), 1);
    drop(stream);
    assert!(unread.unread.state.lock().waiting.is_empty());
    drop(held);
}

/// While one user held the whole pool, the streams of another user's connection waited for a slow one among them, and ended as
/// if they had not been read.
#[test]
fn regression_a_user_that_holds_the_pool_makes_room_for_others() {
    let pool = Pool::new(5 * UNREAD);
    let eve: Vec<_> = (0..3).map(|_| connection(&pool, "eve")).collect();
    let give = |from: usize, size: usize| eve[from].give(&bytes(size)).unwrap();
    let (sent, left) = (give(0, UNREAD), give(0, 2 * UNREAD));
    let held = [left, give(1, 3 * UNREAD), give(2, 3 * UNREAD)];
    // Of the connections the first one has sent something last.
    drop(sent);
    assert_eq!(pool.beyond.load(Ordering::Relaxed), 5 * UNREAD);
    let ended = || {
        eve.iter()
            .map(|it| it.unread.abort.is_cancelled())
            .collect::<Vec<_>>()
    };
    let jane = connection(&pool, "jane");
    let slow = jane.give(&bytes(UNREAD));
    assert!(slow.is_some() && ended() == [false; 3]);
    let mut context = Context::from_waker(Waker::noop());
    let stream = Stream::of(&jane);
    assert!(stream.poll_room(&mut context).is_ready());
    assert_eq!(ended(), [false, true, false]);
    let piece = stream.count(bytes(UNREAD));
    // If it is she that holds most, she waits.
    drop(held);
    let other = connection(&pool, "jane");
    let most = other.give(&bytes(6 * UNREAD));
    assert!(most.is_some());
    assert!(stream.poll_room(&mut context).is_pending());
    drop((slow, piece, most));
    assert_eq!(pool.held(), 0);
    assert_eq!(pool.beyond.load(Ordering::Relaxed), 0);
    assert!(pool.holders.lock().is_empty());
}

/// The attack: eve leaves answers unread, and the last request on each of her connections is one of a stranger, to whom
/// everything was charged.
#[test]
fn regression_an_answer_counts_for_the_user_that_asked_for_it() {
    let pool = Pool::new(4 * UNREAD);
    let eve = connection(&pool, "eve");
    let mut held = vec![eve.give(&bytes(4 * UNREAD)).unwrap()];
    let stranger = shared(&eve, "");
    held.extend(stranger.give(&bytes(1)));
    // Other strangers hold little: it is not their connection that ends.
    let other = connection(&pool, "");
    held.extend(other.give(&bytes(UNREAD)));
    let last = Stream::of(&stranger);
    held.push(last.count(bytes(UNREAD)));
    let mut context = Context::from_waker(Waker::noop());
    let stream = Stream::of(&other);
    assert!(stream.poll_room(&mut context).is_ready());
    assert!(eve.unread.abort.is_cancelled());
    assert!(!other.unread.abort.is_cancelled());
    drop(held);
    assert_eq!(pool.held(), 0);
    assert!(eve.unread.state.lock().owners.is_empty());
}

/// A proxy asks for several users on one connection: it ends only if the greedy one has no other.
#[test]
fn a_shared_connection_ends_after_those_of_the_user_alone() {
    let pool = Pool::new(6 * UNREAD);
    let proxy = connection(&pool, "jane");
    let mut held = vec![proxy.give(&bytes(3 * UNREAD)).unwrap()];
    let through = shared(&proxy, "eve");
    held.extend(through.give(&bytes(UNREAD)));
    let own = connection(&pool, "eve");
    held.extend(own.give(&bytes(5 * UNREAD)));
    let other = connection(&pool, "joe");
    held.extend(other.give(&bytes(UNREAD)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(Stream::of(&other).poll_room(&mut context).is_ready());
    assert!(own.unread.abort.is_cancelled());
    assert!(!proxy.unread.abort.is_cancelled());
}
