#!lua flags=allow-oom
-- retry: a failed fetch, due again later. Needs the fence and the delivery's token.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), msgpack {fingerprint, token, queue, domain, next fetch (ms), delay (ms), due (ms),
--       failure kind}
-- returns {'FENCED'} | {'GONE'} | {'COMMITTED'}
--@include _fence _record _queue _end
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local a = cmsgpack.unpack(ARGV[4])
if not is_claimed(a[1], a[2], ARGV[2]) then return {'GONE'} end
-- The stored record, not the claim's: a shorter path may have been found meanwhile.
local record = cjson.decode(call('HGET', P .. 'u', a[1]))
record[R_ATTEMPTS] = record[R_ATTEMPTS] + 1
end_claim(a[1], false)
call('HSET', P .. 'u', a[1], cjson.encode(record))
call('ZADD', P .. 'r', a[7], a[1])
bump(P .. 'd:' .. a[4], {'claimed', -1, 'retrying', 1, 'retries', 1, 'e:' .. a[8], 1})
bump(M, {'retries', 1, 'e:' .. a[8], 1})
settle(a[3], 1, a[5], a[6])
return {'COMMITTED'}
