#!lua flags=allow-oom
-- pace: a request outside of any claim (robots.txt) was made for a queue: store what it learned and move the clock.
-- Needs the fence.
-- KEYS  meta
-- ARGV  session, epoch, now (ms), queue, next fetch (ms), delay (ms), origin, robots blob
-- returns {'FENCED'} | {'COMMITTED'}
--@include _fence _queue
if not fence(ARGV[1], ARGV[2], tonumber(ARGV[3])) then return {'FENCED'} end
settle(ARGV[4], 0, tonumber(ARGV[5]), tonumber(ARGV[6]))
if ARGV[7] ~= '' then call('HSET', P .. 'robots', ARGV[7], ARGV[8]) end
return {'COMMITTED'}
