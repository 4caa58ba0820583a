#!lua flags=allow-oom
-- retry: a failed fetch, due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, domain, next fetch (ms), delay (ms), due (ms),
--       failure kind}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
--@include _fence _record _queue _seen _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
local token = a[2]
if not is_claimed(token, ARGV[2]) then return {'GONE'} end
local score, queue, domain, member = unpack_record(call('HGET', P .. 'u', token))
call('HSET', P .. 'u', token, pack_record(text_of(with_attempt(tonumber(score))), queue, domain, member))
call('ZREM', P .. 'x', token)
call('ZADD', P .. 'r', a[7], token)
bump(P .. 'd:' .. a[4], {'claimed', -1, 'retrying', 1, 'retries', 1, 'e:' .. a[8], 1})
bump(M, {'retries', 1, 'e:' .. a[8], 1})
settle(a[3], 1, a[5], a[6])
return {'COMMITTED'}
