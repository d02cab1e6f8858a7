//! The discrete-event simulator: loop, clients, front end, request records, results.
