//! The registry as others use it: the shipped copy is valid, files are refused for each way they can be wrong, look-ups rank by
//! trust, and a path loads like the embedded copy.

mod files;
mod lookup;
mod shipped;
mod validators;

/// A small valid file: two entries of one primitive.
const GEMM: &str = "\
kind: CoefficientSet
chip: h100
family: gemm
script: fitting/gemm.py
entries:
  - name: bf16
    primitive: gemm
    kernel: {library: cublas, variant: linear}
    format: bf16
    method: measured
    form: matmul
    coefficients:
      latency: {value: 3, unit: us, interval: [2.5, 3.5]}
      memory_efficiency: {value: 0.8, unit: ratio, interval: [0.7, 0.9]}
    curves:
      compute_efficiency: {over: rows, unit: ratio, points: [[1, 0.2], [1024, 0.8]], intervals: [[0.1, 0.3], [0.7, 0.9]]}
    range: {rows: [1, 8192]}
    boundary: {clock: device, launch: graph}
    sources:
      - {source: a-package-1.0, table: gemm, sha256: abc, rows: 10}
    fit: {rows: 10, held_out: 5, median_abs_error: 0.05, p90_abs_error: 0.1}
  - name: any
    primitive: gemm
    method: roofline
    form: matmul
    coefficients:
      latency: {value: 5, unit: us}
      memory_efficiency: {value: 0.7, unit: ratio}
      compute_efficiency: {value: 0.5, unit: ratio}
    boundary: {clock: device, launch: graph}
    reason: the chip's peaks at stated shares
";

/// A directory of its own for each call, with some files in it: tests run beside each other.
fn directory(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
    static CALLS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let root = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{call}"));
    if root.exists() {
        std::fs::remove_dir_all(&root).expect("the test's own directory");
    }
    std::fs::create_dir_all(&root).expect("the test's own directory");
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("files lie below the root")).expect("the test's own directory");
        std::fs::write(path, text).expect("the test's own directory");
    }
    root
}
