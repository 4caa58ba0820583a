#!lua flags=allow-oom
-- reserve: ask for one request on a queue's clock without owning its partition (a robots.txt that redirects to
-- another domain, a sitemap given by hand). Granted only when the queue is due and nobody holds claims on it
-- (on a queue without delay, claims are no obstacle).
-- KEYS  meta
-- ARGV  queue, now (ms; a lower bound of the partition's time), default delay (ms)
-- returns {wait (ms, 0: granted), clock (ms)}
--@include _fence _queue
local clock = math.max(tonumber(call('HGET', M, 'clock') or nil) or 0, tonumber(ARGV[2]))
local w = call('HMGET', P .. 'w:' .. ARGV[1], 'next', 'delay', 'out')
local delay = tonumber(w[2]) or tonumber(ARGV[3])
local due = due_of(tonumber(w[1]), delay, tonumber(call('HGET', M, 'hold') or nil))
if delay > 0 and (tonumber(w[3]) or 0) > 0 then return {math.max(delay, 100), clock} end
if due > clock then return {due - clock, clock} end
call('HSET', M, 'clock', clock)
call('HSET', P .. 'w:' .. ARGV[1], 'next', clock + delay)
if call('ZSCORE', P .. 'ready', ARGV[1]) then call('ZADD', P .. 'ready', clock + delay, ARGV[1]) end
return {0, clock}
