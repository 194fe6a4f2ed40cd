;; The component of the worker that stands beside a probed member. It plans a session whose system prompt is its posture
;; and the notes that it was given, whose message is its task, and which has all granted tools.
;;
;; `neighbour.wasm` is this module as a component: see `tests/probe.rs`.
(module
  (memory (export "memory") 2)
  ;; The end of what is used of the memory. The plan stands at 4096.
  (global $next (mut i32) (i32.const 8192))

  ;; That many bytes at the end of what is used.
  (func $room (param $bytes i32) (result i32)
    (local $at i32) (local $missing i32)
    (local.set $at (global.get $next))
    (global.set $next (i32.add (local.get $at) (local.get $bytes)))
    (local.set $missing (i32.sub (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then
        (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $missing) (i32.const 16)) (i32.const 1))) (i32.const -1))
          (then unreachable))))
    (local.get $at))

  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.set $next (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
    (call $room (local.get 3)))

  ;; Adds the text at an address, and the end of a line.
  (func $append (param $text i32) (param $bytes i32)
    (local $at i32)
    (local.set $at (call $room (i32.add (local.get $bytes) (i32.const 1))))
    (memory.copy (local.get $at) (local.get $text) (local.get $bytes))
    (i32.store8 (i32.add (local.get $at) (local.get $bytes)) (i32.const 10)))

  (func (export "guild:worker/dispatch@0.1.0#activate") (param $activation i32) (result i32)
    (local $prompt i32) (local $note i32) (local $end i32)
    (local.set $prompt (global.get $next))
    ;; The posture, and the content of each note.
    (call $append (i32.load offset=80 (local.get $activation)) (i32.load offset=84 (local.get $activation)))
    (local.set $note (i32.load offset=96 (local.get $activation)))
    (local.set $end
      (i32.add (local.get $note) (i32.mul (i32.load offset=100 (local.get $activation)) (i32.const 40))))
    (block $done
      (loop $notes
        (br_if $done (i32.ge_u (local.get $note) (local.get $end)))
        (call $append (i32.load offset=12 (local.get $note)) (i32.load offset=16 (local.get $note)))
        (local.set $note (i32.add (local.get $note) (i32.const 40)))
        (br $notes)))
    ;; `ok(session(...))` without a model and bounds: all other bytes are zeros.
    (i32.store offset=4112 (i32.const 0) (local.get $prompt))
    (i32.store offset=4116 (i32.const 0) (i32.sub (global.get $next) (local.get $prompt)))
    (i32.store offset=4120 (i32.const 0) (i32.load offset=20 (local.get $activation)))
    (i32.store offset=4124 (i32.const 0) (i32.load offset=24 (local.get $activation)))
    (i32.store offset=4128 (i32.const 0) (i32.load offset=104 (local.get $activation)))
    (i32.store offset=4132 (i32.const 0) (i32.load offset=108 (local.get $activation)))
    (i32.const 4096)))
