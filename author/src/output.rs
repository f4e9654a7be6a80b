//! Prints like the commands of `pilothouse_host`: a full disk as standard output is an error, not a panic.

/// Prints like `std::print`.
macro_rules! print {
    ($($text:tt)*) => { pilothouse_host::output::write(format_args!($($text)*)) };
}

/// Prints like `std::println`.
macro_rules! println {
    () => { pilothouse_host::output::write(format_args!("\n")) };
    ($($text:tt)*) => { pilothouse_host::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
