#!lua flags=allow-oom
-- dead_letter: give a URL up; it is kept and counted as a dead letter. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack DeadLetterArgs
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local fp, token = a[DeadLetterArgs.fingerprint], a[DeadLetterArgs.token]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local dead = Losses.of_letter(a[DeadLetterArgs.letter], a[DeadLetterArgs.seed]) -- before anything is deleted
local r = take_claim(token)
call('HSET', ctx.prefix .. 'dead', fp, a[DeadLetterArgs.letter] .. '\n' .. attempts_with(fp, a[DeadLetterArgs.attempt]))
forget(run_named(a[DeadLetterArgs.seed]), {fp}, true)
enter(State.DEAD, r, dead)
count_failure(r, a[DeadLetterArgs.kind], a[DeadLetterArgs.is_unanswered])
settle(r, a[DeadLetterArgs.next_fetch_ms], a[DeadLetterArgs.delay_ms])
close_call()
return {'COMMITTED'}
