//! Inert set of WASI 0.2: links a component's imports of it. Its state during a call is in `state`.
//!
//! There are no files, no network, no environment and no standard input. The clocks start at fixed times and only
//! advance when they are read or waited for, and random numbers have a fixed seed, so that equal calls give equal
//! answers. Output and errors go to the log. Every other function of WASI 0.2 can be imported, and ends the call.
//!
//! WASI has to be granted: the imports of a component show that it can do nothing else. The set is written by hand for languages whose
//! runtimes need WASI; wasmtime-wasi would bring async and files.

mod state;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType};
use wasmtime::{Engine, StoreContextMut};

use crate::outcome::{Limit, Stop};
use crate::state::CallState;
pub(crate) use state::WasiState;
use state::{Standard, WALL_CLOCK_START};

/// Handle of a standard stream for output.
pub(crate) struct OutputStream;

/// A handle of standard input.
pub(crate) struct InputStream;

/// Handle of a pollable.
pub(crate) struct Pollable;

/// Handle of a resource that never exists: a file, a socket, a terminal, an error.
pub(crate) struct Absent;

/// Bytes that `output-stream.check-write` permits at once.
const WRITE_BYTES: u64 = 64 * 1024;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[expect(dead_code, reason = "an inert stream does not fail, but the type has this case")]
    LastOperationFailed(Resource<Absent>),
    #[component(name = "closed")]
    Closed,
}

#[derive(ComponentType, Lower, Lift)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// Returns a component's imports of WASI.
pub(crate) fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    let ty = component.component_type();
    let names = ty.imports(engine).map(|(name, _)| name.to_owned());
    names
        .filter(|name| pilothouse_core::plugin::wasi::is_wasi(name))
        .collect()
}

/// Links all of a component's imports of WASI 0.2, of any minor version.
pub(crate) fn link(linker: &mut Linker<CallState>, engine: &Engine, component: &Component) -> wasmtime::Result<()> {
    for (name, import) in component.component_type().imports(engine) {
        let Some(interface) = pilothouse_core::plugin::wasi::interface(name) else {
            continue;
        };
        let ComponentItem::ComponentInstance(instance) = import.ty else {
            continue;
        };
        let mut linked = linker.instance(name)?;
        for (item, export) in instance.exports(engine) {
            match export.ty {
                ComponentItem::Resource(_) => resource(&mut linked, item)?,
                ComponentItem::ComponentFunc(_) if !function(&mut linked, interface, item)? => {
                    let full_name = format!("{name} {item}");
                    linked.func_new(item, move |_, _, _, _| Err(Stop::Inert(full_name.clone()).into()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Links a resource; it has the same type in every interface that names it.
fn resource(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    match name {
        "output-stream" => linked.resource(name, ResourceType::host::<OutputStream>(), |_, _| Ok(())),
        "input-stream" => linked.resource(name, ResourceType::host::<InputStream>(), |_, _| Ok(())),
        "pollable" => linked.resource(name, ResourceType::host::<Pollable>(), |mut store, handle| {
            store.data_mut().wasi.forget(handle);
            Ok(())
        }),
        _ => linked.resource(name, ResourceType::host::<Absent>(), |_, _| Ok(())),
    }
}

/// Links the function if the set has it; returns whether it does.
fn function(linked: &mut LinkerInstance<'_, CallState>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    match interface {
        "cli/environment" | "cli/exit" | "cli/stdin" | "cli/stdout" | "cli/stderr" => process(linked, interface, name),
        "cli/terminal-stdin" | "cli/terminal-stdout" | "cli/terminal-stderr" | "filesystem/preopens" => {
            nothing(linked, name)
        }
        "io/streams" if name.starts_with("[method]input-stream.") => input(linked, name),
        "io/streams" => output(linked, name),
        "io/poll" => poll(linked, name),
        "clocks/wall-clock" | "clocks/monotonic-clock" => clock(linked, interface, name),
        _ if interface.starts_with("random/") => random(linked, name),
        _ => Ok(false),
    }
}

fn process(linked: &mut LinkerInstance<'_, CallState>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    match (interface, name) {
        (_, "get-environment") => linked.func_wrap(name, |_, (): ()| Ok((Vec::<(String, String)>::new(),)))?,
        (_, "get-arguments") => linked.func_wrap(name, |_, (): ()| Ok((Vec::<String>::new(),)))?,
        (_, "initial-cwd") => linked.func_wrap(name, |_, (): ()| Ok((None::<String>,)))?,
        (_, "exit") => linked.func_wrap(name, |_, (status,): (Result<(), ()>,)| -> wasmtime::Result<()> {
            Err(Stop::Exit(u8::from(status.is_err())).into())
        })?,
        (_, "exit-with-code") => linked.func_wrap(name, |_, (status,): (u8,)| -> wasmtime::Result<()> {
            Err(Stop::Exit(status).into())
        })?,
        (_, "get-stdin") => linked.func_wrap(name, |_, (): ()| Ok((Resource::<InputStream>::new_own(0),)))?,
        ("cli/stdout", "get-stdout") => linked.func_wrap(name, |_, (): ()| {
            Ok((Resource::<OutputStream>::new_own(Standard::Output.handle()),))
        })?,
        ("cli/stderr", "get-stderr") => linked.func_wrap(name, |_, (): ()| {
            Ok((Resource::<OutputStream>::new_own(Standard::Error.handle()),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Links functions that find no terminal and no open directory.
fn nothing(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "get-terminal-stdin" | "get-terminal-stdout" | "get-terminal-stderr" => {
            linked.func_wrap(name, |_, (): ()| Ok((None::<Resource<Absent>>,)))?;
        }
        "get-directories" => {
            linked.func_wrap(name, |_, (): ()| Ok((Vec::<(Resource<Absent>, String)>::new(),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Links the functions of standard input, which is at its end.
fn input(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<bool> {
    type Stream = Resource<InputStream>;
    match name {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            linked.func_wrap(name, |_, (_, _): (Stream, u64)| {
                Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => {
            linked.func_wrap(name, |_, (_, _): (Stream, u64)| {
                Ok((Err::<u64, _>(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.subscribe" => linked.func_wrap(name, |mut store: Store<'_>, (_,): (Stream,)| {
            Ok((Resource::<Pollable>::new_own(store.data_mut().wasi.wait_until(0)?),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

type Store<'a> = StoreContextMut<'a, CallState>;

/// Links the functions of output streams; written bytes go to the log, at once and in full.
fn output(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<bool> {
    type Stream = Resource<OutputStream>;
    match name {
        "[method]output-stream.check-write" => {
            linked.func_wrap(name, |_, (_,): (Stream,)| Ok((Ok::<_, StreamError>(WRITE_BYTES),)))?;
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            linked.func_wrap(name, |mut store: Store<'_>, (stream, bytes): (Stream, Vec<u8>)| {
                store.data_mut().write(Standard::of_handle(stream.rep()), &bytes);
                Ok((Ok::<_, StreamError>(()),))
            })?;
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            linked.func_wrap(name, |_, (_,): (Stream,)| Ok((Ok::<_, StreamError>(()),)))?;
        }
        "[method]output-stream.subscribe" => linked.func_wrap(name, |mut store: Store<'_>, (_,): (Stream,)| {
            Ok((Resource::<Pollable>::new_own(store.data_mut().wasi.wait_until(0)?),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Links waiting, which takes no time: the clock jumps to the requested moment.
fn poll(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "[method]pollable.ready" => {
            linked.func_wrap(name, |mut store: Store<'_>, (pollable,): (Resource<Pollable>,)| {
                Ok((store.data_mut().wasi.is_due(pollable.rep()),))
            })?;
        }
        "[method]pollable.block" => {
            linked.func_wrap(name, |mut store: Store<'_>, (pollable,): (Resource<Pollable>,)| {
                store.data_mut().wasi.wait_for_first(&[pollable.rep()]);
                Ok(())
            })?;
        }
        "poll" => linked.func_wrap(
            name,
            |mut store: Store<'_>, (pollables,): (Vec<Resource<Pollable>>,)| {
                let handles: Vec<_> = pollables.iter().map(Resource::rep).collect();
                Ok((store.data_mut().wasi.wait_for_first(&handles),))
            },
        )?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn clock(linked: &mut LinkerInstance<'_, CallState>, interface: &str, name: &str) -> wasmtime::Result<bool> {
    const SECOND: u64 = 1_000_000_000;
    let datetime = |nanoseconds: u64| Datetime {
        seconds: nanoseconds / SECOND,
        nanoseconds: u32::try_from(nanoseconds % SECOND).unwrap_or_default(),
    };
    match (interface, name) {
        ("clocks/wall-clock", "now") => linked.func_wrap(name, move |mut store: Store<'_>, (): ()| {
            Ok((datetime(
                WALL_CLOCK_START.saturating_add(store.data_mut().wasi.monotonic()),
            ),))
        })?,
        ("clocks/wall-clock", "resolution") => {
            linked.func_wrap(name, move |_, (): ()| Ok((datetime(state::CLOCK_STEP),)))?;
        }
        ("clocks/monotonic-clock", "now") => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            Ok((store.data_mut().wasi.monotonic(),))
        })?,
        ("clocks/monotonic-clock", "resolution") => {
            linked.func_wrap(name, |_, (): ()| Ok((state::CLOCK_STEP,)))?;
        }
        (_, "subscribe-instant") => linked.func_wrap(name, |mut store: Store<'_>, (instant,): (u64,)| {
            Ok((Resource::<Pollable>::new_own(
                store.data_mut().wasi.wait_until(instant)?,
            ),))
        })?,
        (_, "subscribe-duration") => linked.func_wrap(name, |mut store: Store<'_>, (duration,): (u64,)| {
            let wasi = &mut store.data_mut().wasi;
            let instant = wasi.monotonic().saturating_add(duration);
            Ok((Resource::<Pollable>::new_own(wasi.wait_until(instant)?),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Links random numbers; the secure ones are no more random than the others.
fn random(linked: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<bool> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            linked.func_wrap(name, |mut store: Store<'_>, (length,): (u64,)| {
                let state = store.data_mut();
                if length > state.limits.transfer_bytes {
                    return Err(Stop::Limit(Limit::Transfer).into());
                }
                Ok((state.wasi.random_bytes(length),))
            })?;
        }
        "get-random-u64" | "get-insecure-random-u64" => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            Ok((store.data_mut().wasi.random(),))
        })?,
        "insecure-seed" | "get-insecure-seed" => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            let wasi = &mut store.data_mut().wasi;
            Ok(((wasi.random(), wasi.random()),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}
