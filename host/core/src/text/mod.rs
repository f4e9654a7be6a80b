//! Handles texts of any size, depth and content: depth of JSON, memory once parsed, and safe printing.

pub mod depth;
pub mod parsed_size;
pub mod printable;
