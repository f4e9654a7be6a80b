//! Prints as the commands of `pilothouse_host` do: with an error where standard output is a full disk, in place of a panic.

/// As `std::print`.
macro_rules! print {
    ($($text:tt)*) => { pilothouse_host::output::write(format_args!($($text)*)) };
}

/// As `std::println`.
macro_rules! println {
    () => { pilothouse_host::output::write(format_args!("\n")) };
    ($($text:tt)*) => { pilothouse_host::output::write(format_args!("{}\n", format_args!($($text)*))) };
}
