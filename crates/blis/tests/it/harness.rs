//! Runs the built program in a folder of its own.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A small scenario that every test starts from.
pub(crate) const CHAT: &str = "\
kind: Scenario
name: chat
seed: 42
model: llama-3.1-8b-instruct
engine: {kind: vllm}
cluster: {hardware: h100, nodes: 1}
pools:
  - name: serve
    role: both
    replicas: 1
    command: \"vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 4096\"
workload:
  clients:
    - id: chat
      arrival: {process: poisson, rate: 8.0}
      input: {distribution: uniform, min: 100, max: 900}
      output: {distribution: uniform, min: 10, max: 90}
frame: {start: empty, stop: {requests: 100}}
";

/// A folder of one test, with `scenario.yaml` in it.
pub(crate) struct Bench {
    folder: PathBuf,
}

impl Bench {
    /// A fresh folder; the test's name keeps it from others'.
    pub(crate) fn new(test: &str, scenario: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        let bench = Self { folder };
        bench.write("scenario.yaml", scenario.as_bytes());
        bench
    }

    /// Writes a file, and its folder where there is none yet.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Makes a file of so many zero bytes, which take no room.
    pub(crate) fn write_zeros(&self, name: &str, bytes: u64) {
        fs::File::create(self.folder.join(name)).unwrap().set_len(bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let names = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Runs the program in the folder.
    pub(crate) fn blis(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts the program in the folder, its output thrown away.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blis"));
        command.current_dir(&self.folder).args(arguments);
        command
    }

    /// The Result of a run that succeeds.
    pub(crate) fn result(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.blis(&[&["run", "scenario.yaml", "--format", "json"], arguments].concat());
        assert!(output.status.success(), "{}", show(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Exit code, stdout and stderr as one text.
pub(crate) fn show(output: &Output) -> String {
    let mut text = format!("exit code: {}\n", output.status.code().map_or_else(|| "none".to_owned(), |code| code.to_string()));
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        write!(text, "---- {name}\n{}", String::from_utf8_lossy(bytes)).unwrap();
    }
    text
}

/// Runs one command on an edited copy of the scenario, and compares what the user sees with the snapshot.
pub(crate) fn check(test: &str, replacements: &[(&str, &str)], arguments: &[&str]) {
    let mut scenario = CHAT.to_owned();
    for (from, to) in replacements {
        assert!(scenario.contains(from), "the scenario has no {from:?}");
        scenario = scenario.replace(from, to);
    }
    let bench = Bench::new(test, &scenario);
    let output = bench.blis(&[&["run", "scenario.yaml"], arguments].concat());
    insta::with_settings!({prepend_module_to_snapshot => false}, { insta::assert_snapshot!(test, show(&output)) });
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(bench.files(), ["scenario.yaml"], "a refused run leaves no file");
}
