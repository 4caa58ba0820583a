#!lua flags=allow-oom
-- beat: a session's heartbeat, as an absolute counter inside its member blob. Refused when it was struck off.
-- KEYS  members
-- ARGV  session, member blob
-- returns {'GONE'} | {'COMMITTED'}
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'GONE'} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'COMMITTED'}
