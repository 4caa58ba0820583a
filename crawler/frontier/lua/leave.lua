#!lua flags=allow-oom
-- leave: strike a session off the member list, if its blob is still the one seen ('' for: whatever it is).
-- KEYS  members, nodes, evicted
-- ARGV  session, node, blob seen
-- returns {'CHANGED'} | {'COMMITTED'}
local blob = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] ~= '' and blob ~= ARGV[3] then return {'CHANGED'} end
redis.call('HDEL', KEYS[1], ARGV[1])
if ARGV[3] == '' then redis.call('HDEL', KEYS[3], ARGV[1]) end -- a session that is struck off stays evicted
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[1] then redis.call('HDEL', KEYS[2], ARGV[2]) end
return {'COMMITTED'}
