//! Results and request records as tables, JSON, CSV and JSON lines.
