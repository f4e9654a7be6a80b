//! Terminal of the live view: its alternate screen, the keys, and restoring it, even after a panic.

use std::io::{self, stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use tokio::sync::mpsc;

use super::draw;
use super::model::Model;

/// Interval at which the thread that reads keys checks whether they are still wanted.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Next,
    Previous,
    ScrollDown,
    ScrollUp,
    Resync,
    /// The window has another size.
    Redraw,
    /// A part of the program has panicked, and the terminal was restored.
    GiveUp,
}

/// The terminal.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    wishes: mpsc::UnboundedReceiver<Wish>,
    taken: Taken,
}

/// Set while the terminal is in use. It is restored once: a second time would move the cursor back to its first
/// position, and overwrite the output in between.
#[derive(Clone)]
struct Taken(Arc<AtomicBool>);

impl Taken {
    fn is_taken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn give_back(&self) {
        if self.0.swap(false, Ordering::SeqCst) {
            // If the terminal is gone, there is nothing to restore.
            let _ = disable_raw_mode();
            let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        }
    }
}

impl Screen {
    /// Takes the terminal. A panic, on any thread, restores it before its message is printed.
    pub(super) fn open() -> io::Result<Self> {
        let taken = Taken(Arc::new(AtomicBool::new(true)));
        let (of_hook, say) = (taken.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            of_hook.give_back();
            say(panic);
        }));
        let terminal = enter().inspect_err(|_| taken.give_back())?;
        let (sender, wishes) = mpsc::unbounded_channel();
        let of_keys = taken.clone();
        thread::spawn(move || {
            while !sender.is_closed() {
                let wish = match event::poll(KEY_WAIT) {
                    _ if !of_keys.is_taken() => Some(Wish::GiveUp),
                    Ok(true) => event::read().ok().and_then(|event| wish(&event)),
                    Ok(false) => None,
                    Err(_) => return,
                };
                let is_last = wish == Some(Wish::GiveUp);
                if wish.is_some_and(|wish| sender.send(wish).is_err()) || is_last {
                    return;
                }
            }
        });
        Ok(Self {
            terminal,
            wishes,
            taken,
        })
    }

    /// Draws, unless the terminal was restored.
    pub(super) fn show(&mut self, model: &Model) -> io::Result<()> {
        if !self.taken.is_taken() {
            return Ok(());
        }
        self.terminal.draw(|frame| draw::draw(frame, model)).map(drop)
    }

    /// Waits for a request.
    pub(super) async fn wish(&mut self) -> Wish {
        // Without a reader of keys the user could not quit.
        self.wishes.recv().await.unwrap_or(Wish::Quit)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.taken.give_back();
    }
}

fn enter() -> io::Result<DefaultTerminal> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

fn wish(event: &Event) -> Option<Wish> {
    let Event::Key(KeyEvent {
        code, modifiers, kind, ..
    }) = event
    else {
        return matches!(event, Event::Resize(..)).then_some(Wish::Redraw);
    };
    if *kind == KeyEventKind::Release {
        return None;
    }
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('r') => Some(Wish::Resync),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Next),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Previous),
        KeyCode::PageDown => Some(Wish::ScrollDown),
        KeyCode::PageUp => Some(Wish::ScrollUp),
        _ => None,
    }
}

#[cfg(test)]
#[path = "../../tests/dev_command/terminal.rs"]
mod pseudo_terminal;

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::pseudo_terminal::PseudoTerminal;
    use super::*;

    /// Runs one of the ignored tests below in a terminal. Returns its output on the alternate screen, and its output
    /// after it had restored the terminal.
    fn left_after(test: &str) -> (String, String) {
        let mut terminal = PseudoTerminal::open();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([
            "--exact",
            &format!("dev::screen::tests::{test}"),
            "--ignored",
            "--nocapture",
        ]);
        let mut process = terminal.run(&mut command);
        terminal.wait_for("the view", |shown| shown.contains("q quit"));
        assert!(terminal.is_raw() && terminal.is_alternate());
        terminal.press("j");
        assert!(!terminal.end_of(&mut process).success());
        terminal.wait_for("the end", |shown| shown.contains("test result: FAILED"));
        assert!(!terminal.is_raw(), "keys are lines again");
        assert!(!terminal.is_alternate(), "what was on the screen is there again");
        assert!(terminal.is_cursor_shown());
        (terminal.shown(), terminal.after_return())
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_read_after_it() {
        let (shown, after) = left_after("panics_while_it_is_shown");
        assert!(shown.contains("the view broke down"), "{shown}");
        assert!(after.contains("the view broke down"), "{after}");
        assert_eq!(
            after.matches("\u{1b}[?1049").count(),
            0,
            "the screen is changed once: {after:?}"
        );
    }

    #[test]
    fn a_panic_of_another_thread_restores_the_terminal() {
        let (shown, after) = left_after("another_thread_panics");
        assert!(shown.contains("the host broke down"), "{shown}");
        assert!(after.contains("the wish is GiveUp"), "{after}");
        assert!(!after.contains("q quit"), "{after}");
    }

    #[tokio::test]
    #[ignore = "it panics in a terminal, in which another test runs it"]
    async fn panics_while_it_is_shown() {
        let mut screen = Screen::open().unwrap();
        screen.show(&Model::new("web", String::new())).unwrap();
        assert_eq!(screen.wish().await, Wish::Next);
        panic!("the view broke down");
    }

    #[tokio::test]
    #[ignore = "a thread of it panics in a terminal, in which another test runs it"]
    async fn another_thread_panics() {
        let mut screen = Screen::open().unwrap();
        screen.show(&Model::new("web", String::new())).unwrap();
        assert_eq!(screen.wish().await, Wish::Next);
        let _ = thread::spawn(|| panic!("the host broke down")).join();
        let wish = screen.wish().await;
        screen.show(&Model::new("other", String::new())).unwrap();
        drop(screen);
        panic!("the wish is {wish:?}");
    }

    #[test]
    fn keys_are_wishes() {
        let pressed = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(pressed(KeyCode::Down, KeyModifiers::NONE), Some(Wish::Next));
        assert_eq!(pressed(KeyCode::Char('r'), KeyModifiers::NONE), Some(Wish::Resync));
        let released = KeyEvent {
            kind: KeyEventKind::Release,
            ..KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)
        };
        assert_eq!(wish(&Event::Key(released)), None);
        assert_eq!(wish(&Event::Resize(1, 1)), Some(Wish::Redraw));
    }
}
