#!lua flags=allow-oom
-- pace: a request outside of any claim (robots.txt) was made for a queue: store what it learned and move the clock.
-- Needs the fence.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), queue, next fetch (ms), delay (ms), origin, robots blob
-- returns {'FENCED'} | {'COMMITTED'}
--@include _fence
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
local key = P .. 'w:' .. ARGV[4]
local known = tonumber(call('HGET', key, 'next') or nil) or 0
call('HSET', key, 'next', math.max(known, tonumber(ARGV[5])))
if tonumber(ARGV[6]) >= 0 then call('HSET', key, 'delay', ARGV[6]) end
if ARGV[7] ~= '' then call('HSET', P .. 'robots', ARGV[7], ARGV[8]) end
return {'COMMITTED'}
