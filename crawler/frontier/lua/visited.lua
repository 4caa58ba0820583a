#!lua flags=allow-oom
-- visited: the request of a guest (see reserve) has ended. The owner sets the queue's time by its own clock when it looks next.
-- KEYS  meta
-- ARGV  queue, guest
-- returns {'COMMITTED'}
--@include _fence _queue
local key = P .. 'w:' .. ARGV[1]
local mark = call('HGET', key, 'guest')
if not mark or mark == ARGV[2] then
  call('HSET', key, 'guest', done_mark(ARGV[2]))
  call('HDEL', key, 'guest_seen')
end
return {'COMMITTED'}
