//! Each way a file can be wrong, by the smallest edit that makes it so; the unedited file is the nearest that is right.

use blis_registry::Registry;

use crate::{GEMM, directory};

/// (what to replace, by what, what the refusal says).
const EDITS: &[(&str, &str, &str)] = &[
    ("kind: CoefficientSet", "kind: Coefficients", "kind: unknown value `Coefficients`"),
    ("family: gemm", "family: moe", "entries[0].primitive: `gemm` is filed under the family gemm, not moe"),
    ("name: any", "name: bf16", "entries[1].name: `bf16` is empty or not unique in the file"),
    ("form: matmul", "form: stream", "entries[0].form: `stream` does not price `gemm`; one of matmul does"),
    ("format: bf16\n", "format: bf16\n    group: 1\n", "entries[0].group: a group has at least 2 ranks"),
    ("format: bf16\n", "format: bf16\n    model: m\n", "entries[0].model: unknown key `model`"),
    ("unit: us, interval: [2.5, 3.5]", "unit: ratio, interval: [2.5, 3.5]", "coefficients.latency: the unit is ratio; the form reads us"),
    ("unit: us, interval: [2.5, 3.5]", "unit: ms, interval: [2.5, 3.5]", "unknown value `ms`"),
    ("value: 0.8, unit: ratio, interval: [0.7, 0.9]", "value: 1.1, unit: ratio, interval: [0.7, 1.2]", "1.1 must be above 0 and at most 1"),
    ("value: 0.8, unit: ratio, interval: [0.7, 0.9]", "value: 0, unit: ratio, interval: [0, 0.9]", "0 must be above 0 and at most 1"),
    ("value: 3,", "value: -3,", "-3 must be at least 0"),
    ("value: 3,", "value: .nan,", "value: "),
    ("interval: [2.5, 3.5]", "interval: [3.2, 3.5]", "the interval [3.2, 3.5] must hold the value 3"),
    (", interval: [2.5, 3.5]", "", "the method measured states an interval for each coefficient"),
    ("      latency: {value: 3, unit: us, interval: [2.5, 3.5]}\n", "", "the form matmul reads `latency`, which is missing"),
    ("latency: {value: 3", "floor: {value: 3", "the form matmul reads no `floor`; it reads latency"),
    ("over: rows", "over: requests", "the form matmul reads no input `requests`"),
    ("[1, 0.2], [1024, 0.8]", "[1024, 0.2], [1, 0.8]", "the points must ascend in the input"),
    ("[1, 0.2], [1024, 0.8]", "[0, 0.2], [1024, 0.8]", "a curve has points, each over a positive input"),
    ("[1, 0.2], [1024, 0.8]", "[1, 0.2], [1024, 1.8]", "1.8 must be above 0 and at most 1"),
    (", intervals: [[0.1, 0.3], [0.7, 0.9]]", ", intervals: [[0.1, 0.3]]", "1 intervals for 2 points"),
    ("range: {rows: [1, 8192]}", "range: {rows: [8192, 1]}", "range.rows: [8192, 1] is not a range"),
    ("range: {rows: [1, 8192]}", "range: {bytes: [1, 8192]}", "range.bytes: the form matmul reads no input `bytes`"),
    ("    range: {rows: [1, 8192]}\n", "", "the method measured states `fit` and `range`"),
    ("clock: device", "clock: device_and_host", "boundary.clock: `gemm` is priced on the device's clock"),
    ("    sources:\n      - {source: a-package-1.0, table: gemm, sha256: abc, rows: 10}\n", "", "the method measured names the data"),
    ("    reason: the chip's peaks at stated shares\n", "", "entries[1].reason: the method roofline states its rule, citation or reason"),
    ("method: roofline", "method: not_charged", "an entry that is not charged has no coefficients"),
    ("method: measured", "method: guessed", "unknown value `guessed`"),
];

#[test]
fn each_way_a_file_can_be_wrong_is_refused_at_its_place() {
    let right = directory("right", &[("h100/gemm.yaml", GEMM)]);
    Registry::open(&right, &[]).unwrap();
    for (index, (from, to, told)) in EDITS.iter().enumerate() {
        let wrong = GEMM.replacen(from, to, 1);
        assert_ne!(wrong, GEMM, "{from} is not in the file");
        let root = directory(&format!("wrong-{index}"), &[("h100/gemm.yaml", &wrong)]);
        let error = Registry::open(&root, &[]).map(|_| ()).expect_err(to).to_string();
        assert!(error.contains(told), "{to}: {error}");
        assert!(error.contains("h100/gemm.yaml:"), "{to}: {error}");
    }
}

const COLLECTIVE: &str = "\
kind: CoefficientSet
chip: h100
family: collective
script: fitting/collective.py
entries:
  - name: reduce
    primitive: collective.all_reduce
    group: 4
    method: assumed
    form: collective
    ranges:
      - {up_to: 1024, latency: 4, bandwidth: 1000}
      - {up_to: 4096, latency: 5, bandwidth: 2000}
      - {up_to: null, latency: 6, bandwidth: 3000}
    boundary: {clock: device, launch: graph}
    reason: a test
";

#[test]
fn algorithm_ranges_ascend_and_end_open() {
    let check = |name: &str, text: &str| {
        let root = directory(name, &[("h100/collective.yaml", text)]);
        Registry::open(&root, &[]).map(|_| ()).map_err(|error| error.to_string())
    };
    check("ranges", COLLECTIVE).unwrap();
    for (index, (from, to, told)) in [
        ("up_to: null", "up_to: 9999", "ranges[2].up_to: null for the last range and for no other"),
        ("up_to: 1024", "up_to: null", "ranges[0].up_to: null for the last range and for no other"),
        ("up_to: 1024", "up_to: 5000", "ranges: the ranges must ascend"),
        ("bandwidth: 1000", "bandwidth: 0", "ranges[0]: the latency must be at least 0 and the bandwidth above 0"),
        ("form: collective", "form: stream", "only the forms of collectives read algorithm ranges"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = check(&format!("ranges-{index}"), &COLLECTIVE.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(told), "{to}: {error}");
    }
}
