use serde_json::json;

use super::*;

/// Parses parameters with these fields; `Err` is a substring of the expected message.
fn check(fields: Value, expected: Result<(), &str>) {
    let mut parameters = json!({"apiVersion": API_VERSION, "kind": KIND});
    for (name, value) in fields.as_object().expect("fields") {
        parameters[name] = value.clone();
    }
    match (InterfaceConfig::parse(&parameters), expected) {
        (Ok(_), Ok(())) => {}
        (Err(error), Err(part)) => {
            assert!(error.to_string().contains(part), "{error}, not {part}");
        }
        (got, _) => panic!("{parameters}: {got:?}, not {expected:?}"),
    }
}

#[test]
fn parameters_are_read_strictly() {
    check(json!({}), Ok(()));
    check(
        json!({"mode": "macvlan", "macvlanMode": "private", "mtu": 1450, "interfaceName": "net-a.1",
            "addresses": ["10.0.0.2/24", "fd00::2/64"], "ipPools": ["a", "b"],
            "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}, {"destination": "fd01::/16"}]}),
        Ok(()),
    );
    check(json!({"mode": "vlan", "vlanId": 4094}), Ok(()));
    check(json!({"mode": "ipvlan", "ipvlanMode": "l3s"}), Ok(()));
    check(json!({"mode": "bridge"}), Err("unknown variant"));
    check(json!({"surprise": 1}), Err("unknown field"));
    check(
        json!({"routes": [{"destination": "10.0.0.0/8", "via": "10.0.0.1"}]}),
        Err("unknown field"),
    );
    check(
        json!({"apiVersion": "net.allot.dev/v2"}),
        Err("expected apiVersion"),
    );
    check(json!({"kind": "Pod"}), Err("and \"Pod\""));
}

#[test]
fn regression_what_is_written_down_is_what_was_read() {
    let parameters = json!({
        "apiVersion": API_VERSION, "kind": KIND, "mode": "vlan", "vlanId": 7, "addresses": ["10.0.0.2/24"],
        "routes": [{"destination": "10.0.0.0/8"}],
    });
    let config = InterfaceConfig::parse(&parameters).expect("parameters");
    let text = serde_json::to_string(&config).expect("JSON");
    let again: InterfaceConfig = serde_json::from_str(&text).expect("read");
    assert_eq!(again, config);
}

#[test]
fn what_can_not_be_carried_out_is_refused() {
    check(json!({"mode": "vlan"}), Err("vlanId: is required"));
    check(
        json!({"mode": "vlan", "vlanId": 0}),
        Err("vlanId: must be from 1 to 4094"),
    );
    check(
        json!({"mode": "vlan", "vlanId": 4095}),
        Err("vlanId: must be from 1 to 4094"),
    );
    check(
        json!({"vlanId": 7}),
        Err("vlanId: is for the mode vlan only"),
    );
    check(
        json!({"macvlanMode": "bridge"}),
        Err("macvlanMode: is for the mode macvlan only"),
    );
    check(
        json!({"mode": "macvlan", "ipvlanMode": "l2"}),
        Err("ipvlanMode: is for"),
    );
    check(json!({"mtu": 67}), Err("mtu: must be from 68"));
    check(
        json!({"mtu": 1000, "addresses": ["fd00::2/64"]}),
        Err("mtu: must be at least 1280"),
    );
    for name in ["", "lo", "..", "a/b", "averylongname-of-16", "a b", "net%d"] {
        check(json!({"interfaceName": name}), Err("interfaceName: "));
    }
    for address in [
        "127.0.0.1/8",
        "0.0.0.0/0",
        "224.0.0.1/4",
        "::/64",
        "::1/128",
    ] {
        check(
            json!({"addresses": [address]}),
            Err("is no address of an interface"),
        );
    }
    let many: Vec<String> = (1..=16).map(|n| format!("10.0.0.{n}/24")).collect();
    check(json!({"addresses": many}), Ok(()));
    check(
        json!({"addresses": many, "ipPools": ["a"]}),
        Err("addresses: at most 16, including those of pools"),
    );
    check(json!({"addresses": ["10.0.0.1"]}), Err("invalid"));
    check(
        json!({"addresses": ["10.0.0.1/24", "10.0.0.1/16"]}),
        Err("10.0.0.1 is there twice"),
    );
    check(
        json!({"ipPools": ["a", "b", "c"]}),
        Err("ipPools: at most 2"),
    );
    check(json!({"ipPools": ["a", "a"]}), Err("is there twice"));
    check(
        json!({"ipPools": ["../secrets"]}),
        Err("is no name of an object"),
    );
    check(
        json!({"routes": [{"destination": "10.0.0.1/8"}]}),
        Err("10.0.0.1/8 is no network; 10.0.0.0/8 is"),
    );
    check(
        json!({"routes": [{"destination": "::/0", "gateway": "10.0.0.1"}]}),
        Err("is of the other family"),
    );
    let routes: Vec<Value> = (0..33)
        .map(|n| json!({"destination": format!("10.{n}.0.0/16")}))
        .collect();
    check(json!({"routes": routes}), Err("routes: at most 32"));
}

#[test]
fn regression_reserved_addresses_are_no_addresses_of_an_interface() {
    for (address, expected) in [
        (
            "10.0.0.0/24",
            "10.0.0.0 is the network address of 10.0.0.0/24",
        ),
        (
            "10.0.0.255/24",
            "10.0.0.255 is the broadcast address of 10.0.0.0/24",
        ),
        ("fd00::/64", "fd00:: is the network address of fd00::/64"),
    ] {
        check(json!({"addresses": [address]}), Err(expected));
    }
    check(json!({"addresses": ["10.0.0.0/31", "10.0.0.3/32"]}), Ok(()));
    check(
        json!({"addresses": ["10.0.0.1/24"], "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}]}),
        Err("10.0.0.1 is the gateway of a route"),
    );
}
