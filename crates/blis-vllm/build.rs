//! Hands the modelled release, which only `upstream.toml` states, to the crate as an environment variable of its build.

fn main() {
    println!("cargo::rerun-if-changed=upstream.toml");
    let text = std::fs::read_to_string("upstream.toml").expect("the crate has an upstream.toml");
    let release = text.lines().find_map(|line| line.strip_prefix("release = \"")?.strip_suffix('"'));
    println!("cargo::rustc-env=UPSTREAM_RELEASE={}", release.expect("upstream.toml states the release"));
}
