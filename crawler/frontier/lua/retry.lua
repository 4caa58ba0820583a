#!lua flags=allow-oom
-- retry: a failed fetch, due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, domain, next fetch (ms), delay (ms), due (ms),
--       record with one more attempt, failure kind}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
--@include _fence _queue _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
if not is_claimed(a[1], a[2]) then return {'GONE'} end
end_claim(a[1], a[4], false)
call('HSET', P .. 'u', a[1], a[8])
call('ZADD', P .. 'r', a[7], a[1])
call('HINCRBY', P .. 'd:' .. a[4], 'retrying', 1)
count(a[4], 'retries', 1)
count(a[4], 'e:' .. a[9], 1)
settle(a[3], 1, a[5], a[6])
return {'COMMITTED'}
