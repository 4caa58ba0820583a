#!lua flags=allow-oom
-- beat: a session's heartbeat, as an absolute counter inside its member blob. Refused when it was struck off, and from
-- the moment it was evicted: then silence does the rest, whatever the session does.
-- KEYS  members, evicted
-- ARGV  session, member blob
-- returns {'GONE'} | {'EVICTED'} | {'COMMITTED'}
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return {'EVICTED'} end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'GONE'} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'COMMITTED'}
