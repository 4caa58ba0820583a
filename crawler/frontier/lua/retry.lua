#!lua flags=allow-oom
-- retry: record a failed attempt of a URL that is due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, next fetch (ms), delay (ms), due (ms), failure kind,
--       this attempt (JSON), seed or run, 1 if there was no answer}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token, kind = a[RetryArgs.token], 'e:' .. a[RetryArgs.kind]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local score, row, domain, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
call('HSET', ctx.prefix .. 'u', token, pack_record(text_of(with_attempt(tonumber(score))), row, domain, Sent.cleared(member)))
call('HSET', ctx.prefix .. 'a', a[RetryArgs.fingerprint], attempts_with(a[RetryArgs.fingerprint], a[RetryArgs.attempt]))
call('ZREM', ctx.prefix .. 'x', token)
call('ZADD', ctx.prefix .. 'r', a[RetryArgs.due_ms], token)
local r = record_of((Users.split(row)))
for name, n in pairs({retries = 1, [kind] = 1}) do count_in(r, name, n) end
add_to(r, RETRYING, 1)
if a[RetryArgs.is_unanswered] == 1 then note_unanswered(r) else note_answered(r) end
settle(r, 1, a[RetryArgs.next_fetch_ms], a[RetryArgs.delay_ms])
count_run(a[RetryArgs.seed], RunCounts.retries, 1)
count(ctx.total, 'retries', 1)
count(ctx.total, kind, 1)
close_call()
return {'COMMITTED'}
