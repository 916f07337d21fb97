use super::*;

fn connections(limit: usize) -> Arc<Connections> {
    Connections::new(limit, Pool::new(0))
}

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

#[test]
fn the_longest_idle_one_makes_room() {
    let all = connections(2);
    let first = all.admit(PEER).unwrap();
    let second = all.admit(PEER).unwrap();
    let busy = first.connection.request();
    // The first is older, but busy.
    let third = all.admit(PEER).unwrap();
    assert!(second.connection.abort.is_cancelled());
    assert!(!first.connection.abort.is_cancelled());
    let also_busy = third.connection.request();
    busy.belongs_to("a");
    also_busy.belongs_to("b");
    assert!(all.admit(PEER).is_none());
    drop(busy);
    drop(also_busy);
    assert!(all.admit(PEER).is_some());
    assert!(first.connection.abort.is_cancelled());
    drop((first, second, third));
    assert_eq!(all.count(), 0);
}

/// One user with as many watches as there may be connections locked out all others.
#[test]
fn regression_busy_connections_of_one_user_make_room() {
    let all = connections(8);
    let open: Vec<_> = (0..8).map(|_| all.admit(PEER).unwrap()).collect();
    let busy: Vec<_> = open.iter().map(|it| it.connection.request()).collect();
    for (at, request) in busy.iter().enumerate() {
        let owner = if at % 2 == 0 {
            "eve"
        } else {
            ["a", "b", "c", "d"][at / 2]
        };
        request.belongs_to(owner);
    }
    let ended = || -> Vec<usize> {
        let ended = |at: &usize| open[*at].connection.abort.is_cancelled();
        (0..8).filter(ended).collect()
    };
    // Eve has four of eight, and keeps a quarter.
    let mut more = Vec::new();
    for expected in [&[6][..], &[4, 6]] {
        let new = all.admit(PEER).unwrap();
        let request = new.connection.request();
        more.push((new, request));
        assert_eq!(ended(), expected);
    }
    assert!(all.admit(PEER).is_none());
    drop((open, busy, more));
    assert_eq!(all.count(), 0);
}

/// Connections whose requests prove no identity had no owner.
#[test]
fn regression_busy_connections_of_strangers_make_room() {
    let all = connections(4);
    let open: Vec<_> = (0..4).map(|_| all.admit(PEER).unwrap()).collect();
    let busy: Vec<_> = open.iter().map(|it| it.connection.request()).collect();
    busy[0].belongs_to("jane");
    let new = all.admit(PEER).unwrap();
    let ended: Vec<bool> = (open.iter())
        .map(|it| it.connection.abort.is_cancelled())
        .collect();
    assert_eq!(ended, [false, false, false, true]);
    drop((open, busy, new));
}

/// Which of busy connections end for as many new ones, each with requests of these users.
fn ended_for(new: usize, users: &[&[&str]]) -> Vec<usize> {
    let all = connections(users.len());
    let open: Vec<_> = users.iter().map(|_| all.admit(PEER).unwrap()).collect();
    let mut busy = Vec::new();
    for (place, users) in open.iter().zip(users) {
        for user in *users {
            let request = place.connection.request();
            if !user.is_empty() {
                request.belongs_to(user);
            }
            busy.push(request);
        }
    }
    let mut more = Vec::new();
    for place in (0..new).filter_map(|_| all.admit(PEER)) {
        let request = place.connection.request();
        more.push((place, request));
    }
    let ended = |at: &usize| open[*at].connection.abort.is_cancelled();
    (0..users.len()).filter(ended).collect()
}

/// The attack: through a proxy a user has a request on each of its connections, the last one. They ended, with the requests
/// of the others.
#[test]
fn regression_a_user_of_shared_connections_does_not_end_requests_of_others() {
    let shared: [&[&str]; 8] = [
        &["a", "eve"],
        &["b", "eve"],
        &["c", "eve"],
        &["d", "eve"],
        &["a", "eve"],
        &["b", "eve"],
        &["eve"],
        &["c"],
    ];
    assert_eq!(ended_for(4, &shared), [6]);
}

/// The attack: a user that keeps all connections busy sends another request on each, without an identity or with another
/// one. They counted for that, and the connections of strangers ended instead, or none.
#[test]
fn regression_another_request_does_not_hide_whose_a_connection_is() {
    for other in ["", ANONYMOUS, "mallory"] {
        let both: &[&str] = &["eve", other];
        let turned: &[&str] = &[other, "eve"];
        let all = [both, turned, both, turned, both, &["jane"], &["a"], &["b"]];
        assert_eq!(ended_for(3, &all), [2, 3, 4], "{other}");
    }
}

#[test]
fn an_upgraded_connection_keeps_its_place_until_its_stream_ends() {
    let all = connections(1);
    let place = Arc::new(all.admit(PEER).unwrap());
    let stream = counted(tokio::io::empty(), place.clone(), false);
    place.connection.upgraded();
    drop(place);
    assert!(all.admit(PEER).is_none());
    drop(stream);
    assert!(all.admit(PEER).is_some());
}

#[test]
fn a_head_is_on_its_way_until_it_is_a_request() {
    let all = connections(1);
    let connection = all.admit(PEER).unwrap().connection.clone();
    assert!(connection.head_for().is_none());
    connection.received();
    assert!(connection.head_for().is_some());
    let request = connection.request();
    // Its body.
    connection.received();
    assert!(connection.head_for().is_none());
    drop(request);
    assert!(connection.head_for().is_none());
}
