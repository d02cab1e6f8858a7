//! Traces of every format: the published sample rows, what is refused and with which words, and the way back.

use blis_contracts::scenario::TimeUnit;
use blis_workload::trace::{
    Header, Mode, Mooncake, Part, Prompt, Trace, compare, compose, header_text, read_azure, read_blis, read_burstgpt, read_mooncake,
    write_azure, write_burstgpt, write_mooncake, write_rows,
};

pub(crate) const HEADER: &str = "trace_version: 3\ntime_unit: microseconds\nmode: real\n";

pub(crate) const COLUMNS: &str = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,\
input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,\
arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason";

pub(crate) fn blis(header: &str, table: &str) -> Result<Trace, String> {
    let header = Header::read("t.yaml", header.as_bytes()).map_err(|error| error.to_string())?;
    read_blis(&header, "t.csv", table.as_bytes()).map_err(|error| error.to_string())
}

pub(crate) fn mooncake(text: &str) -> Result<Trace, String> {
    let format = Mooncake { time_unit: TimeUnit::Ms, block_tokens: Mooncake::BLOCK_TOKENS };
    read_mooncake("m.jsonl", text.as_bytes(), format).map_err(|error| error.to_string())
}

pub(crate) fn azure(text: &str) -> Result<Trace, String> {
    read_azure("a.csv", text.as_bytes()).map_err(|error| error.to_string())
}

pub(crate) fn burstgpt(text: &str) -> Result<Trace, String> {
    read_burstgpt("b.csv", text.as_bytes()).map_err(|error| error.to_string())
}

/// A row with `trailing` behind it, differing in number, time, lengths and session.
fn row(id: u64, session: &str, round: u32, input: u32, at: u64, trailing: &str) -> String {
    format!("{id},c1,,,{session},{round},,0,true,{input},16,{input},0,0,0,0,m,0,0,{at},{at},0,0,0,ok,,stop{trailing}\n")
}

#[test]
fn the_sample_of_a_blis_trace_loads() {
    let line = "0,c1,t1,standard,,0,doc,1024,true,256,16,256,0,0,0,0,qwen/qwen3-14b,0,1281,1000,1000,92000,301000,16,ok,,stop\n";
    let header = "trace_version: 3   # what current writers emit\ntime_unit: microseconds\nmode: real            # real | generated | replayed\n\
        warm_up_requests: 0\nserver: {type: vllm, model: qwen/qwen3-14b, tensor_parallel: 1, max_num_seqs: 256, block_size: 16, \
        gpu_memory_utilization: 0.9, max_model_len: 40960}\nnetwork: {measured_rtt_ms: 0.4}\n";
    let trace = blis(header, &format!("{COLUMNS}\n{line}")).unwrap();
    let row = &trace.rows[0];
    assert_eq!((trace.clients.as_slice(), trace.texts.as_slice()), (["c1".to_owned()].as_slice(), ["doc".to_owned()].as_slice()));
    assert_eq!((row.arrival_us, row.output_tokens, row.prompt.tokens()), (1000, 16, 1280), "the prefix is added");
    assert_eq!(row.prompt, Prompt { prefix: Some((0, 1024)), parts: Box::new([]), own: 256 });
    assert_eq!((row.timeout_us, row.after, row.lane), (None, None, None));
    let header_note = "the header's server, network state what was recorded and change nothing of a run";
    assert_eq!(trace.notes, [header_note, "tenant_id is stated by 1 requests and changes nothing of a run"]);
    assert_eq!(trace.model, "qwen/qwen3-14b");
    assert_eq!(trace.classes, ["standard"]);
}

#[test]
fn the_sample_of_a_mooncake_trace_loads() {
    let trace = mooncake("{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 90, \"hash_ids\": [0, 1, 57]}\n").unwrap();
    let row = &trace.rows[0];
    assert_eq!((row.arrival_us, row.output_tokens, row.prompt.tokens()), (3_000_000, 90, 1100));
    let part = |text, length| Part::Shared { text, length };
    assert_eq!(*row.prompt.parts, [part(0, 512), part(1, 512), part(2, 76)]);
    assert_eq!(trace.texts, ["0", "1", "57"]);
}

#[test]
fn the_samples_of_azure_traces_load() {
    let trace = azure("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n")
        .unwrap();
    let of = |trace: &Trace| trace.rows.iter().map(|row| (row.arrival_us, row.prompt.own, row.output_tokens)).collect::<Vec<_>>();
    assert_eq!(of(&trace), [(0, 4808, 10), (52_000, 110, 27)]);
    let trace = azure(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-12 00:00:00.003163+00:00,2162,5\r\n2024-05-12 00:00:00.999999+00:00,2399,6\r\n",
    )
    .unwrap();
    assert_eq!(of(&trace), [(0, 2162, 5), (996_836, 2399, 6)]);
}

#[test]
fn a_request_after_the_end_of_simulated_time_is_refused() {
    let rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n9023-11-16 18:17:04,110,27\n";
    assert!(azure(rows).unwrap_err().starts_with("a.csv:3: is sent at 220898"), "{:?}", azure(rows));
}

#[test]
fn the_sample_of_a_burstgpt_trace_loads() {
    let header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    let trace =
        burstgpt(&format!("{header}5,ChatGPT,472,18,490,Conversation log\n6,GPT-4,10,0,10,API log\n7.5,GPT-4,10,2,12,API log\n")).unwrap();
    assert_eq!((trace.rows[0].arrival_us, trace.rows[0].prompt.own, trace.rows[0].output_tokens), (5_000_000, 472, 18));
    assert_eq!((trace.rows[1].arrival_us, trace.clients.join(" ")), (7_500_000, "ChatGPT GPT-4".to_owned()));
    assert_eq!(trace.notes, ["1 requests with a response of 0 tokens failed and are left out"]);
}

#[test]
fn rows_written_are_the_rows_read() {
    let header = format!("{COLUMNS},vllm_priority,after,delay_after_us,lane,phase,rounds_left,max_tokens,segments\n");
    let rows =
        row(7, "s", 0, 100, 10, ",-3,,,4,1,1,50,s/a%20b/30 i/99/20") + &row(9, "s", 1, 60, 500, ",-3,7,20,,1,0,50,s/a%20b/30 i/99/20 r/7");
    let trace = blis(HEADER, &(header + &rows)).unwrap();
    assert_eq!(trace.texts, ["a b"]);
    assert_eq!((trace.rows[0].prompt.own, trace.rows[1].prompt.own), (50, 10));
    let mut table = Vec::new();
    write_rows(&mut table, &trace).unwrap();
    let written = header_text(&Header::new(Mode::Generated, &trace));
    assert_eq!(blis(&written, std::str::from_utf8(&table).unwrap()), Ok(trace));
}

#[test]
fn what_no_line_may_hold_is_refused_with_line_and_field() {
    let table = |rows: &str| blis(HEADER, &format!("{COLUMNS}\n{rows}")).unwrap_err();
    assert_eq!(table(""), "t.csv: has no request; a trace needs at least one row");
    assert_eq!(
        table(&(row(0, "", 0, 5, 9, "") + &row(1, "", 0, 5, 8, ""))),
        "t.csv:3: is sent at 8 us, before the row above it (9 us); sort the rows by time"
    );
    assert_eq!(
        table(&(row(4, "", 0, 5, 9, "") + &row(4, "", 0, 5, 9, ""))),
        "t.csv:3: request_id: 4 is already the number of the request in line 2"
    );
    assert_eq!(table(&row(0, "", 0, 0, 9, "")), "t.csv:2: input_tokens: the prompt must have from 1 to 1000000000 tokens, found 0");
    assert_eq!(table(&row(0, "", 2, 5, 9, "")), "t.csv:2: round_index: is 2 without a session");
    assert_eq!(table(&row(0, "s", 2, 5, 9, "")), "t.csv:2: round_index: must be 0, the next of session `s`, found 2");
    assert_eq!(
        table(&row(0, "", 0, 5, 9, "").replace(",16,", ",1.5,")),
        "t.csv:2: output_tokens: must be a whole number up to 1000000000, found \"1.5\""
    );
    assert_eq!(table(&row(0, "", 0, 5, 9, "").replace(",ok,", ",fine,")), "t.csv:2: status: must be ok, error or timeout, found \"fine\"");
    assert_eq!(
        table(&row(0, "", 0, 5, 9, "").replace(",0,0,0,0,m", ",1,0,0,0,m")),
        "t.csv:2: image_tokens: must be 0: only prompts of text are simulated"
    );
    assert_eq!(
        table(&row(0, "", 0, 5, 9, "").replace(",m,0,", ",m,9,")),
        "t.csv:2: deadline_us: must be after the arrival (9), or 0 for none, found 9"
    );
    let caused = |rows: &str| blis(HEADER, &format!("{COLUMNS},after,lane,segments\n{rows}")).unwrap_err();
    assert_eq!(caused(&row(0, "", 0, 5, 9, ",3,,")), "t.csv:2: after: no row above has the number 3");
    let two = row(0, "", 0, 5, 9, ",,1,") + &row(1, "", 0, 5, 9, ",0,,") + &row(2, "", 0, 5, 9, ",0,,");
    assert_eq!(caused(&two), "t.csv:4: after: request 0 holds a place of a closed loop and is already followed by line 3");
    assert_eq!(caused(&row(0, "", 0, 5, 9, ",,,s/a")), "t.csv:2: segments: \"s/a\" is not s/NAME/LENGTH, i/ID/LENGTH, o/ID/LENGTH or r/ID");
    assert_eq!(caused(&row(0, "", 0, 5, 9, ",,,s/a/6")), "t.csv:2: segments: state 6 tokens, more than input_tokens (5)");
    let early = row(0, "", 0, 5, 9, ",,,") + &row(1, "", 0, 5, 9, ",,,r/0");
    assert_eq!(caused(&early), "t.csv:3: segments: repeats request 0, which need not have ended by then; let `after` follow it");
    assert_eq!(
        blis("trace_version: 9\ntime_unit: microseconds\nmode: real\n", ""),
        Err("t.yaml:1:16: trace_version: must be 2 or 3, found 9".to_owned())
    );
    let unit = blis("trace_version: 3\ntime_unit: seconds\nmode: real\n", "").unwrap_err();
    assert!(unit.starts_with("t.yaml:2:12: time_unit"), "{unit}");
}

#[test]
fn hashes_must_be_as_many_as_the_blocks_of_the_prompt() {
    let line = |hashes: &str| format!("{{\"timestamp\": 1, \"input_length\": 1025, \"output_length\": 9, \"hash_ids\": {hashes}}}\n");
    for (hashes, found) in [("[1, 2]", 2), ("[1, 2, 3, 4]", 4), ("[]", 0)] {
        let told = format!("m.jsonl:1: hash_ids: has {found} hashes; a prompt of 1025 tokens in blocks of 512 has 3");
        assert_eq!(mooncake(&line(hashes)), Err(told));
    }
    assert!(mooncake(&line("[1, 2, 3]")).is_ok());
    assert_eq!(mooncake(""), Err("m.jsonl: has no request; a trace needs at least one row".to_owned()));
    let order = line("[1, 2, 3]").replace(": 1,", ": 7,") + &line("[1, 2, 3]");
    assert_eq!(mooncake(&order), Err("m.jsonl:2: is sent at 1000 us, before the row above it (7000 us); sort the rows by time".to_owned()));
    let unknown = mooncake("{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 9, \"messages\": []}\n").unwrap_err();
    assert!(
        unknown
            .starts_with("m.jsonl:1: must be a request with timestamp, input_length, output_length and hash_ids: unknown field `messages`"),
        "{unknown}"
    );
    assert!(
        mooncake("{\"timestamp\": -1, \"input_length\": 5, \"output_length\": 9}\n")
            .unwrap_err()
            .contains("timestamp: must be a time from 0")
    );
    assert!(
        mooncake("{\"timestamp\": 1, \"input_length\": 5, \"input_length\": 5, \"output_length\": 9}\n")
            .unwrap_err()
            .contains("duplicate field")
    );
}

#[test]
fn rounds_that_accumulate_are_split_into_what_is_new() {
    let growing = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nsession_context_growth: accumulate\n";
    let rows = |second: u32| row(0, "s", 0, 100, 10, ",0") + &row(1, "s", 1, second, 500, ",40");
    let table = |second: u32| format!("{COLUMNS},think_time_us\n{}", rows(second));
    let trace = blis(growing, &table(150)).unwrap();
    assert_eq!((trace.rows[1].prompt.own, trace.rows[1].after), (34, Some((0, 40))), "100 and 16 of the 150 were said before");
    assert_eq!(*trace.rows[1].prompt.parts, [Part::Round { request: 0 }]);
    let told = "t.csv:3: input_tokens: is 115, less than the 116 tokens of the conversation so far; the header says that rounds accumulate";
    assert_eq!(blis(growing, &table(115)), Err(told.to_owned()));
    let timed = blis(growing, &format!("{COLUMNS}\n{}{}", row(0, "s", 0, 100, 10, ""), row(1, "s", 1, 150, 500, ""))).unwrap();
    assert_eq!(*timed.rows[1].prompt.parts, [Part::Input { request: 0, length: 100 }, Part::Output { request: 0, length: 16 }]);
    let plain = blis(HEADER, &table(50)).unwrap();
    assert_eq!((plain.rows[1].prompt.own, plain.rows[1].prompt.parts.len()), (50, 0));
}

#[test]
fn a_trace_goes_through_other_formats_and_stays_the_same_workload() {
    let lines: Vec<String> = (0..300u32)
        .map(|index| {
            let input = 600 + 7 * (index % 90);
            let hashes: Vec<u32> =
                (0..input.div_ceil(512)).map(|block| if block == 0 { index % 5 } else { 1000 + 10 * index + block }).collect();
            format!(
                "{{\"timestamp\": {}, \"input_length\": {input}, \"output_length\": {}, \"hash_ids\": {hashes:?}}}\n",
                40 * index + index % 7,
                1 + index % 60
            )
        })
        .collect();
    let first = mooncake(&lines.concat()).unwrap();
    let mut again = Vec::new();
    write_mooncake(&mut again, &first, 512).unwrap();
    let second = mooncake(std::str::from_utf8(&again).unwrap()).unwrap();
    assert!(compare(&first, &second).iter().all(|check| check.holds));
    let shared = |trace: &Trace| {
        let firsts: Vec<Part> = trace.rows.iter().map(|row| row.prompt.parts[0]).collect();
        (0..300).map(|one| firsts.iter().position(|part| *part == firsts[one]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(shared(&first), shared(&second), "the same rows share the same blocks");
    let mut plain = first.clone();
    for row in &mut plain.rows {
        row.prompt = Prompt { own: u32::try_from(row.prompt.tokens()).unwrap(), ..Prompt::default() };
    }
    let mut text = Vec::new();
    write_azure(&mut text, &plain).unwrap();
    assert!(compare(&plain, &azure(std::str::from_utf8(&text).unwrap()).unwrap()).iter().all(|check| check.holds));
    text.clear();
    write_burstgpt(&mut text, &plain).unwrap();
    assert!(compare(&plain, &burstgpt(std::str::from_utf8(&text).unwrap()).unwrap()).iter().all(|check| check.holds));
    let refused = write_azure(Vec::new(), &first).unwrap_err().to_string();
    assert_eq!(refused, "request 0: shares text with others, which Azure's format cannot say");
}

#[test]
fn a_hash_whose_block_is_cut_short_stays_one_text_and_times_and_sessions_are_kept() {
    let line = |at: &str, input: u32, hashes: &str| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": {input}, \"output_length\": 4, \"hash_ids\": {hashes}, \"session_id\": \"a b\"}}\n"
        )
    };
    let text = line("0", 600, "[5, 6]") + &line("0.25", 1024, "[5, 6]") + &line("7.405", 612, "[5, 6]");
    let first = mooncake(&text).unwrap();
    assert_eq!(first.rows[2].arrival_us, 7405);
    let mut again = Vec::new();
    write_mooncake(&mut again, &first, 512).unwrap();
    let again = String::from_utf8(again).unwrap();
    let second = mooncake(&again).unwrap();
    assert_eq!(again.matches("\"hash_ids\":[0,1]").count(), 3, "{again}");
    assert_eq!((second.rows.clone(), second.sessions), (first.rows.clone(), first.sessions.clone()));
    let mut apart = first.clone();
    apart.texts.push("other".to_owned());
    apart.rows[1].prompt.parts[1] = Part::Shared { text: 2, length: 512 };
    let failing: Vec<String> = compare(&first, &apart).into_iter().filter(|check| !check.holds).map(|check| check.what).collect();
    assert_eq!(failing, ["share of text seen before"]);
    let mut plain = first;
    plain.rows.iter_mut().for_each(|row| row.prompt = Prompt { own: 7, ..Prompt::default() });
    let mut table = Vec::new();
    write_burstgpt(&mut table, &plain).unwrap();
    let read = burstgpt(std::str::from_utf8(&table).unwrap()).unwrap();
    assert_eq!(read.rows.iter().map(|row| (row.session, row.round)).collect::<Vec<_>>(), [(Some(0), 0), (Some(0), 1), (Some(0), 2)]);
    let refused = write_azure(Vec::new(), &plain).unwrap_err().to_string();
    assert_eq!(refused, "request 1: is a later round of a session, which Azure's format cannot say");
}

#[test]
fn what_a_recorded_run_left_short_or_out_is_told() {
    let cut = row(0, "", 0, 9, 5, "").replace(",ok,,stop", ",timeout,,abort");
    let trace = blis(HEADER, &format!("{COLUMNS}\n{cut}")).unwrap();
    assert_eq!(trace.notes, ["1 requests that ended early generate no more than they had by then"]);
    let generated = HEADER.replace("real", "generated");
    assert!(blis(&generated, &format!("{COLUMNS}\n{cut}")).unwrap().notes.is_empty(), "what was not recorded states all it wants");
    let failed = format!("{COLUMNS}\n{}", row(0, "", 0, 9, 5, "").replace(",9,16,", ",9,0,").replace(",ok,,stop", ",error,down,"));
    let told = "t.csv: has no request (1 requests that failed before they generated a token are left out); a trace needs at least one row";
    assert_eq!(blis(HEADER, &failed), Err(told.to_owned()));
}

#[test]
fn composed_traces_keep_their_clients_texts_and_order_apart() {
    let one = mooncake("{\"timestamp\": 1, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [7]}\n{\"timestamp\": 9, \"input_length\": 512, \"output_length\": 2, \"hash_ids\": [7]}\n").unwrap();
    let other = mooncake("{\"timestamp\": 5, \"input_length\": 512, \"output_length\": 3, \"hash_ids\": [7]}\n").unwrap();
    let whole = compose(vec![("a".to_owned(), one), ("b".to_owned(), other)]).unwrap();
    assert_eq!(whole.rows.iter().map(|row| row.output_tokens).collect::<Vec<_>>(), [1, 3, 2]);
    assert_eq!((whole.clients.join(" "), whole.texts.join(" ")), ("a/mooncake b/mooncake".to_owned(), "a/7 b/7".to_owned()));
    assert_eq!(whole.rows[0].prompt.parts, whole.rows[2].prompt.parts);
    assert_ne!(whole.rows[0].prompt.parts, whole.rows[1].prompt.parts);
}
