#!lua flags=allow-oom
-- dead_letter: give a URL up; it is kept and counted as a dead letter. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, next fetch (ms), delay (ms), dead letter, failure kind,
--       run, this attempt (JSON) or '' for none, seed, 1 if there was no answer}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local fp, token, kind = a[DeadLetterArgs.fingerprint], a[DeadLetterArgs.token], 'e:' .. a[DeadLetterArgs.kind]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
Losses.count_dead(a[DeadLetterArgs.letter])
end_claims({token})
call('HSET', ctx.prefix .. 'dead', fp, a[DeadLetterArgs.letter] .. '\n' .. attempts_with(fp, a[DeadLetterArgs.attempt]))
forget(a[DeadLetterArgs.run], {fp}, true)
local r = record_of(a[DeadLetterArgs.queue])
for name, n in pairs({dead = 1, [kind] = 1}) do count_in(r, name, n) end
if a[DeadLetterArgs.is_unanswered] == 1 then note_unanswered(r) else note_answered(r) end
settle(r, 1, a[DeadLetterArgs.next_fetch_ms], a[DeadLetterArgs.delay_ms])
count_seed(a[DeadLetterArgs.seed], DEAD, 1)
for _, name in ipairs({'done', 'dead', kind}) do count(ctx.total, name, 1) end
close_call()
return {'COMMITTED'}
