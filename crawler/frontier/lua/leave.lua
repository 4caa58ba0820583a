#!lua flags=allow-oom
-- leave: remove a session from the member list, if its blob is still the one seen. With '' it leaves by itself: then its
-- eviction is deleted, and its join is not counted against the node.
-- KEYS  members, nodes, evicted, returns
-- ARGV  session, node, blob seen or ''
-- returns {'CHANGED'} | {'COMMITTED'}
local blob = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] ~= '' and blob ~= ARGV[3] then return {'CHANGED'} end
local was_there = redis.call('HDEL', KEYS[1], ARGV[1]) == 1
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[3], ARGV[1])
  if was_there and redis.call('HEXISTS', KEYS[4], ARGV[2]) == 1 then
    if redis.call('HINCRBY', KEYS[4], ARGV[2], -1) <= 0 then redis.call('HDEL', KEYS[4], ARGV[2]) end
  end
end
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[1] then redis.call('HDEL', KEYS[2], ARGV[2]) end
return {'COMMITTED'}
