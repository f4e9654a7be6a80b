//! Owns the terminal while the live view is shown: its other screen, the keys, and giving it back as it was, also after a
//! panic. Leaves what is drawn to `draw`.

use std::io;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::draw;
use super::model::Model;

/// How often the thread that reads keys looks whether anybody wants them.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Next,
    Previous,
    Resync,
    /// The window has another size.
    Redraw,
}

/// The terminal.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    wishes: mpsc::UnboundedReceiver<Wish>,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it says what it has to say.
    pub(super) fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (sender, wishes) = mpsc::unbounded_channel();
        thread::spawn(move || {
            while !sender.is_closed() {
                let wish = match event::poll(KEY_WAIT) {
                    Ok(true) => event::read().ok().and_then(|event| wish(&event)),
                    Ok(false) => None,
                    Err(_) => return,
                };
                if wish.is_some_and(|wish| sender.send(wish).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { terminal, wishes })
    }

    /// Draws.
    pub(super) fn show(&mut self, model: &Model) -> io::Result<()> {
        self.terminal.draw(|frame| draw::draw(frame, model)).map(drop)
    }

    /// Waits for a wish.
    pub(super) async fn wish(&mut self) -> Wish {
        // Who reads no keys any more cannot be told to quit by them.
        self.wishes.recv().await.unwrap_or(Wish::Quit)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
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
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
