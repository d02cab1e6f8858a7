//! Several traces as one: their requests in order of time, each trace's clients, texts and sessions its own.

use super::{Part, Row, Trace, TraceError};

/// Puts traces together. Each comes with a name, which its clients, texts and sessions are prefixed with where there is more than one.
///
/// Refuses warm-ups, which a trace counts from its start and which would no longer stand there.
pub fn compose(traces: Vec<(String, Trace)>) -> Result<Trace, TraceError> {
    let several = traces.len() > 1;
    let mut whole = Trace::default();
    for (name, trace) in traces {
        if several && trace.rows.iter().any(|row| row.warm_up) {
            return Err(TraceError::whole(&name, "has a warm-up, which belongs at the start of a run; compose traces without one"));
        }
        if whole.clients.is_empty() {
            whole.model = trace.model;
        } else if whole.model != trace.model {
            whole.model.clear();
        }
        let named = |own: Vec<String>| own.into_iter().map(|own| if several { format!("{name}/{own}") } else { own }).collect::<Vec<_>>();
        let shift = |names: &Vec<String>| u32::try_from(names.len()).expect("traces have fewer than 2^32 names");
        let (clients, texts, sessions) = (shift(&whole.clients), shift(&whole.texts), shift(&whole.sessions));
        let first_id = whole.rows.iter().map(|row| row.id + 1).max().unwrap_or(0);
        let moved = |row: Row| renumbered(row, clients, texts, sessions, first_id);
        let rows: Option<Vec<Row>> = trace.rows.into_iter().map(moved).collect();
        let Some(rows) = rows else {
            return Err(TraceError::whole(&name, "numbers its requests too high to number those of several traces"));
        };
        whole.rows.extend(rows);
        whole.clients.extend(named(trace.clients));
        whole.classes.resize(clients as usize, String::new());
        whole.classes.extend(trace.classes);
        whole.texts.extend(named(trace.texts));
        whole.sessions.extend(named(trace.sessions));
        whole.not_started += trace.not_started;
        whole.open_ended |= trace.open_ended;
        whole.notes.extend(trace.notes);
    }
    whole.rows.sort_by_key(|row| row.arrival_us);
    whole.rows.iter_mut().for_each(|row| row.line = 0);
    whole.checked("the composed trace")
}

/// A row with its numbers moved behind those already taken; `None` where there is no room.
fn renumbered(mut row: Row, clients: u32, texts: u32, sessions: u32, first_id: u64) -> Option<Row> {
    row.id = row.id.checked_add(first_id)?;
    row.client += clients;
    row.session = row.session.map(|session| session + sessions);
    row.prompt.prefix = row.prompt.prefix.map(|(text, length)| (text + texts, length));
    row.after = match row.after {
        Some((cause, delay)) => Some((cause.checked_add(first_id)?, delay)),
        None => None,
    };
    for part in &mut row.prompt.parts {
        match part {
            Part::Shared { text, .. } => *text += texts,
            Part::Input { request, .. } | Part::Output { request, .. } | Part::Round { request } => {
                *request = request.checked_add(first_id)?;
            }
        }
    }
    // The next trace's numbers begin behind this one.
    row.id.checked_add(1).map(|_| row)
}
