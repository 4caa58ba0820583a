#!lua flags=allow-oom
-- retry: record a failed attempt of a URL that is due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, next fetch (ms), delay (ms), due (ms), failure kind,
--       this attempt (JSON)}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
local token = a[2]
if not is_claimed(token, ARGV[2]) then return {'GONE'} end
local score, queue, domain, member = unpack_record(call('HGET', P .. 'u', token))
call('HSET', P .. 'u', token, pack_record(text_of(with_attempt(tonumber(score))), queue, domain, member))
call('HSET', P .. 'a', a[1], attempts_with(a[1], a[8]))
call('ZREM', P .. 'x', token)
call('ZADD', P .. 'r', a[6], token)
local r = record_of(queue)
for name, n in pairs({retries = 1, ['e:' .. a[7]] = 1}) do count_in(r, name, n) end
add_to(r, RETRYING, 1)
settle(r, 1, a[4], a[5])
close_queues()
bump(M, {retries = 1, ['e:' .. a[7]] = 1})
return {'COMMITTED'}
