//! The embedded copy as a whole, names, and what a directory or an overlay may not contain.

use std::fs;
use std::path::PathBuf;

use blis_contracts::format::FormatName;

use super::*;
use crate::write_graph;

/// A catalog directory of one test, removed when it ends.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("blis-catalog-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&root));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(root)
    }

    /// All of the embedded copy, and then some.
    pub(crate) fn copy(test: &str, more: &[(&str, &str)]) -> Self {
        Self::new(test, &[embedded::FILES, more].concat())
    }

    /// What is wrong with it, each file as `catalog/...`.
    pub(crate) fn refusal(&self) -> String {
        self.named(&Catalog::open(&self.0, &[]).unwrap_err())
    }

    /// An error with this directory's path as `catalog`.
    fn named(&self, error: &CatalogError) -> String {
        error.to_string().replace(&self.0.display().to_string(), "catalog")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn embedded_text(path: &str) -> &'static str {
    embedded::FILES.iter().find(|(name, _)| *name == path).unwrap().1
}

#[test]
fn the_embedded_copy_is_valid_as_a_whole_and_its_names_are_those_of_the_graphs() {
    let catalog = Catalog::embedded();
    assert_eq!(catalog.check_whole().unwrap(), catalog.names);
    assert!(catalog.models().count() >= 11 && catalog.chips().count() >= 9);
}

#[test]
fn a_directory_of_the_same_files_loads_the_same_data_under_the_same_hash() {
    let (scratch, embedded) = (Scratch::copy("same", &[]), Catalog::embedded());
    let opened = Catalog::open(&scratch.0, &[]).unwrap();
    assert_eq!(opened.content_hash(), embedded.content_hash());
    assert_eq!(opened.combined_hash(), embedded.combined_hash());
    for model in embedded.models() {
        assert_eq!(opened.model(model).unwrap(), embedded.model(model).unwrap());
    }
    for chip in embedded.chips() {
        assert_eq!(opened.chip(chip).unwrap(), embedded.chip(chip).unwrap());
    }
}

#[test]
fn every_graph_is_written_as_the_writer_writes_it() {
    let catalog = Catalog::embedded();
    for model in catalog.models() {
        assert_eq!(write_graph(&catalog.model(model).unwrap()), embedded_text(&format!("models/{model}/graph.yaml")), "{model}");
    }
}

#[test]
fn a_model_answers_to_its_checkpoints_and_to_local_copies_of_them() {
    let catalog = Catalog::embedded();
    for (name, model) in [
        ("gpt-oss-120b", Some("gpt-oss-120b")),
        ("openai/gpt-oss-120b", Some("gpt-oss-120b")),
        ("/models/gpt-oss-120b/", Some("gpt-oss-120b")),
        ("./Llama-3.1-8B-Instruct", Some("llama-3.1-8b-instruct")),
        ("meta-llama/Llama-3.3-70B-Instruct", Some("llama-3.1-70b-instruct")),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", Some("llama-3.1-70b-instruct-fp8")),
        ("someone/gpt-oss-120b", None),
    ] {
        assert_eq!(catalog.resolve(name), model, "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one_and_the_path_of_an_entry() {
    let catalog = Catalog::embedded();
    let model = catalog.model("openai/gpt-oss-12b").unwrap_err().to_string();
    assert_eq!(
        model,
        "no model `openai/gpt-oss-12b` in the catalog (embedded); an entry would be models/gpt-oss-12b/graph.yaml\n  hint: did you mean `openai/gpt-oss-120b`?"
    );
    let chip = catalog.chip("h20").unwrap_err().to_string();
    assert_eq!(chip, "no chip `h20` in the catalog (embedded); an entry would be hardware/h20.yaml\n  hint: did you mean `h200`?");
}

#[test]
fn only_files_asked_for_count_as_read() {
    let catalog = Catalog::embedded();
    assert!(catalog.files_read().is_empty());
    catalog.model("openai/gpt-oss-20b").unwrap();
    catalog.chip("h200").unwrap();
    assert_eq!(catalog.files_read(), ["hardware/h200.yaml", "models/gpt-oss-20b/graph.yaml"]);
    assert_eq!(catalog.files_not_read().len() + 2, embedded::FILES.len());
}

#[test]
fn files_that_make_the_data_ambiguous_are_refused() {
    let graph = embedded_text("models/qwen3-8b/graph.yaml");
    let stray = Scratch::copy("stray", &[("hardware/h300.yml", "name: h300\n")]);
    assert!(stray.refusal().starts_with("catalog/hardware/h300.yml: matches no pattern of data"), "{}", stray.refusal());
    let returns = Scratch::copy("returns", &[("models/q/graph.yaml", &graph.replace('\n', "\r\n"))]);
    assert!(returns.refusal().contains("carriage return"), "{}", returns.refusal());
    let cased = Scratch::copy("cased", &[("hardware/H100.yaml", embedded_text("hardware/h100.yaml"))]);
    assert!(cased.refusal().contains("differs from hardware/H100.yaml only in case"), "{}", cased.refusal());
    assert!(Scratch::new("none", &[]).refusal().ends_with("not a directory"));
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_refused() {
    let scratch = Scratch::copy("link", &[]);
    std::os::unix::fs::symlink(scratch.0.join("hardware/h100.yaml"), scratch.0.join("hardware/h101.yaml")).unwrap();
    assert_eq!(scratch.refusal(), "catalog/hardware/h101.yaml: a symbolic link; data are plain files");
}

#[test]
fn two_models_that_answer_to_one_name_are_refused() {
    let graph = embedded_text("models/qwen3-8b/graph.yaml").replace("name: qwen3-8b", "name: other");
    let scratch = Scratch::copy("collision", &[("models/other/graph.yaml", &graph)]);
    assert_eq!(scratch.refusal(), "models `models/other` and `models/qwen3-8b` both answer to `Qwen/Qwen3-8B`");
}

#[test]
fn what_is_wrong_with_an_overlay_is_told_of_its_own_file() {
    let chip = embedded_text("hardware/h200.yaml");
    let graph = embedded_text("models/qwen3-8b/graph.yaml");
    let told = |test: &str, files: &[(&str, &str)]| {
        let overlay = Scratch::new(test, files);
        overlay.named(&Catalog::embedded_with(&[&overlay.0]).unwrap_err())
    };
    let misspelt = told("misspelt", &[("hardware/h200.yaml", &chip.replace("memory_bandwidth:", "memory_bandwith:"))]);
    assert!(misspelt.starts_with("catalog/hardware/h200.yaml:") && misspelt.contains("did you mean"), "{misspelt}");
    let elsewhere = told("elsewhere", &[("models/mine/graph.yaml", graph)]);
    assert!(elsewhere.starts_with("catalog/models/mine/graph.yaml:") && elsewhere.contains("lies under the name `mine`"), "{elsewhere}");
    let alone = told("alone", &[("models/mine/model.yaml", "name: mine\nsource: here\nlicence: none\n")]);
    assert_eq!(alone, "catalog/models/mine/graph.yaml: missing; the deriver writes it");
    let root = std::env::temp_dir().join(format!("blis-catalog-{}-bare", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let bare = Catalog::embedded_with(&[&root]).unwrap_err().to_string();
    assert!(bare.contains("has no data (hardware/NAME.yaml"), "{bare}");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn an_overlay_replaces_whole_entries_adds_others_and_shows_in_the_combined_hash() {
    let chip = embedded_text("hardware/h200.yaml").replace("name: h200", "name: x1").replace("4800000000000", "5000000000000");
    let graph = embedded_text("models/qwen3-8b/graph.yaml").replace("aliases: [Qwen/Qwen3-8B]", "aliases: [mine/qwen]");
    let overlay = Scratch::new("overlay", &[("hardware/x1.yaml", &chip), ("models/qwen3-8b/graph.yaml", &graph)]);
    let catalog = Catalog::embedded_with(&[&overlay.0]).unwrap();
    assert_eq!(catalog.chip("x1").unwrap().memory_bandwidth.value.get().to_bits(), 5e12_f64.to_bits());
    assert_eq!(catalog.resolve("mine/qwen"), Some("qwen3-8b"));
    assert_eq!(catalog.resolve("Qwen/Qwen3-8B"), None);
    assert_eq!(catalog.content_hash(), Catalog::embedded().content_hash());
    assert_ne!(catalog.combined_hash(), catalog.content_hash());
}

#[test]
fn a_document_that_breaks_a_rule_is_refused_with_its_place() {
    let spoil = |test: &str, path: &str, from: &str, to: &str| {
        let text = embedded_text(path);
        assert!(text.contains(from), "{from}");
        Scratch::copy(test, &[(path, &text.replacen(from, to, 1))]).refusal()
    };
    let chip = "hardware/h200.yaml";
    let refusals = [
        spoil("peak", chip, "value: 1978900000000000", "value: 3957800000000000"),
        spoil("source", chip, "source: \"name printed by nvidia-smi\"", "source: \" \""),
        spoil("zero", chip, "value: 132", "value: 0"),
        spoil("key", chip, "memory_bandwidth:", "memory_bandwith:"),
        spoil("total", "models/qwen3-8b/graph.yaml", "total: 8190735360", "total: 8190735361"),
        spoil("block", "models/qwen3-8b/graph.yaml", "cycle: [layer]", "cycle: [layr]"),
        spoil("heads", "models/qwen3-8b/graph.yaml", "kv_heads: 8", "kv_heads: 7"),
    ];
    let expected = [
        "peak.fp8.value: 3957800000000000 is more than the width of fp8",
        "device_name.source: empty",
        "multiprocessors.value: 0 is not a positive figure",
        "did you mean `memory_bandwidth`?",
        "parameters.total: 8190735361, where the blocks have 8190735360",
        "stack: names the block `layr`",
        "kv_heads: 7 does not divide the 32 query heads",
    ];
    for (refusal, expected) in refusals.iter().zip(expected) {
        assert!(refusal.contains(expected), "{refusal}");
        assert!(refusal.starts_with("catalog/"), "{refusal}");
    }
}

#[test]
fn peaks_of_the_chips_are_dense_and_double_with_each_halving_of_the_width() {
    let catalog = Catalog::embedded();
    for name in catalog.chips() {
        let chip = catalog.chip(name).unwrap();
        let peak = |format| chip.peak.get(&format).map(|peak| peak.value.get());
        let bf16 = peak(FormatName::Bf16).unwrap();
        let ratio = peak(FormatName::Fp8).map_or(2.0, |fp8| fp8 / bf16);
        assert!((1.99..=2.03).contains(&ratio), "{name}: {ratio}");
        let ratio = peak(FormatName::Nvfp4).map_or(4.0, |nvfp4| nvfp4 / bf16);
        let ultra = chip.compute_capability.value == (10, 3);
        assert!(if ultra { (6.0..=6.3).contains(&ratio) } else { (3.99..=4.01).contains(&ratio) }, "{name}: {ratio}");
    }
}

#[test]
fn a_domain_of_links_holds_whole_nodes_and_its_links_are_no_slower_than_those_to_the_host() {
    let catalog = Catalog::embedded();
    for name in catalog.chips() {
        let chip = catalog.chip(name).unwrap();
        assert!(chip.gpus_per_domain.value.is_multiple_of(chip.gpus_per_node.value), "{name}");
        assert!(chip.link_bandwidth.value.get() >= chip.host_bandwidth.value.get(), "{name}");
    }
}

#[test]
fn a_sparse_rate_is_refused_at_four_bits_too() {
    let chip = "hardware/b200.yaml";
    let text = embedded_text(chip).replacen("value: 9000000000000000", "value: 18000000000000000", 1);
    let refusal = Scratch::copy("sparse", &[(chip, &text)]).refusal();
    assert!(refusal.contains("peak.mxfp4.value: 18000000000000000 is more than the width of mxfp4"), "{refusal}");
}
