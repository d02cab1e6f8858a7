//! Results, request records and explanations as text: aligned tables for people, JSON, CSV, JSON lines and Parquet for programs.
//!
//! Nothing here computes a figure or defines a metric: values, units and definitions arrive in the documents of the contracts.
//! Left out: files, terminals and colours, which are the command line's; the writers take anything that can be written to.
//!
//! Reading order: [`result`] and [`page`], then [`requests`], [`timeline`] and [`explain`]; [`quantity`] says how a number looks and [`grid`] how a table does.

pub mod explain;
pub mod grid;
pub mod page;
mod parquet;
pub mod quantity;
pub mod requests;
pub mod result;
pub mod timeline;
