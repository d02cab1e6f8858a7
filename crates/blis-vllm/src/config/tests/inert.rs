//! Settings that move no decision are refused where upstream would not start.

use serde_json::{Map, json};

use crate::config::{Launch, read};

fn refusal(args: &serde_json::Value) -> Option<String> {
    let mut stated = Map::from_iter([("model".to_owned(), json!("m"))]);
    stated.extend(args.as_object().cloned().expect("arguments are an object"));
    read(Launch { args: Some(&stated), ..Launch::default() }).err().map(|error| error.to_string())
}

#[test]
fn devices_are_named_one_way_and_once() {
    for list in ["0,0", "0,GPU-1", "1, 01", "a", "-1", "[0", "0,", "MIG-1"] {
        let told = refusal(&json!({"device_ids": list})).unwrap_or_default();
        assert!(told.contains("--device-ids") && told.contains(list), "{list}: {told}");
    }
    for list in ["0", "2,3,5,7", "GPU-1,GPU-2", "10,1"] {
        assert_eq!(refusal(&json!({"device_ids": list})), None, "{list}");
    }
}

#[test]
fn what_upstream_takes_of_an_inert_setting_is_taken() {
    for args in [
        json!({"numa_bind": true, "numa_bind_nodes": [0, 1]}),
        json!({"numa_bind": true, "numa_bind_cpus": ["0-3", "0,2,4-7"]}),
        json!({"eplb_config": {"window_size": 100, "use_async": false, "communicator": "pynccl"}}),
        json!({"eplb_config": {"policy": "default", "num_redundant_experts": 0, "communicator": "nixl"}}),
    ] {
        assert_eq!(refusal(&args), None, "{args}");
    }
}

#[test]
fn a_key_that_the_balancer_of_experts_lacks_is_refused_by_name() {
    let told = refusal(&json!({"eplb_config": {"windows": 3}})).unwrap_or_default();
    assert!(told.contains("windows") && told.contains("window_size"), "{told}");
}
