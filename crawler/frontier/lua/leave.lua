#!lua flags=allow-oom
-- leave: remove a session from the member list, if its blob is still the one seen. With '' it leaves by itself: then its
-- eviction is deleted, and its join is not counted against the node.
-- KEYS  members, nodes, evicted, returns
-- ARGV  LeaveArgs; the blob that was seen, or ''
-- returns {'CHANGED'} | {'COMMITTED'}
local blob = redis.call('HGET', KEYS[1], ARGV[LeaveArgs.session])
if ARGV[LeaveArgs.blob] ~= '' and blob ~= ARGV[LeaveArgs.blob] then return {'CHANGED'} end
local was_there = redis.call('HDEL', KEYS[1], ARGV[LeaveArgs.session]) == 1
if ARGV[LeaveArgs.blob] == '' then
  redis.call('HDEL', KEYS[3], ARGV[LeaveArgs.session])
  if was_there and redis.call('HEXISTS', KEYS[4], ARGV[LeaveArgs.node]) == 1 then
    if redis.call('HINCRBY', KEYS[4], ARGV[LeaveArgs.node], -1) <= 0 then redis.call('HDEL', KEYS[4], ARGV[LeaveArgs.node]) end
  end
end
if redis.call('HGET', KEYS[2], ARGV[LeaveArgs.node]) == ARGV[LeaveArgs.session] then redis.call('HDEL', KEYS[2], ARGV[LeaveArgs.node]) end
return {'COMMITTED'}
