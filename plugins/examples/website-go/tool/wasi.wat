;; Answers what Go's runtime imports of WASI's preview 1, without any access: no arguments, no environment, no files, a clock and
;; random numbers that are the same in every call. What is written to standard output and standard error goes to the host's log, line
;; by line; the latter is where Go's runtime says why it gives up. What is written elsewhere is dropped.
;;
;; The state is in the first page of Go's memory, which Go leaves alone: at 8 the clock in nanoseconds, at 16 the random numbers, at
;; 24 the length of the line that is being written, at 28 the level of the next line of standard error where it is no error, at 32
;; the file that is written to, at 64 the line.
(module
  (import "pilothouse:plugin/log@0.1.0" "log"
    (func $log (param $level i32) (param $message i32) (param $length i32) (param $fields i32) (param $count i32)))
  (import "env" "memory" (memory 0))

  ;; Logs what is written so far: as an error, or as a warning after the line that says why the runtime gives up, where its stack
  ;; follows. The host reports the last error, so that is the reason and not the end of the stack.
  (func $end_line
    (local $start i32)
    (if (i32.eqz (i32.load (i32.const 24))) (then (return)))
    (if (i32.eq (i32.load (i32.const 32)) (i32.const 1))
      (then
        (call $log (i32.const 2) (i32.const 64) (i32.load (i32.const 24)) (i32.const 0) (i32.const 0))
        (i32.store (i32.const 24) (i32.const 0))
        (return)))
    (call $log
      (select (i32.load (i32.const 28)) (i32.const 4) (i32.load (i32.const 28)))
      (i32.const 64) (i32.load (i32.const 24)) (i32.const 0) (i32.const 0))
    ;; The line begins with "fatal error: " or "panic: ", as its first four bytes tell.
    (local.set $start (i32.load (i32.const 64)))
    (if (i32.or (i32.eq (local.get $start) (i32.const 0x61746166)) (i32.eq (local.get $start) (i32.const 0x696e6170)))
      (then (i32.store (i32.const 28) (i32.const 3))))
    (i32.store (i32.const 24) (i32.const 0)))

  ;; A byte of standard output or standard error. A message has to be UTF-8, which what Go writes need not be: of other bytes than ASCII's there is a
  ;; question mark.
  (func $write_byte (param $byte i32)
    (if (i32.eq (local.get $byte) (i32.const 10)) (then (call $end_line) (return)))
    (if (i32.eq (i32.load (i32.const 24)) (i32.const 3968)) (then (call $end_line)))
    (i32.store8 offset=64 (i32.load (i32.const 24))
      (select (i32.const 63) (local.get $byte) (i32.ge_u (local.get $byte) (i32.const 128))))
    (i32.store (i32.const 24) (i32.add (i32.load (i32.const 24)) (i32.const 1))))

  (func (export "args_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (i32.const 0))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_sizes_get") (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))

  ;; Each reading is a microsecond later; the first is not 0, which Go takes for a broken clock. The wall clock is the same: 1970.
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.const 1000)))
    (i64.store (local.get $time) (i64.load (i32.const 8)))
    (i32.const 0))

  ;; A linear congruential generator, of which the upper bits are used; no secrets.
  (func (export "random_get") (param $at i32) (param $length i32) (result i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (block $done
      (loop $bytes
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (i64.store (i32.const 16)
          (i64.add (i64.mul (i64.load (i32.const 16)) (i64.const 6364136223846793005)) (i64.const 1442695040888963407)))
        (i32.store8 (local.get $at) (i32.wrap_i64 (i64.shr_u (i64.load (i32.const 16)) (i64.const 56))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $bytes)))
    (i32.const 0))

  ;; Everything is written; the sum of the parts' lengths says so. The file 1 is standard output, and 2 standard error.
  (func (export "fd_write") (param $file i32) (param $parts i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32)
    (local $at i32)
    (local $end i32)
    (if (i32.ne (local.get $file) (i32.load (i32.const 32)))
      (then
        (call $end_line)
        (i32.store (i32.const 32) (local.get $file))))
    (block $done
      (loop $more
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $at (i32.load (local.get $parts)))
        (local.set $end (i32.add (local.get $at) (i32.load offset=4 (local.get $parts))))
        (block $copied
          (br_if $copied (i32.gt_u (local.get $file) (i32.const 2)))
          (loop $bytes
            (br_if $copied (i32.ge_u (local.get $at) (local.get $end)))
            (call $write_byte (i32.load8_u (local.get $at)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $bytes)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $parts))))
        (local.set $parts (i32.add (local.get $parts) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $more)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))

  ;; Waiting takes no time: the clock jumps by the timeout of the first subscription, in nanoseconds at 24, and that has happened.
  (func (export "poll_oneoff") (param $subscriptions i32) (param $events i32) (param $count i32) (param $happened i32) (result i32)
    (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load offset=24 (local.get $subscriptions))))
    (i64.store (local.get $events) (i64.load (local.get $subscriptions)))
    (i64.store offset=8 (local.get $events) (i64.const 0))
    (i64.store offset=16 (local.get $events) (i64.const 0))
    (i64.store offset=24 (local.get $events) (i64.const 0))
    (i32.store (local.get $happened) (i32.const 1))
    (i32.const 0))

  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param i32)
    (call $end_line)
    (unreachable))

  ;; No file is open: the error is EBADF.
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8)))
