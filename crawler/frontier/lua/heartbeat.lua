#!lua flags=allow-oom
-- heartbeat: write a session's heartbeat, an absolute counter in its member blob. Refused when the session was removed from
-- the list or evicted: then it counts as silent, whatever it does.
-- KEYS  members, evicted
-- ARGV  HeartbeatArgs
-- returns {'GONE'} | {'EVICTED'} | {'COMMITTED'}
if redis.call('HEXISTS', KEYS[2], ARGV[HeartbeatArgs.session]) == 1 then return {'EVICTED'} end
if redis.call('HEXISTS', KEYS[1], ARGV[HeartbeatArgs.session]) == 0 then return {'GONE'} end
redis.call('HSET', KEYS[1], ARGV[HeartbeatArgs.session], ARGV[HeartbeatArgs.blob])
return {'COMMITTED'}
