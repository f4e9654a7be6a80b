//! A pseudo terminal for tests: a program runs in it, keys are pressed, and what stands on its screen is read. It knows the
//! control sequences that the live view of `pilothouse dev` uses, and skips others.
#![allow(
    dead_code,
    reason = "the tests of the command and those of its screen each use a part"
)]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Time limit of one step on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);

/// Interval between two polls.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The rows and columns of the window.
const SIZE: (u16, u16) = (40, 160);

/// Escape sequence that leaves the alternate screen, on which a view was.
const RETURN: &str = "\u{1b}[?1049l";

/// A terminal of this process.
pub struct PseudoTerminal {
    /// Input of the terminal.
    keyboard: File,
    /// The end that programs have.
    device: OwnedFd,
    output: Arc<Mutex<Vec<u8>>>,
}

/// A terminal's screens, of which one is shown.
#[derive(Default)]
struct Display {
    shown: Screen,
    /// The screen that is left, while the other one is shown.
    left: Option<Screen>,
    is_cursor_hidden: bool,
}

/// Text of a screen, and position of the cursor.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<char>>,
    at: (usize, usize),
}

impl PseudoTerminal {
    /// A terminal in which nothing runs yet.
    pub fn open() -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let device = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let (ws_row, ws_col) = SIZE;
        let size = Winsize {
            ws_row,
            ws_col,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&device, size).unwrap();
        let keyboard = File::from(keyboard);
        let (mut reader, output) = (keyboard.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let written = output.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                written.lock().unwrap().extend(&buffer[..count]);
            }
        });
        Self {
            keyboard,
            device,
            output,
        }
    }

    /// Starts a program.
    pub fn run(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.device.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        command.spawn().unwrap()
    }

    /// Waits for the end of a program.
    #[track_caller]
    pub fn end_of(&self, process: &mut Child) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status;
            }
            if begun.elapsed() > WITHIN {
                process.kill().unwrap();
                panic!("it does not end:\n{}", self.shown());
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen has something.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_there(&self.shown()) {
            assert!(begun.elapsed() < WITHIN, "{what} does not appear:\n{}", self.shown());
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Returns the text on the screen.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for row in self.display().shown.rows {
            let row: String = row.into_iter().collect();
            let _ = writeln!(text, "{}", row.trim_end());
        }
        text
    }

    /// Returns `true` if each key is passed to the program at once, and not echoed.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.device).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Returns `true` if the alternate screen is shown, on which views are drawn.
    pub fn is_alternate(&self) -> bool {
        self.display().left.is_some()
    }

    /// Returns `true` if the cursor is visible.
    pub fn is_cursor_shown(&self) -> bool {
        !self.display().is_cursor_hidden
    }

    /// All that was written since the screen was first left on which the view was, with its control sequences.
    pub fn after_return(&self) -> String {
        let text = self.text();
        let (_, after) = text.split_once(RETURN).expect("the screen was left");
        after.to_owned()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    fn display(&self) -> Display {
        let (mut display, text) = (Display::default(), self.text());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\u{1b}' => match letters.next() {
                    Some('[') => {
                        let mut parameters = String::new();
                        let last = letters.find(|letter| {
                            let is_last = ('@'..='~').contains(letter);
                            if !is_last {
                                parameters.push(*letter);
                            }
                            is_last
                        });
                        display.control(&parameters, last);
                    }
                    // The choice of a set of characters has one letter more.
                    Some('(' | ')') => drop(letters.next()),
                    _ => {}
                },
                '\n' => display.shown.at.0 += 1,
                '\r' => display.shown.at.1 = 0,
                letter if letter.is_control() => {}
                letter => display.put(letter),
            }
        }
        display
    }
}

impl Display {
    fn put(&mut self, letter: char) {
        let Screen { rows, at } = &mut self.shown;
        let (row, column) = *at;
        if rows.len() <= row {
            rows.resize_with(row + 1, Vec::new);
        }
        let row = &mut rows[row];
        if row.len() <= column {
            row.resize(column + 1, ' ');
        }
        row[column] = letter;
        at.1 += 1;
    }

    fn control(&mut self, parameters: &str, last: Option<char>) {
        match (parameters, last) {
            (_, Some('H')) => {
                let numbers: Vec<usize> = parameters.split(';').map(|it| it.parse().unwrap_or(1)).collect();
                let number = |index: usize| numbers.get(index).copied().unwrap_or(1).saturating_sub(1);
                self.shown.at = (number(0), number(1));
            }
            ("2", Some('J')) => self.shown.rows.clear(),
            ("?1049", Some('h')) if self.left.is_none() => {
                // The cursor stays where it is.
                let at = self.shown.at;
                let other = Screen { rows: Vec::new(), at };
                self.left = Some(std::mem::replace(&mut self.shown, other));
            }
            ("?1049", Some('l')) => {
                if let Some(left) = self.left.take() {
                    self.shown = left;
                }
            }
            ("?25", Some('l')) => self.is_cursor_hidden = true,
            ("?25", Some('h')) => self.is_cursor_hidden = false,
            _ => {}
        }
    }
}
