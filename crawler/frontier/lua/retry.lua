#!lua flags=allow-oom
-- retry: record a failed attempt of a URL that is due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack RetryArgs
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[FenceArgs.size + 1])
local token = a[RetryArgs.token]
if not is_claimed(token, ARGV[FenceArgs.epoch]) then return {'GONE'} end
local score, row, domain, member = unpack_record(call('HGET', ctx.prefix .. 'u', token))
call('HSET', ctx.prefix .. 'u', token, pack_record(text_of(with_attempt(tonumber(score))), row, domain, Sent.cleared(member)))
call('HSET', ctx.prefix .. 'a', a[RetryArgs.fingerprint], attempts_with(a[RetryArgs.fingerprint], a[RetryArgs.attempt]))
call('ZREM', ctx.prefix .. 'x', token)
call('ZADD', ctx.prefix .. 'r', a[RetryArgs.due_ms], token)
local r = record_of((Users.split(row)))
leave(State.CLAIMED, r)
enter(State.RETRYING, r)
count_in(r, 'retries', 1)
count_failure(r, a[RetryArgs.kind], a[RetryArgs.is_unanswered])
settle(r, a[RetryArgs.next_fetch_ms], a[RetryArgs.delay_ms])
count_run(a[RetryArgs.seed], RunCounts.retries, 1)
count(ctx.total, 'retries', 1)
close_call()
return {'COMMITTED'}
